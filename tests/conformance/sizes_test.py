#!/usr/bin/env python3
"""Large messages from client to router, prefill and decode worker (entries LD-06, PD-12)."""
from service import ServiceTest, ids
import api
from cluster import LONGEST_S, main, wait_for

MB = 1 << 20
CONTEXT = 1 << 20         # tokens, the most that a model may have
WORD = " that"            # one token of the tiny model


def padded(tokens, bytes_each):
    """A request with a prompt of so many ids, each written with so many bytes: as protobuf allows and nobody should."""
    one = bytes([0x85] + [0x80] * (bytes_each - 2) + [0]) if bytes_each > 1 else b"\x05"
    ids_field = one * tokens

    def field(number, data):
        length, size = len(data), b""
        while length > 127:
            size += bytes([length & 127 | 128])
            length >>= 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + data

    stop = api.pb.StopOptions(max_tokens=1).SerializeToString()
    prompt = field(2, field(1, field(2, field(1, ids_field))))  # of Generation: Prompt, segment, TokenIds, ids
    return field(1, prompt + field(5, stop))


class Sizes(ServiceTest):
    """A model with a huge context: nobody waits for such a prompt, but its messages cross every hop."""
    MODEL = dict(layers=1, width=32, heads=16, kv_heads=1, context=CONTEXT)
    FLAGS = ("--threads", "1", "--block-size", "256", "--kv-blocks", "4200", "--transport", "tcp", "--max-running", "4",
             "--max-queue-tokens", str(2 * CONTEXT))

    def assert_crosses(self, stream, tokens):
        """It reaches prefill and decode worker with all its tokens; then it is cancelled."""
        steps = self.cluster.metrics("prefill")["baton_step_seconds_count"]
        stream.read(lambda one: one.started is not None)
        self.assertEqual(len(stream.started.prompt_token_ids), tokens)
        # Nothing is computed before the decode worker has granted room for all of it.
        wait_for(lambda: self.cluster.metrics("prefill")["baton_step_seconds_count"] > steps, LONGEST_S, "the first step")
        wait_for(lambda: self.cluster.blocks_held("decode") >= tokens // 256, what="the decode worker counts them")
        stream.cancel()
        self.assert_quiet()

    def raw(self, data):
        return api.Stream(self.client.stub.GenerateStream(data, timeout=LONGEST_S))

    def test_prompts_of_many_megabytes_cross_every_hop(self):
        for megabytes in (3.9, 4.1, 4.9):
            tokens = int(megabytes * MB / len(WORD))
            with self.subTest(text=megabytes):
                self.assert_crosses(self.client.stream(api.generation(WORD * tokens, max_tokens=1)), tokens)
        for bytes_each in (1, 4, 10):
            with self.subTest(bytes_each=bytes_each):
                self.assert_crosses(self.raw(padded(1_000_000, bytes_each)), 1_000_000)

    def test_what_is_too_long_is_refused_by_the_router(self):
        for request in (api.generation(WORD * 3 * MB), api.generation([5] * CONTEXT), api.generation([5] * 7_000_000)):
            self.assertEqual(self.assert_bad(request, "generation.prompt").reason, "PROMPT_TOO_LONG")

    def test_messages_above_the_limit_are_refused_and_stop_nobody(self):
        beside = self.client.stream(api.generation("the time", max_tokens=400, ignore_eos=True))
        next(beside)
        for request in (api.generation([200] * (8 * MB + 1)), api.generation("a" * 20 * MB), api.generation("a" * 200 * MB)):
            with api.Client(self.cluster.target) as client:
                with self.assertRaises(api.Failure) as caught:
                    client.generate(request)
            self.assertEqual(caught.exception.code, "RESOURCE_EXHAUSTED")
            self.assertEqual(self.client.health(), "SERVING")
        beside.read()
        self.assertEqual(len(beside.ids[0]), 400)

    def test_workers_receive_what_routers_and_sources_may_send(self):
        """More than gRPC's own limit of 4 MiB: what answers is the worker."""
        router = api.state_pb.Epoch(hi=5, lo=5)
        attempt = api.state_pb.AttemptId(router=router, request=1, attempt=1)
        for role in ("prefill", "decode"):
            with self.subTest(role=role), api.channel(self.cluster.worker(role)["listen"]) as connection:
                workers = api.stub(connection, "baton.worker.v1.WorkerService")
                for tokens, code in ((7_000_000, "FAILED_PRECONDITION"), (9 * MB, "RESOURCE_EXHAUSTED")):
                    state = api.state_pb.DecoderState(attempt=attempt, prompt=[200] * tokens, choices=[{}])
                    with self.assertRaises(api.Failure) as caught:
                        api.Unary(workers.Submit.future(api.worker_pb.SubmitRequest(state=state), timeout=LONGEST_S)).result()
                    self.assertEqual(caught.exception.code, code)


class PromptLogprobs(ServiceTest):
    """23,809 tokens x 21 is the most that is allowed."""
    MODEL = dict(layers=1, context=36000)
    FLAGS = ("--threads", "2", "--block-size", "64", "--kv-blocks", "600")
    LIMIT = 500_000

    @classmethod
    def prompt(cls, top, over=0):
        return [3 + (7 * i + i * i // 5) % 330 for i in range(cls.LIMIT // (top + 1) + over)]

    @classmethod
    def prepare(cls, alone):
        cls.alone = alone.generate(api.generation(cls.prompt(20), prompt_logprobs=20, logprobs=20, max_tokens=3,
                                                  ignore_eos=True))

    def test_prompt_log_probabilities_up_to_their_limit_are_equal_split_and_unified(self):
        request = api.generation(self.prompt(20), prompt_logprobs=20, logprobs=20, max_tokens=3, ignore_eos=True)
        stream = self.client.stream(request).read()
        self.assert_end1(stream)
        self.assertEqual(stream.prompt_logprobs, list(self.alone.prompt_logprobs))
        self.assertEqual(stream.logprobs[0], list(self.alone.choices[0].logprobs))
        self.assertNotEqual(stream.completed.workers.prefill, "")
        self.assertEqual([one.token_id for one in stream.prompt_logprobs], self.prompt(20)[1:])
        self.assertGreater(self.alone.ByteSize(), 4 * MB)
        for top in (20, 14):
            failure = self.assert_bad(api.generation(self.prompt(top, over=1), prompt_logprobs=top, max_tokens=1),
                                      "generation.logprobs.prompt")
            self.assertIn(str(self.LIMIT), failure.text)

    def test_segments_without_content_are_counted(self):
        self.assert_bad(api.generation(["a"] + [""] * 36000, max_tokens=1), "generation.prompt.segments")
        self.assertEqual(len(ids(self.client.generate(api.generation(["a"] + [""] * 35999, max_tokens=1)))), 1)


if __name__ == "__main__":
    main()
