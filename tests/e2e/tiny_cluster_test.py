#!/usr/bin/env python3
"""One router, one prefill and one decode worker on a tiny random model."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from cluster import Cluster, limit, main, tiny_model, wait_for

# Slow enough that a request is under way for many seconds unless something ends it.
SLOW_MODEL = {"layers": 32, "context": 4096}
SLOW_FLAGS = ("--backend", "reference", "--step-tokens", "16")
LONG_ANSWER = ("--max-tokens", "3500", "--ignore-eos", "--prompt", "the time of the")
LONG_PROMPT = ("--max-tokens", "8", "--ignore-eos", "--prompt-tokens", ",".join(["7"] * 3500))


class SplitCluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        cls.cluster = Cluster(tiny_model(cls.directory), "--threads", "1",
                              "--slow-client-timeout-ms", "1000").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.cluster.assert_idle()

    def refused(self, code, *flags, field="", reason=""):
        with self.subTest(flags=flags[-2:], code=code):
            done = self.cluster.run(*flags)
            errors = done.stderr.decode()
            self.assertEqual(done.returncode, 1, errors)
            self.assertTrue(errors.startswith("error: " + code + " "), errors)
            self.assertIn(field, errors)
            self.assertIn(reason, errors)
            self.assertEqual(errors.count("\n"), 1)

    def test_bad_input_is_refused_with_its_code_field_and_limit(self):
        bad, hi = "INVALID_ARGUMENT", ("--prompt", "hi")
        self.refused(bad, "--prompt", "", field="generation.prompt: must not be empty")
        self.refused(bad, "--prompt-tokens", ",".join(["5"] * 512), field="context of 512")
        self.refused(bad, "--prompt-tokens", "5,-1", field="ids[1]: is -1; must be in [0, ")
        self.refused(bad, "--prompt-tokens", "2000000000", field="must be in [0, ")
        for tokens in ("0", "-1", "-2147483648"):
            self.refused(bad, *hi, "--max-tokens", tokens,
                         field=f"generation.stop.max_tokens: is {tokens}; must be at least 1")
        for temperature in ("nan", "-1", "inf", "-inf"):
            self.refused(bad, *hi, "--temperature", temperature,
                         field="generation.sampling.temperature: is")
        for top_p in ("0", "1.5", "-0.5", "nan"):
            self.refused(bad, *hi, "--top-p", top_p, field="generation.sampling.top_p: is")
        self.refused(bad, *hi, "--top-k", "-1", field="generation.sampling.top_k")
        for min_p in ("-0.1", "1.1", "nan"):
            self.refused(bad, *hi, "--min-p", min_p, field="generation.sampling.min_p")
        for flag in ("presence", "frequency"):
            for penalty in ("2.1", "-2.1", "nan"):
                self.refused(bad, *hi, f"--{flag}-penalty", penalty,
                             field=f"generation.sampling.{flag}_penalty: is")
        for penalty in ("0", "-1", "101", "nan"):
            self.refused(bad, *hi, "--repetition-penalty", penalty,
                         field="generation.sampling.repetition_penalty: is")
        self.refused(bad, *hi, "--logit-bias", "99999999=1", field="logit_bias[0].token_id: is 99999999")
        self.refused(bad, *hi, "--logit-bias", "-1=1", field="logit_bias[0].token_id: is -1")
        self.refused(bad, *hi, "--logit-bias", "3=1,3=1", field="logit_bias[1].token_id: is 3 again")
        for bias in ("101", "-101", "nan"):
            self.refused(bad, *hi, "--logit-bias", "3=" + bias, field="logit_bias[0].bias: is")
        self.refused(bad, *hi, "--max-tokens", "4", "--min-tokens", "5",
                     field="generation.stop.min_tokens: is 5; must be at most max_tokens of 4")
        self.refused(bad, *hi, "--min-tokens", "4000000000", field="generation.stop.min_tokens: is")
        for flag, field in (("--logprobs", "output"), ("--prompt-logprobs", "prompt")):
            self.refused(bad, *hi, flag, "21", field=f"generation.logprobs.{field}: is 21; at most 20")
        self.refused("NOT_FOUND", *hi, "--model", "gpt-9", field="generation.model",
                     reason="UNKNOWN_MODEL")
        self.refused(bad, "--prompt", b"\xff\xfe", field="segments[0].text: is not valid UTF-8")
        self.refused(bad, *hi, *["--stop", "x"] * 1000,
                     field="generation.stop.stop_strings: has 1000 entries; at most 16")
        self.refused(bad, *hi, "--stop", "", field="stop_strings[0]")
        self.refused(bad, *hi, "--stop-id", "99999999", field="stop_token_ids[0]")
        for n in ("0", "17", "4000000000"):
            self.refused(bad, *hi, "--n", n, field=f"generation.n: is {n}; must be in [1, 16]")
        for best_of in ("0", "2", "17"):
            self.refused(bad, *hi, "--n", "3", "--best-of", best_of,
                         field=f"generation.best_of: is {best_of}; must be in [n, which is 3, 16]")
        self.refused(bad, *hi, "--request-id", "x" * 129, field="generation.request_id")
        self.refused(bad, *hi, "--priority", "5", field="generation.priority: is 5; must be in [-4, 4]")
        self.refused(bad, *hi, "--tenant", "x" * 129, field="generation.tenant")
        path = os.path.join(self.directory, "large")
        for size, code, words in ((10 << 20, bad, "longest token"),
                                  (17 << 20, "RESOURCE_EXHAUSTED", "")):
            with open(path, "wb") as file:
                file.write(b"a" * size)
            done = self.cluster.run("--prompt-file", path)
            self.assertIn(code, done.stderr.decode())
            self.assertIn(words, done.stderr.decode())
        # It cost nobody else anything.
        self.assertEqual(len(self.cluster.generate(*hi, "--max-tokens", "5")["token_ids"]), 5)

    def test_answers_name_their_workers_and_their_time_adds_up(self):
        answer = self.cluster.generate("--prompt", "a b c", "--max-tokens", "6")
        self.assertEqual(answer["workers"], {"prefill": "prefill-0", "decode": "decode-0"})
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["usage"], {"prompt_tokens": len(answer["prompt_token_ids"]),
                                           "completion_tokens": 6, "cached_prompt_tokens": 0})
        t = answer["timings"]
        self.assertAlmostEqual(t["time_to_first_token"],
                               t["queue"] + t["route"] + t["reserve_wait"] + t["prefill"], 6)
        self.assertGreaterEqual(t["total"], t["time_to_first_token"])
        # A request does not wait for ever for its source's report.
        wait_for(lambda: self.cluster.generate("--prompt", "a b c", "--max-tokens", "6")["timings"]["handoff"] > 0,
                 what="a handoff's time")

    def test_a_first_token_that_ends_the_request_needs_no_decode_worker(self):
        answer = self.cluster.generate("--prompt", "a b c", "--max-tokens", "1")
        self.assertEqual(len(answer["token_ids"]), 1)
        self.assertEqual(answer["workers"]["decode"], "")

    def test_a_seed_repeats_and_its_absence_is_answered_with_one(self):
        flags = ("--prompt", "a b c", "--max-tokens", "12", "--temperature", "1.5")
        first = self.cluster.generate(*flags)
        again = self.cluster.generate(*flags, "--seed", str(first["seed"]))
        self.assertEqual(first["token_ids"], again["token_ids"])
        others = {tuple(self.cluster.generate(*flags, "--seed", str(s))["token_ids"])
                  for s in range(3)}
        self.assertEqual(len(others), 3)

    def test_bias_and_penalties_act_and_min_tokens_hold_back_a_stop_id(self):
        flags = ("--prompt", "a b c", "--max-tokens", "8", "--ignore-eos")
        forced = self.cluster.generate(*flags, "--logit-bias", "7=100")
        self.assertEqual(forced["token_ids"], [7] * 8)
        banned = self.cluster.generate(*flags, "--logit-bias", "7=100", "--stop-id", "7", "--min-tokens", "5")
        self.assertEqual(len(banned["token_ids"]), 6)
        self.assertNotIn(7, banned["token_ids"][:5])
        self.assertEqual((banned["token_ids"][5], banned["finish_reason"]), (7, "stop"))
        for penalty in ("--presence-penalty", "--frequency-penalty"):
            self.assertEqual(self.cluster.generate(*flags, "--logit-bias", "7=100", penalty, "2")["token_ids"],
                             [7] * 8)  # 100 is more than 8 x 2
        repeated = self.cluster.generate(*flags, "--logit-bias", "7=100", "--repetition-penalty", "100")
        self.assertEqual(repeated["token_ids"][0], 7)
        self.assertNotEqual(repeated["token_ids"], [7] * 8)

    def test_include_stop_keeps_the_stop_string(self):
        flags = ("--prompt", "a b c", "--max-tokens", "40", "--ignore-eos")
        text = self.cluster.generate(*flags)["text"]
        stop = next(c for c in text if c.isascii() and c.isprintable())
        kept = self.cluster.generate(*flags, "--stop", stop, "--include-stop")
        self.assertEqual(kept["text"], text[:text.index(stop) + 1])

    def test_log_probabilities_come_when_asked_for(self):
        flags = ("--prompt", "a b c d e f", "--max-tokens", "5", "--ignore-eos")
        plain = self.cluster.generate(*flags)
        self.assertNotIn("logprobs", plain)
        self.assertNotIn("prompt_logprobs", plain)
        answer = self.cluster.generate(*flags, "--logprobs", "3", "--prompt-logprobs", "0")
        self.assertEqual(answer["token_ids"], plain["token_ids"])
        self.assertNotEqual(answer["workers"]["prefill"], "")
        self.assertEqual([one["token_id"] for one in answer["logprobs"]], answer["token_ids"])
        for one in answer["logprobs"]:  # greedy: the likeliest
            self.assertEqual(len(one["top"]), 3)
            self.assertEqual(one["top"][0], [one["token_id"], one["logprob"]])
            self.assertEqual(sorted(one["top"], key=lambda t: -t[1]), one["top"])
            self.assertLess(one["logprob"], 0)
        prompt = answer["prompt_logprobs"]
        self.assertEqual([one["token_id"] for one in prompt], answer["prompt_token_ids"][1:])
        self.assertEqual({len(one["top"]) for one in prompt}, {0})

    def test_a_stop_string_ends_the_answer_and_is_never_shown(self):
        whole = self.cluster.generate("--prompt", "a b c", "--max-tokens", "40", "--ignore-eos")
        text = whole["text"]
        stop = next(text[i:i + 3] for i in range(5, len(text) - 3)
                    if "\ufffd" not in text[i:i + 3] and text.find(text[i:i + 3]) == i)
        answer = self.cluster.generate("--prompt", "a b c", "--max-tokens", "40", "--ignore-eos",
                                       "--stop", stop)
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["text"], text[:text.find(stop)])
        self.assertEqual(answer["token_ids"],
                         whole["token_ids"][:len(answer["token_ids"])])

    def test_a_stop_id_ends_the_answer(self):
        whole = self.cluster.generate("--prompt", "a b c", "--max-tokens", "20", "--ignore-eos")
        stop = whole["token_ids"][7]
        answer = self.cluster.generate("--prompt", "a b c", "--max-tokens", "20", "--ignore-eos",
                                       "--stop-id", str(stop))
        self.assertEqual(answer["token_ids"],
                         whole["token_ids"][:whole["token_ids"].index(stop) + 1])
        self.assertEqual(answer["finish_reason"], "stop")

    def test_chat_uses_the_template_and_raw_text_cannot_forge_it(self):
        chat = self.cluster.generate("--chat", "hi", "--max-tokens", "1")["prompt_token_ids"]
        raw = self.cluster.generate("--prompt", "<|im_start|>", "--max-tokens",
                                    "1")["prompt_token_ids"]
        self.assertIn(1, chat)  # <|im_start|>
        self.assertNotIn(1, raw)

    def test_many_at_once_get_what_they_get_alone(self):
        prompts = [f"{i} the time of {'year ' * (i % 5)}" for i in range(16)]
        alone = [self.cluster.generate("--prompt", p, "--max-tokens", "24")["token_ids"]
                 for p in prompts]
        running = [subprocess.Popen(
            self.cluster.command_of("--json", "--prompt", p, "--max-tokens", "24"),
            stdout=subprocess.PIPE) for p in prompts]
        together = [json.loads(r.communicate(timeout=60)[0])["token_ids"] for r in running]
        self.assertEqual(alone, together)

    def test_logs_name_requests_and_never_prompts(self):
        secret = "xylophone"
        self.cluster.generate("--prompt", secret, "--max-tokens", "3", "--request-id", "id-77")
        wait_for(lambda: "id-77" in self.cluster.logs("router-0"))
        for name in ("router-0", "prefill-0", "decode-0"):
            self.assertNotIn(secret, self.cluster.logs(name))


class SlowCluster(unittest.TestCase):
    """Ends from outside, in the middle of a request."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        cls.cluster = Cluster(tiny_model(cls.directory, **SLOW_MODEL), "--threads", "1",
                              *SLOW_FLAGS).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)
        shutil.rmtree(cls.directory)

    def leaves(self, stream):
        """The client goes away; both workers are free within two seconds."""
        before = self.cluster.metrics("router")
        self.assertEqual(before["baton_requests_running"], 1)
        stream.kill()
        self.cluster.assert_idle(limit(2))
        wait_for(lambda: self.cluster.metrics("router")["baton_requests_running"] == 0)
        cancelled = 'baton_router_requests_total{code="CANCELLED"}'
        wait_for(lambda: self.cluster.metrics("router").get(cancelled, 0) == before.get(cancelled, 0) + 1)

    def test_a_client_that_leaves_while_decoding_frees_both_workers_within_two_seconds(self):
        stream = self.cluster.start(*LONG_ANSWER)
        wait_for(lambda: stream.first_byte_at, what="the first token")
        wait_for(lambda: self.cluster.metrics("decode")["baton_requests_running"] > 0)
        self.leaves(stream)

    def test_a_client_that_leaves_during_its_prompt_frees_both_workers_within_two_seconds(self):
        stream = self.cluster.start(*LONG_PROMPT)
        wait_for(lambda: self.cluster.blocks_held("decode") > 0, what="decode reserved blocks")
        wait_for(lambda: self.cluster.blocks_held("prefill") > 0, what="prefill holds blocks")
        self.assertIsNone(stream.first_byte_at)
        self.leaves(stream)

    def test_a_deadline_ends_the_request_everywhere(self):
        for flags in (LONG_PROMPT, LONG_ANSWER):
            began = time.monotonic()
            done = self.cluster.run(*flags, "--timeout-ms", "1000")
            self.assertIn("error: DEADLINE_EXCEEDED", done.stderr.decode())
            self.cluster.assert_idle(limit(2))
            self.assertLess(time.monotonic() - began, 1 + limit(2))


class StoppedCluster(unittest.TestCase):
    """Tests that stop, kill or overload: each has a cluster of its own."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        self.addCleanup(shutil.rmtree, self.directory)

    def cluster(self, *flags, **model):
        return Cluster(tiny_model(self.directory, **model), "--threads", "1", *flags)

    def test_a_killed_decode_worker_ends_its_requests_unavailable_at_once(self):
        with self.cluster(*SLOW_FLAGS, **SLOW_MODEL) as cluster:
            stream = cluster.start(*LONG_ANSWER)
            wait_for(lambda: stream.first_byte_at, what="the first token")
            cluster.signal("decode", signal.SIGKILL)
            killed = time.monotonic()
            self.assertEqual(stream.wait(), 1)
            self.assertLess(time.monotonic() - killed, limit(2))
            self.assertIn(b"UNAVAILABLE WORKER_LOST", stream.errors)
            wait_for(lambda: cluster.blocks_held("prefill") == 0)
            refused = cluster.run("--prompt", "hi")
            self.assertIn(b"UNAVAILABLE NO_WORKER", refused.stderr)

    def test_a_stopped_decode_worker_is_lost_after_its_silence_and_may_come_back(self):
        with self.cluster(*SLOW_FLAGS, **SLOW_MODEL) as cluster:
            stream = cluster.start(*LONG_ANSWER)
            wait_for(lambda: stream.first_byte_at, what="the first token")
            wait_for(lambda: cluster.metrics("decode")["baton_requests_running"] > 0)
            cluster.signal("decode", signal.SIGSTOP)
            stopped = time.monotonic()
            self.assertEqual(stream.wait(), 1)
            self.assertGreater(time.monotonic() - stopped, 2)
            self.assertIn(b"UNAVAILABLE", stream.errors)
            cluster.signal("decode", signal.SIGCONT)
            wait_for(lambda: cluster.run("--prompt", "hi", "--max-tokens", "2").returncode == 0)
            cluster.assert_idle()

    def test_without_its_prefill_worker_the_decode_worker_serves_alone(self):
        with self.cluster() as cluster:
            split = cluster.generate("--prompt", "the time", "--max-tokens", "20")
            cluster.signal("prefill", signal.SIGKILL)
            wait_for(lambda: "worker lost" in cluster.logs("router-0"))
            alone = cluster.generate("--prompt", "the time", "--max-tokens", "20")
            self.assertEqual(alone["workers"], {"prefill": "", "decode": "decode-0"})
            self.assertEqual(split["token_ids"], alone["token_ids"])

    def test_the_first_token_reaches_the_client_while_the_decode_worker_is_stopped(self):
        # Patient with a silent worker, so that only the first token's own way is measured.
        with self.cluster("--backend", "reference", "--step-tokens", "1", "--lease-ms", "60000",
                          "--worker-silence-ms", "60000", **SLOW_MODEL) as cluster:
            tokens = 300
            prompts = (",".join([str(id)] * tokens) for id in range(7, 30))
            # The first token must have text of its own: printing it is what the test sees.
            prompt = next(p for p in prompts if cluster.generate(
                "--prompt-tokens", p, "--max-tokens", "1", "--ignore-eos")["text"].strip().isalnum())
            steps_before = cluster.metrics("prefill")["baton_step_seconds_count"]
            stream = cluster.start("--prompt-tokens", prompt, "--max-tokens", "6", "--ignore-eos")
            wait_for(lambda: cluster.blocks_held("decode") > 0, what="the grant")
            cluster.signal("decode", signal.SIGSTOP)
            # Stopped before the prompt was done, so before any commit could have been sent.
            steps = cluster.metrics("prefill")["baton_step_seconds_count"] - steps_before
            self.assertLess(steps, tokens)
            self.assertIsNone(stream.first_byte_at)
            wait_for(lambda: stream.first_byte_at, what="the first token")
            cluster.signal("decode", signal.SIGCONT)
            self.assertEqual(stream.wait(), 0, stream.errors)

    def test_the_first_layer_lands_before_the_last_chunk_starts(self):
        chunks = 40
        with self.cluster("--backend", "reference", "--step-tokens", "16",
                          **SLOW_MODEL) as cluster:
            cluster.generate("--prompt", "warm", "--max-tokens", "4")
            landed = cluster.metrics("decode")["baton_handoff_first_pieces_total"]
            steps = cluster.metrics("prefill")["baton_step_seconds_count"]
            stream = cluster.start("--prompt-tokens", ",".join(["7"] * (16 * chunks)),
                                   "--max-tokens", "4", "--ignore-eos")
            wait_for(lambda: cluster.metrics("decode")["baton_handoff_first_pieces_total"]
                     > landed, what="the first piece")
            # Read after the piece had landed: the last chunk cannot have started with two to go.
            done = cluster.metrics("prefill")["baton_step_seconds_count"] - steps
            self.assertLess(done, chunks - 1)
            self.assertEqual(stream.wait(), 0, stream.errors)

    def test_a_request_that_can_never_fit_is_refused_with_both_numbers(self):
        with self.cluster("--kv-blocks", "6") as cluster:
            done = cluster.run("--prompt-tokens", ",".join(["7"] * 50), "--max-tokens", "100")
            self.assertIn(b"INVALID_ARGUMENT NEVER_FITS", done.stderr)
            self.assertIn(b"need 10 KV blocks; the largest worker has 6", done.stderr)
            cluster.generate("--prompt-tokens", ",".join(["7"] * 50), "--max-tokens", "10")

    def test_a_full_queue_refuses_and_the_rest_is_served(self):
        with self.cluster("--backend", "reference", "--max-queue", "2", "--prompt-window", "1",
                          "--worker-silence-ms", "60000") as cluster:
            # However long it takes to start the clients.
            cluster.signal("prefill", signal.SIGSTOP)
            streams = [cluster.start("--prompt-tokens", ",".join(["7"] * 200), "--max-tokens",
                                     "2", "--ignore-eos") for _ in range(8)]
            wait_for(lambda: any(s.process.poll() is not None for s in streams), what="a refusal")
            cluster.signal("prefill", signal.SIGCONT)
            codes = [stream.wait() for stream in streams]
            full = [s for s in streams if b"RESOURCE_EXHAUSTED QUEUE_FULL" in s.errors]
            self.assertGreater(len(full), 0)
            self.assertEqual(codes.count(0) + len(full), 8)
            cluster.assert_idle()

    def test_requests_wait_for_room_and_all_are_served(self):
        with self.cluster("--kv-blocks", "8") as cluster:
            streams = [cluster.start("--prompt-tokens", ",".join([str(7 + i)] * 40),
                                     "--max-tokens", "30", "--ignore-eos") for i in range(8)]
            self.assertEqual([s.wait() for s in streams], [0] * 8,
                             [s.errors for s in streams])
            cluster.assert_idle()

    def test_two_routers_share_the_workers(self):
        with self.cluster("--routers", "2") as cluster:
            targets = [r["listen"] for r in cluster.info["routers"]]
            self.assertEqual(len(set(targets)), 2)
            answers = [cluster.generate("--prompt", "the time", "--max-tokens", "12",
                                        target=target)["token_ids"] for target in targets]
            self.assertEqual(answers[0], answers[1])
            self.assertEqual(cluster.metrics("decode")["baton_worker_router_sessions"], 2)

    def test_unified_gives_the_same_tokens(self):
        lengths = [16 * k + d for k in range(1, 4) for d in (-1, 0, 1)]
        flags = [("--prompt-tokens", ",".join(str(5 + (i * 7) % 200) for i in range(n)),
                  "--max-tokens", "20", "--seed", "9", "--temperature", t)
                 for n in lengths for t in ("0", "1.3")]
        with self.cluster() as cluster:
            split = [cluster.generate(*f)["token_ids"] for f in flags]
            self.assertGreater(cluster.metrics("prefill")["baton_handoff_seconds_count"], 0)
        with self.cluster("--prefill-workers", "0") as cluster:
            unified = [cluster.generate(*f)["token_ids"] for f in flags]
        self.assertEqual(split, unified)

    def test_a_decode_worker_rests_for_prompts_that_are_computed_on_its_cores(self):
        cores = str(len(os.sched_getaffinity(0)))  # for each of both
        answer = ("--json", "--prompt", "the time of the", "--max-tokens", "400", "--ignore-eos")
        with Cluster(tiny_model(self.directory, **SLOW_MODEL), "--threads", cores, *SLOW_FLAGS) as cluster:
            alone = cluster.generate(*answer[1:])["token_ids"]

            def rested():
                return cluster.metrics("decode")["baton_step_rest_seconds_total"]

            self.assertEqual(rested(), 0)
            stream = cluster.start(*answer)
            wait_for(lambda: cluster.metrics("decode")["baton_requests_running"] == 1, what="the stream")
            prompt = cluster.start(*LONG_PROMPT)
            wait_for(lambda: rested() > 0, what="a rest")
            prompt.kill()
            self.assertEqual(stream.wait(), 0)
            self.assertEqual(json.loads(stream.output)["token_ids"], alone)

    def test_a_model_file_that_cannot_be_served_stops_up_with_one_line(self):
        text = os.path.join(self.directory, "not.gguf")
        with open(text, "w", encoding="utf-8") as file:
            file.write("not a model")
        with open(tiny_model(self.directory), "rb") as file:
            model = file.read()
        llama = b"\x05" + bytes(7) + b"llama"
        self.assertIn(llama, model)
        other = os.path.join(self.directory, "other.gguf")
        with open(other, "wb") as file:
            file.write(model.replace(llama, llama[:8] + b"bloom", 1))
        for path, word in ((text, b"not.gguf"), ("/does/not/exist.gguf", b"exist.gguf"),
                           (other, b"'bloom'")):
            done = subprocess.run([*Cluster(path).command], capture_output=True, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_up_stops_everything_it_started(self):
        with self.cluster() as cluster:
            pids = [entry["pid"] for entry in cluster.info["workers"] + cluster.info["routers"]]
            ready_file = cluster.ready_file
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertFalse(os.path.exists(ready_file))

    def test_every_metric_of_the_contract_moves(self):
        with self.cluster(*SLOW_FLAGS, **SLOW_MODEL) as cluster:
            before = {role: cluster.metrics(role) for role in ("router", "prefill", "decode")}
            # A transfer lasts as long as its prompt: long enough to be seen.
            stream = cluster.start(*LONG_ANSWER[:-2], "--prompt-tokens", ",".join(["7"] * 560))
            seen = set()

            def all_gauges_seen():
                for role in ("router", "prefill", "decode"):
                    for name, value in cluster.metrics(role).items():
                        if value != before[role].get(name, 0):
                            seen.add((role, name.split("{")[0]))
                return {("router", "baton_requests_running"), ("prefill", "baton_kv_blocks"),
                        ("decode", "baton_kv_blocks"), ("router", "baton_router_inflight"),
                        ("decode", "baton_requests_running"),
                        ("prefill", "baton_transfers_in_flight")} <= seen

            wait_for(all_gauges_seen, what=f"gauges, seen {seen}")
            stream.kill()
            cluster.generate("--prompt", "a b", "--max-tokens", "4")
            counters = {("router", "baton_time_to_first_token_seconds_count"),
                        ("router", "baton_inter_token_latency_seconds_count"),
                        ("router", "baton_prompt_tokens_total"), ("router", "baton_generation_tokens_total"),
                        ("prefill", "baton_prompt_tokens_total"), ("decode", "baton_generation_tokens_total"),
                        ("prefill", "baton_handoff_seconds_count"), ("prefill", "baton_handoff_bytes_total")}
            wait_for(lambda: all_gauges_seen() and counters <= seen, what=f"all of {counters}")


if __name__ == "__main__":
    main()
