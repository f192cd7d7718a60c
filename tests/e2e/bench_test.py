#!/usr/bin/env python3
"""baton bench against a real cluster: what it sends is exact, what it says adds up."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from cluster import Cluster, main, tiny_model, wait_for

LATENCIES = ("ttft_s", "itl_s", "e2e_s", "send_delay_s")


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        cls.cluster = Cluster(tiny_model(cls.directory), "--threads", "1", "--kv-blocks",
                              "4096").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)
        shutil.rmtree(cls.directory)

    def command(self, *flags):
        return [os.path.join(self.cluster.bin, "baton"), "bench", "--target", self.cluster.target,
                *flags]

    def run_bench(self, *flags):
        return subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=120,
                              check=False)

    def report(self, *flags, code=0):
        done = self.run_bench("--json", *flags)
        self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
        self.assertEqual(done.stdout.count("\n"), 1)
        report = json.loads(done.stdout)
        for name in LATENCIES:
            with self.subTest(latency=name):
                values = report[name]
                self.assertEqual(sum(b["count"] for b in values["histogram"]), values["count"])
                self.assertTrue(values["p50"] <= values["p90"] <= values["p99"] <= values["max"])
        return report

    def trace(self, text):
        path = os.path.join(self.directory, "trace")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_a_closed_loop_of_64_streams_sends_and_gets_exactly_what_it_says(self):
        before = self.cluster.metrics("router")
        report = self.report("--concurrency", "64", "--requests", "200", "--prompt-tokens",
                             "10..60", "--output-tokens", "12", "--seed", "5")
        after = self.cluster.metrics("router")
        self.assertEqual(report["requests"], {"planned": 200, "ended": 200, "ok": 200, "failed": 0})
        self.assertEqual(report["output_tokens"], 200 * 12)
        self.assertEqual(report["itl_s"]["count"], 200 * 11)
        for field, name in (("prompt_tokens", "baton_prompt_tokens_total"),
                            ("output_tokens", "baton_generation_tokens_total")):
            self.assertEqual(report[field], after[name] - before.get(name, 0))
        self.assertTrue(200 * 10 < report["prompt_tokens"] < 200 * 60)
        again = self.report("--concurrency", "8", "--requests", "200", "--prompt-tokens", "10..60",
                            "--output-tokens", "1", "--seed", "5")
        self.assertEqual(again["prompt_tokens"], report["prompt_tokens"])

    def test_goodput_counts_what_is_within_the_limits(self):
        flags = ("--concurrency", "4", "--requests", "20", "--prompt-tokens", "10",
                 "--output-tokens", "4")
        easy = self.report(*flags, "--ttft-limit", "60s", "--itl-limit", "60000")["goodput"]
        self.assertEqual((easy["requests"], easy["share"]), (20, 1))
        hard = self.report(*flags, "--ttft-limit", "0.001ms")["goodput"]
        self.assertEqual((hard["requests"], hard["ttft_limit_s"], hard["itl_limit_s"]),
                         (0, 1e-6, None))

    def test_an_open_loop_keeps_its_rate(self):
        report = self.report("--rate", "40", "--requests", "80", "--prompt-tokens", "10",
                             "--output-tokens", "3")
        self.assertEqual(report["settings"]["mode"], "poisson")
        # 80 exponential gaps of 25 ms on a machine that may be busy.
        self.assertGreater(report["elapsed_s"], 1)

    def test_a_trace_is_replayed_with_its_times_and_lengths(self):
        csv = self.trace("arrival_us,input_tokens,output_tokens\n"
                         "0,20,3\n4000000,600,5\n8000000,30,0\n8000000,30,2\n")
        report = self.report("--trace", csv, "--speed", "4")
        self.assertGreaterEqual(report["elapsed_s"], 2)
        self.assertEqual(report["settings"]["trace_rows_skipped"], 1)
        self.assertEqual(report["settings"]["lengths_cut"], 1)  # to the context of 512
        self.assertEqual(report["prompt_tokens"], 20 + 511 + 30)
        self.assertEqual(report["output_tokens"], 3 + 1 + 2)
        lines = self.trace('{"timestamp":0,"input_length":5,"output_length":6,"hash_ids":[]}\n'
                           '{"timestamp":100,"input_length":7,"output_length":8}\n')
        report = self.report("--trace", lines, "--max-output-tokens", "7")
        self.assertEqual((report["prompt_tokens"], report["output_tokens"]), (12, 13))

    def test_text_has_percentiles_and_histograms_and_progress_when_asked(self):
        done = self.run_bench("--rate", "10", "--requests", "20", "--prompt-tokens", "10",
                              "--output-tokens", "3", "--progress")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("20 of 20 requests", "p50", "p99", "time to first token", "#"):
            self.assertIn(word, done.stdout)
        self.assertIn(" of 20 ended, ", done.stderr)

    def test_errors_are_counted_by_code(self):
        report = self.report("--concurrency", "2", "--requests", "5", "--prompt-tokens", "400",
                             "--output-tokens", "100", "--timeout-ms", "1", code=1)
        # Too late, or known to come too late: then it is refused at once.
        self.assertLessEqual(set(report["errors"]), {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
        self.assertEqual(sum(report["errors"].values()), 5)
        self.assertEqual(report["requests"]["failed"], 5)
        self.cluster.assert_idle()

    def test_what_cannot_start_is_one_line(self):
        done = self.run_bench("--concurrency", "1", "--requests", "1", "--prompt-tokens", "1",
                              "--output-tokens", "1", "--target", "127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: UNAVAILABLE", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        done = self.run_bench("--concurrency", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("error: --concurrency is 0; must be from 1 to 10000", done.stderr)
        done = self.run_bench("--concurrency", "1", "--requests", "1", "--prompt-tokens", "1",
                              "--output-tokens", "1", "--model", "gpt-9")
        self.assertIn("error: --model is gpt-9; not served", done.stderr)

    def test_an_interrupt_cancels_what_runs_and_still_reports(self):
        running = subprocess.Popen(
            self.command("--json", "--rate", "5", "--requests", "100000", "--prompt-tokens", "10",
                         "--output-tokens", "3"), stdout=subprocess.PIPE)
        served = self.cluster.metrics("router").get("baton_time_to_first_token_seconds_count", 0)
        wait_for(lambda: self.cluster.metrics("router").get(
            "baton_time_to_first_token_seconds_count", 0) > served, what="a request")
        running.send_signal(signal.SIGINT)
        report = json.loads(running.communicate(timeout=60)[0])
        self.assertEqual(running.returncode, 130)
        self.assertTrue(report["interrupted"])
        self.assertGreater(report["requests"]["ended"], 0)
        self.assertEqual(report["requests"]["planned"], 100000)
        self.cluster.assert_idle()


if __name__ == "__main__":
    main()
