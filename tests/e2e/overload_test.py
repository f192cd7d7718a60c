#!/usr/bin/env python3
"""More than a cluster can serve: what is refused is refused at once, what is accepted is served in time, tenants
share equally, and afterwards everything is as before. Argument: seconds of overload (default 20)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from cluster import RUNFILES, Cluster, main, tiny_model

SECONDS = 20.0
TARGET_S = 3.0
OVERLOAD = 5
REQUEST = ("--prompt_tokens", "256", "--max_tokens", "16")
RESOURCE_EXHAUSTED = 8


def start_load(cluster, *flags):
    command = [os.path.join(RUNFILES, "tests/load/load_client"), "--target", cluster.target,
               *REQUEST, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answers_of(process):
    output = process.communicate()[0]
    if process.returncode != 0:
        raise AssertionError(f"load_client ended with {process.returncode}")
    return [json.loads(line) for line in output.splitlines()]


def load(cluster, *flags):
    return answers_of(start_load(cluster, *flags))


def percentile(values, percent):
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def capacity(cluster):
    """Requests per second, after a start. Three at once keep the prefill worker busy and are far from the target."""
    load(cluster, "--concurrency", "3", "--seconds", "1")
    answers = load(cluster, "--concurrency", "3", "--seconds", "4")
    assert all(a["code"] == 0 for a in answers), answers
    return len(answers) / max(a["sent"] + a["total"] for a in answers)


class Overload(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="baton-overload-")
        self.model = tiny_model(self.directory, layers=32, context=4096)

    def tearDown(self):
        shutil.rmtree(self.directory)

    def cluster(self, *flags):
        return Cluster(self.model, "--threads", "1", "--backend", "reference",
                       "--prompt-window", "4", *flags)

    def test_five_times_too_much(self):
        with self.cluster("--ttft-target-ms", str(int(TARGET_S * 1000))) as cluster:
            rate = capacity(cluster)
            quiet = percentile([a["ttft"] for a in load(cluster, "--seconds", "3")], 50)
            answers = load(cluster, "--rate", str(OVERLOAD * rate), "--seconds", str(SECONDS))
            ended = time.monotonic()
            served = [a for a in answers if a["code"] == 0]
            refused = [a for a in answers if a["code"] == RESOURCE_EXHAUSTED]
            refusal = [a["total"] for a in refused]
            print(f"capacity {rate:.1f}/s, {len(answers)} sent, {len(served)} served, "
                  f"{len(refused)} refused in {percentile(refusal, 50) * 1e3:.1f} ms "
                  f"(p99 {percentile(refusal, 99) * 1e3:.1f}), time to first token "
                  f"{percentile([a['ttft'] for a in served], 50):.2f} s "
                  f"(p99 {percentile([a['ttft'] for a in served], 99):.2f}), quiet {quiet:.2f} s")
            self.assertEqual(len(served) + len(refused), len(answers))
            self.assertGreater(len(refused), len(answers) / 4)
            self.assertLess(percentile(refusal, 50), 0.05)
            self.assertLess(percentile(refusal, 99), 0.1)
            self.assertLessEqual(percentile([a["ttft"] for a in served], 99), 2 * TARGET_S)
            self.assertTrue(all(a["retry"] >= 0.1 for a in refused))
            self.assertTrue({a["reason"] for a in refused} <= {"QUEUE_FULL", "PREDICTED_TOO_LATE"})
            # load_client waits for its last answer, so the queue has drained.
            time.sleep(max(0, 5 - (time.monotonic() - ended)))
            after = load(cluster, "--seconds", "3")
            self.assertTrue(all(a["code"] == 0 for a in after))
            self.assertLessEqual(percentile([a["ttft"] for a in after], 50), 2 * quiet + 0.1)
            cluster.assert_idle()

    def test_two_tenants_one_sending_ten_times_as_much(self):
        with self.cluster() as cluster:
            rate = capacity(cluster)
            flags = ("--timeout_ms", str(int(SECONDS * 1000 + 15000)))
            many = start_load(cluster, "--tenant", "many", "--rate", str(10 * rate),
                              "--seconds", str(SECONDS), *flags)
            few = start_load(cluster, "--tenant", "few", "--rate", str(rate),
                             "--seconds", str(SECONDS), *flags)
            # While both wait: after the first prompts, before new ones stop.
            tokens = {}
            for process in (many, few):
                for a in answers_of(process):
                    if a["code"] == 0 and 1 < a["sent"] + a["ttft"] < SECONDS:
                        tokens[a["tenant"]] = tokens.get(a["tenant"], 0) + 256 + 2 * a["tokens"]
            print(f"capacity {rate:.1f}/s, served {tokens}")
            self.assertAlmostEqual(tokens["few"] / tokens["many"], 1, delta=0.1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        SECONDS = float(sys.argv.pop())
    main()
