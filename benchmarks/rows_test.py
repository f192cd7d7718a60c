#!/usr/bin/env python3
"""What peers print, which rows there are, and what a row says when something is missing. Runs no peer."""
import json
import math
import os
import unittest
from unittest import mock

import claims
import conversations
import exact_rows
import front_end
import llama_cpp
import models
import processes
import serving_rows
import speed
import step_bench
import step_rows

BENCH = '[{"build_commit": "1", "n_prompt": 512, "n_gen": 0, "avg_ts": 199.5, "samples_ts": [199.5]}]'
BATCHED = ('some text\n{"n_kv_max": 1536, "pp": 64, "tg": 32, "pl": 16, "speed_pp": 300.0, "speed_tg": 143.25, '
           '"speed": 170.0}\n')
CEILINGS = {"maddubs_all_threads": 100.0, "memory_read_all_threads": 20.0}


class FakeBench:
    """Every step takes 10 ms."""

    def run(self, request):
        steps = request["sequences"][0].get("max_tokens", 1)
        return {"steps": [[0.01 * (i + 1), 1] for i in range(steps)], "sequences": [[0.01, 0.01 * steps]],
                "macs": {"Q4_1": 500_000_000}, "bytes": 160_000_000}


class FakeLlama(llama_cpp.LlamaCpp):
    RATES = {"on": 300.0, "off": 400.0}

    def __init__(self):
        super().__init__("/peer", 2)
        self.asked = []

    def _rate(self, model, workload, setting):
        self.asked.append(setting)
        return self.RATES[setting[1]]


class FakeRun:
    rounds, ceilings, openvino, threads, backend = 3, CEILINGS, None, 2, "cpu"

    def __init__(self, llama=None):
        self.llama = llama

    def model(self, name):
        return f"/models/{name}"

    def step_bench(self, _name):
        return FakeBench()

    def close(self):
        pass


class Output(unittest.TestCase):
    def test_llama_bench(self):
        self.assertEqual(llama_cpp.parse_bench(BENCH), 199.5)
        for wrong in ("[]", "", BENCH[:-1] + ", {}]"):
            with self.assertRaises(ValueError):
                llama_cpp.parse_bench(wrong)

    def test_llama_batched_bench(self):
        self.assertEqual(llama_cpp.parse_batched_bench(BATCHED), 143.25)
        for wrong in ("", BATCHED + BATCHED):
            with self.assertRaises(ValueError):
                llama_cpp.parse_batched_bench(wrong)

    def test_openvino(self):
        text = json.dumps({"rows": [{"streams": 1, "prefill_tok_s": 1, "decode_tok_s": 2, "whole_tok_s": 9},
                                    {"streams": 16, "prefill_tok_s": 8, "decode_tok_s": 3, "whole_tok_s": 9}]})
        self.assertEqual(serving_rows.parse_openvino(text),
                         {"openvino_prefill": 1, "openvino_decode": 2, "openvino_batch16": 3})


    def test_llama_cpp_says_what_it_was_built_for(self):
        text = ("build: 1\n0.00.1 I system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 0 | "
                "OPENMP = 1 | \nmore")
        self.assertEqual(llama_cpp.parse_instructions(text), ["SSE3", "AVX2", "OPENMP"])
        self.assertIsNone(llama_cpp.parse_instructions("no such line"))


class FrontEnd(unittest.TestCase):
    def test_threads_that_run_steps_are_no_front_end(self):
        before = {"cpu-pool": 5.0, "model-runner": 5.0, "core": 1.0}
        after = {"cpu-pool": 9.0, "model-runner": 9.0, "core": 1.25, "grpc": 0.25}
        self.assertAlmostEqual(front_end.share(before, after, step_seconds=5, cores=2), 0.05)

    def test_a_process_lists_its_threads(self):
        self.assertGreater(sum(processes.thread_seconds(os.getpid()).values()), 0)


class Peer(unittest.TestCase):
    def test_both_sides_have_the_same_threads_and_kv_type(self):
        for workload in (llama_cpp.Prefill(512), llama_cpp.Decode(0, 128), llama_cpp.Batch(16, 64, 32)):
            command = " ".join(workload.command("m", 2))
            self.assertIn("-t 2", command)
            self.assertIn("-ctk f16 -ctv f16", command)

    def test_settings_are_tried_once_and_the_best_is_kept(self):
        llama = FakeLlama()
        self.assertEqual(llama.rate("m", llama_cpp.Decode(0, 128)), 400)
        self.assertEqual(llama.rate("m", llama_cpp.Decode(0, 128)), 400)
        self.assertEqual(llama.asked, [("-fa", "on"), ("-fa", "off"), ("-fa", "off"), ("-fa", "off")])
        self.assertTrue(llama.described("m", llama_cpp.Decode(0, 128)).endswith("-fa off"))
        llama.rate("m", llama_cpp.Decode(512, 128))
        self.assertEqual(len(llama.asked), 7)


class Exactness(unittest.TestCase):
    TOP = [[7, 2.0], [9, 1.0]]
    LOGSUMEXP = 2.5

    def test_equal_distributions_diverge_by_nothing(self):
        same = {token: logit - self.LOGSUMEXP for token, logit in self.TOP}
        self.assertAlmostEqual(exact_rows.nine_outcome_kl(self.TOP, self.LOGSUMEXP, same), 0)

    def test_the_unlisted_tokens_are_one_outcome(self):
        p = [math.exp(-0.5), math.exp(-1.5)]
        q = [0.5, 0.25]
        expected = sum(a * math.log(a / b) for a, b in zip([*p, 1 - sum(p)], [*q, 0.25]))
        measured = exact_rows.nine_outcome_kl(self.TOP, self.LOGSUMEXP, {7: math.log(0.5), 9: math.log(0.25)})
        self.assertAlmostEqual(measured, expected)

    def test_all_tiers_that_run_must_be_equal(self):
        tier = {"tier": "avx2", "rows": 104, "equal": True}
        self.assertTrue(exact_rows.tier_row([tier, tier])["pass"])
        self.assertFalse(exact_rows.tier_row([tier, tier | {"equal": False}])["pass"])
        self.assertFalse(exact_rows.tier_row([])["pass"])

    def test_perplexity_passes_by_either_rule(self):
        self.assertTrue(exact_rows.perplexity_row([0.0009, 0.0005], [0.0001])["pass"])  # as good as the reference
        self.assertTrue(exact_rows.perplexity_row([0.003], [0.004])["pass"])
        self.assertFalse(exact_rows.perplexity_row([0.0005, 0.003], [0.002])["pass"])
        self.assertFalse(exact_rows.perplexity_row([0.0], [])["pass"])  # no peer

    def test_the_server_is_asked_for_more_until_all_are_named(self):
        class Server:
            vocabulary = 49152

            def next_logprobs(self, _prefix, count):
                return dict.fromkeys(range(count), -1.0)

        self.assertEqual(len(exact_rows.log_probability(Server(), [], [3])), exact_rows.LISTED)
        self.assertEqual(len(exact_rows.log_probability(Server(), [], [3, 30000])), 49152)


class Claims(unittest.TestCase):
    def test_both_sides_get_the_same_requests(self):
        self.assertEqual(claims.requests(3, 2.0), claims.requests(3, 2.0))
        self.assertNotEqual(claims.requests(3), claims.requests(4))
        arrivals = [one["arrival"] for one in claims.requests(1, 2.0)]
        self.assertEqual(arrivals, sorted(arrivals))
        self.assertTrue(0.2 < arrivals[-1] / len(arrivals) < 1)

    def test_latency_counts_from_the_arrival(self):
        request = {"sequences": [{"max_tokens": 3, "arrival": 1.0}, {"max_tokens": 5, "arrival": 2.0}]}
        answer = {"sequences": [[1.5, 2.0], [2.5, 5.0]], "steps": [[1.5, 1], [5.0, 7]]}
        self.assertEqual(claims.latency(request, answer, 1), 2.0)
        self.assertEqual(claims.latency(request, answer, 0), 0.5)
        self.assertEqual(claims.throughput(request, answer), 1.6)


class FakeCluster:
    """The answer to a prompt is its length, `change` more; a first token takes what `seconds_per_token` says."""

    def __init__(self, seconds_per_token, bytes_per_request, change=0):
        self.seconds_per_token, self.bytes_per_request, self.change = seconds_per_token, bytes_per_request, change
        self.prompts = []

    def generate(self, prompt, *flags):
        self.prompts.append(prompt)
        return {"token_ids": [len(prompt) + self.change] * int(flags[1]),
                "timings": {"time_to_first_token": self.seconds_per_token * len(prompt)}}

    def metric_sum(self, _name, _servers):
        return self.bytes_per_request * len(self.prompts)


class Conversations(unittest.TestCase):
    def test_each_turn_asks_for_all_before_it_on_both_clusters(self):
        fast, slow = FakeCluster(0.001, 10), FakeCluster(0.004, 60)
        one = conversations.Round(1, 1, (fast, slow)).run()
        self.assertEqual(fast.prompts, slow.prompts)
        self.assertEqual(len(fast.prompts), 40)
        first, second = fast.prompts[0], fast.prompts[4]
        self.assertNotEqual(first, fast.prompts[1])
        self.assertEqual(second[:340], first + [300] * 40)
        self.assertEqual([len(prompt) for prompt in fast.prompts[::4]], list(range(300, 1300, 100)))
        ttft, shipped = conversations.conversation_rows("conversation", [one])
        self.assertAlmostEqual(ttft["value"], 0.8)  # turns 2 to 10 have 400 to 1,200 tokens
        self.assertAlmostEqual(ttft["ratio"], 4)
        self.assertEqual((shipped["value"], shipped["peer_value"]), (360, 2160))  # 36 requests after the first turn
        self.assertEqual((ttft["name"], ttft["pass"]), ("conversation_ttft", True))
        self.assertEqual((shipped["name"], shipped["pass"]), ("conversation_bytes_shipped", True))

    def test_a_figure_below_its_bound_does_not_pass(self):
        one = conversations.Round(1, 4, (FakeCluster(0.002, 10), FakeCluster(0.004, 20))).run()
        self.assertEqual([row["pass"] for row in conversations.conversation_rows("conversation", [one])], [False, False])

    def test_another_answer_than_without_the_cache_is_no_figure(self):
        with self.assertRaises(processes.Failed):
            conversations.Round(1, 4, (FakeCluster(0.001, 10), FakeCluster(0.004, 60, change=1))).run()

    def test_waste_is_what_taken_blocks_do_not_hold(self):
        held = {"paged": 0.97, "contiguous_whole_context": 0.2, "contiguous_as_long_as_asked": 0.4,
                "contiguous_known_length": 0.6}
        policies = [{"policy": name, "held": share, "live": 0.98} for name, share in held.items()]
        row = conversations.waste_row(policies)
        self.assertEqual((row["value"], row["pass"], row["contiguous_known_length"]), (0.97, True, 0.6))
        policies[0]["held"] = 0.5
        row = conversations.waste_row(policies)
        self.assertEqual((row["pass"], row["without_reserved_blocks"]), (False, 0.98))


class Models(unittest.TestCase):
    def test_every_format_is_made_of_the_same_numbers(self):
        with mock.patch.dict(os.environ, BATON_CACHE="/cache"):
            (f16, first), (q8_0, second) = models.commands("q8_0", "Q", "in")
            self.assertEqual(models.commands("f16", "Q", "in"), [(f16, first)])
        self.assertEqual(first, ["Q", "--allow-requantize", "in", f16 + ".part", "F16"])
        self.assertEqual(second, ["Q", "--allow-requantize", f16, q8_0 + ".part", "Q8_0"])

    def test_without_the_peer_nothing_is_made(self):
        with mock.patch.dict(os.environ, BATON_CACHE="/proc/nothing", BATON_MODEL="m"), mock.patch("os.makedirs"):
            self.assertEqual(models.path_of("q4_1", None), "m")
            with self.assertRaises(processes.Failed):
                models.path_of("q4_0", None)


class Rows(unittest.TestCase):
    ROW = step_rows.StepRow("decode", "q4_1", step_bench.Decode(1, 1, 10), llama_cpp.Decode(0, 10), 0.2,
                            bandwidth=True)

    def test_the_table_is_complete_and_names_are_unique(self):
        names = [name for row in speed.all_rows() for name in row.names]
        self.assertEqual(len(names), len(set(names)))
        table = ([f"prefill_512_{f}" for f in ("q4_1", "q4_0", "q8_0", "f16")] +
                 [f"decode_short_{f}" for f in ("q4_1", "q4_0", "q8_0", "f16")] +
                 [f"{row}_{f}" for f in ("q4_1", "q4_0")
                  for row in ("decode_1024", "batch16_short", "batch16_512", "serve16_tokens", "serve16_ttft")] +
                 ["openvino_prefill", "openvino_decode", "openvino_batch16", "split_vs_unified_16",
                  "shared_core_speed", "shared_core_p99"])
        self.assertEqual(set(table) - set(names), set())

    def test_names_choose_rows(self):
        rows, unknown = speed.chosen(["prefill_512_q4_1", "shared_core_*", "nothing"], speed.all_rows())
        self.assertEqual([row.names[0] for row in rows], ["prefill_512_q4_1", "shared_core_speed"])
        self.assertEqual(unknown, ["nothing"])

    def test_a_decode_row_counts_from_the_first_step(self):
        row, = self.ROW.run(FakeRun(FakeLlama()))
        self.assertAlmostEqual(row["value"], 100)  # 10 steps of 10 ms
        self.assertAlmostEqual(row["ratio"], 0.25)
        self.assertAlmostEqual(row["compute_share"], 0.05)
        self.assertAlmostEqual(row["bandwidth_share"], 0.08)
        self.assertEqual((row["pass"], row["passed_by"]), (True, "ratio"))

    def test_a_row_without_its_peer_says_so_and_does_not_pass(self):
        row, = self.ROW.run(FakeRun())
        self.assertAlmostEqual(row["value"], 100)
        self.assertEqual((row["pass"], row["note"]), (False, step_rows.NO_PEER))
        rows = speed.measure([serving_rows.OpenVino()], FakeRun())
        self.assertEqual([(row["pass"], row["note"]) for row in rows],
                         [(False, "no peer: --openvino was not given")] * 3)

    def test_a_folder_without_the_peers_programs_fails_its_row_alone(self):
        row, = speed.measure([self.ROW], FakeRun(llama_cpp.LlamaCpp("/no/such/folder", 2)))
        self.assertFalse(row["pass"])
        self.assertIn("/no/such/folder/llama-bench", row["note"])

    def test_a_file_that_cannot_be_loaded_fails_its_row_alone(self):
        run = FakeRun(FakeLlama())
        with mock.patch.object(run, "step_bench", side_effect=processes.Failed("no Q4_0")):
            self.assertEqual(speed.measure([self.ROW], run),
                             [{"name": "decode", "note": "no Q4_0", "bound": 0.2, "pass": False}])


if __name__ == "__main__":
    unittest.main()
