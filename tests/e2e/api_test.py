#!/usr/bin/env python3
"""The public API over gRPC from a client that is not ours: both kinds of call, every field, cancellation, deadlines,
what an error carries, health."""
import shutil
import tempfile
import time
import unittest

import api
from cluster import Cluster, limit, main, tiny_model, wait_for

EVERY_FIELD = dict(
    model="", priority=1, tenant="t", request_id="every-field", temperature=0.7, top_k=50, top_p=0.9, min_p=0.01,
    seed=4, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.25, logit_bias={7: 2.5, 9: -1},
    logprobs=2, prompt_logprobs=1, max_tokens=12, stop_strings=["zzzz"], stop_token_ids=[3], ignore_eos=True, min_tokens=2,
    include_stop=True)
LONG = dict(max_tokens=3500, ignore_eos=True)


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        # Slow enough that a long answer is under way for many seconds.
        cls.cluster = Cluster(tiny_model(cls.directory, layers=16, context=4096), "--threads", "1", "--backend",
                              "reference", "--step-tokens", "16").__enter__()
        cls.client = api.Client(cls.cluster.target)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.__exit__(None, None, None)
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.cluster.assert_idle()

    def fails(self, code, reason, request, **options):
        with self.assertRaises(api.Failure) as caught:
            self.client.generate(request, **options)
        self.assertEqual((caught.exception.code, caught.exception.reason), (code, reason), caught.exception)
        return caught.exception

    def test_both_kinds_of_call_carry_every_field_and_answer_equally(self):
        request = api.generation("the time of the", **EVERY_FIELD)
        whole = self.client.generate(request)
        stream = self.client.stream(request).read()
        self.assertEqual([kind for kind, _ in stream.events if kind != "delta"],
                         ["started", "prompt_logprobs", "choice_end", "completed"])
        self.assertEqual(stream.out_of_order, [])
        choice = whole.choices[0]
        self.assertEqual(stream.ids[0], list(choice.token_ids))
        self.assertEqual(stream.texts[0], choice.text)
        self.assertEqual(stream.finish[0], api.pb_finish(choice.finish_reason))
        self.assertEqual(stream.logprobs[0], list(choice.logprobs))
        self.assertEqual(stream.prompt_logprobs, list(whole.prompt_logprobs))
        self.assertEqual(stream.started.prompt_token_ids, whole.prompt_token_ids)
        self.assertEqual((stream.started.request_id, stream.started.seed), ("every-field", 4))
        self.assertEqual((whole.request_id, whole.seed), ("every-field", 4))
        self.assertEqual(api.spent(stream.completed.usage), api.spent(whole.usage))
        self.assertEqual({len(one.top) for one in choice.logprobs}, {2})
        self.assertEqual(len(whole.prompt_logprobs), len(whole.prompt_token_ids) - 1)

    def test_no_field_is_out_of_this_clients_reach(self):
        for message in (api.pb.Generation, api.pb.SamplingOptions, api.pb.StopOptions):
            for field in message.DESCRIPTOR.fields:
                if field.message_type is None:  # the others have ways of their own, used above
                    value = "x" if field.type in (field.TYPE_STRING, field.TYPE_BYTES) else 1
                    value = value.encode() if field.type == field.TYPE_BYTES else value
                    repeated = field.label == field.LABEL_REPEATED
                    request = api.generation(**{field.name: [value] if repeated else value})
                    self.assertIn(field.name, str(request))

    def test_text_ids_and_chat_are_prompts(self):
        ids = self.client.tokenize("the time of the")
        by_text, by_ids, mixed = (self.client.generate(api.generation(content, max_tokens=4)) for content in
                                  ("the time of the", ids, [b"the time", ids[len(self.client.tokenize("the time")):]]))
        self.assertEqual(list(by_text.prompt_token_ids), ids)
        self.assertEqual(by_text.choices, by_ids.choices)
        self.assertEqual(by_text.choices, mixed.choices)
        turns = [("system", "be short"), ("user", "the time?")]
        answer = self.client.generate(api.generation(chat_turns=turns, max_tokens=4))
        self.assertEqual(list(answer.prompt_token_ids), self.client.tokenize(chat_turns=turns))
        self.assertEqual(self.client.detokenize(ids), "the time of the")

    def test_a_refusal_names_reason_and_field(self):
        failure = self.fails("INVALID_ARGUMENT", "INVALID_FIELD", api.generation("hi", top_p=0))
        self.assertEqual(failure.domain, "baton")
        self.assertEqual([path for path, _ in failure.fields], ["generation.sampling.top_p"])
        self.fails("NOT_FOUND", "UNKNOWN_MODEL", api.generation("hi", model="gpt-9"))
        stream = self.client.stream(api.generation("hi", max_tokens=0))
        with self.assertRaises(api.Failure) as caught:
            stream.read()
        self.assertEqual(caught.exception.fields[0][0], "generation.stop.max_tokens")
        self.assertEqual(stream.events, [])

    def test_a_full_house_says_when_to_come_back(self):
        self.client.generate(api.generation([7] * 500, max_tokens=2))  # so that a rate is known
        busy = [self.client.stream(api.generation([7] * 3500, max_tokens=4)) for _ in range(4)]
        for stream in busy:
            self.addCleanup(stream.cancel)
        wait_for(lambda: self.cluster.metrics("router")["baton_requests_running"] == len(busy))
        failure = self.fails("RESOURCE_EXHAUSTED", "PREDICTED_TOO_LATE", api.generation([7] * 3500, max_tokens=4),
                             timeout_s=1)
        self.assertGreater(failure.retry_s, 0)

    def test_a_cancel_ends_both_kinds_of_call_and_frees_the_workers(self):
        stream = self.client.stream(api.generation("the time", **LONG)).read_tokens(3)
        stream.cancel()
        with self.assertRaises(api.Failure) as caught:
            stream.read()
        self.assertEqual(caught.exception.code, "CANCELLED")
        self.cluster.assert_idle(limit(2))
        unary = self.client.start(api.generation("the time", **LONG))
        wait_for(lambda: self.cluster.metrics("decode")["baton_requests_running"] > 0)
        unary.cancel()
        with self.assertRaises(api.Failure) as caught:
            unary.result()
        self.assertEqual(caught.exception.code, "CANCELLED")
        self.cluster.assert_idle(limit(2))

    def test_a_deadline_ends_a_stream_with_what_came_before(self):
        stream = self.client.stream(api.generation("the time", **LONG), timeout_s=2)
        with self.assertRaises(api.Failure) as caught:
            stream.read()
        self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
        self.assertGreater(len(stream.ids[0]), 0)
        self.assertIsNone(stream.completed)
        self.cluster.assert_idle(limit(2))

    def test_health_and_models_are_served(self):
        self.assertEqual(self.client.health(), "SERVING")
        self.assertEqual(self.client.health("baton.v1.InferenceService"), "SERVING")
        models = self.client.call("ListModels", api.pb.ListModelsRequest()).models
        self.assertEqual([model.context_length for model in models], [4096])

    def test_a_worker_answers_a_hello_and_ends_a_session_with_another_epoch(self):
        connection = api.channel(self.cluster.worker("decode")["listen"])
        service = api.stub(connection, "baton.transfer.v1.TransferService")
        session = api.Duplex(service.Session)
        hello = api.transfer_pb.SourceHello(protocol_version=1)
        hello.sink_epoch.hi = 1
        session.send(api.transfer_pb.SessionRequest(hello=hello))
        self.assertEqual(session.end_of().code, "FAILED_PRECONDITION")
        session = api.Duplex(api.stub(connection, "baton.worker.v1.WorkerService").Session)
        hello = api.worker_pb.RouterHello(session_number=1, protocol_version=1)
        hello.router_epoch.hi = 1
        session.send(api.worker_pb.SessionRequest(hello=hello))
        self.assertTrue(session.receive().events[0].hello.name.startswith("decode"))
        session.cancel()
        connection.close()


if __name__ == "__main__":
    main()
