#!/usr/bin/env python3
"""Who is served when there is more than can be served: tenants equally, a high priority first, everybody in the end; and
one client that does not read costs the others nothing."""
import api  # first: it may start the program again under another interpreter
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from cluster import RUNFILES, Cluster, main, tiny_model, wait_for

PROMPT_TOKENS = 48
MAX_TOKENS = 2
LOAD_S = 6.0
LONG_S = 60.0  # longer than anything takes here
# A step of priority counts as so much waiting, short enough that a test sees what is overtaken come through.
AGE_CREDIT_MS = 100


class Load:
    """load_client as it runs: so many requests at once for some seconds."""

    def __init__(self, cluster, concurrency, seconds=LOAD_S, **flags):
        flags = {"target": cluster.target, "concurrency": concurrency, "seconds": seconds,
                 "prompt_tokens": PROMPT_TOKENS, "max_tokens": MAX_TOKENS, **flags}
        self.process = subprocess.Popen(
            [os.path.join(RUNFILES, "tests/load/load_client"), *(f"--{name}={value}" for name, value in flags.items())],
            stdout=subprocess.PIPE, text=True)

    def stop(self):
        self.process.terminate()
        self.process.communicate()

    def answers(self):
        output = self.process.communicate()[0]
        if self.process.returncode != 0:
            raise AssertionError(f"load_client ended with {self.process.returncode}")
        return [json.loads(line) for line in output.splitlines()]


class Fairness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        cls.model = tiny_model(cls.directory, layers=16, context=4096)
        cls.cluster = cls.slow_cluster("--age-credit-ms", str(AGE_CREDIT_MS)).__enter__()
        cls.client = api.Client(cls.cluster.target)

    @classmethod
    def slow_cluster(cls, *flags):
        """One prompt at a time at the worker: everybody else waits at the router."""
        return Cluster(cls.model, "--threads", "1", "--backend", "reference", "--prompt-window", "1", *flags)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.__exit__(None, None, None)
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.addCleanup(self.cluster.assert_idle)  # runs last

    def wait_for_queue(self, requests):
        wait_for(lambda: self.cluster.metrics("router").get("baton_requests_waiting", 0) >= requests, what="a queue")

    def request(self, **fields):
        return api.generation([7] * PROMPT_TOKENS, max_tokens=MAX_TOKENS, ignore_eos=True, **fields)

    def time_to_serve(self, **fields):
        sent = time.monotonic()
        self.client.generate(self.request(**fields))
        return time.monotonic() - sent

    def test_two_tenants_one_with_ten_times_as_many_requests_get_equal_service(self):
        # Long enough for many on a slow machine.
        seconds = max(LOAD_S, 60 * min(self.time_to_serve() for _ in range(5)))
        many = Load(self.cluster, 40, seconds, tenant="many")
        few = Load(self.cluster, 4, seconds, tenant="few")
        served = {}
        for load in (many, few):
            for answer in load.answers():
                self.assertEqual(answer["code"], 0)
                # While both wait.
                if 1 < answer["sent"] + answer["ttft"] < seconds - 0.5:
                    served[answer["tenant"]] = served.get(answer["tenant"], 0) + 1
        print(served, flush=True)
        self.assertGreater(min(served.values()), 10)
        # And the one that is being served when the time ends.
        self.assertLessEqual(abs(served["few"] - served["many"]), 0.1 * served["many"] + 1)

    def test_a_high_priority_overtakes_those_of_its_tenant(self):
        # However slow the machine, nobody has waited for so long that a step of priority is less.
        self.cluster = self.enterContext(self.slow_cluster("--age-credit-ms", str(int(1000 * LONG_S))))
        self.client = self.enterContext(api.Client(self.cluster.target))
        self.client.generate(self.request())  # the first one finds cold workers, and all would wait for it
        load = Load(self.cluster, 40, seconds=LONG_S)
        self.addCleanup(load.stop)
        self.wait_for_queue(30)
        high = self.time_to_serve(priority=4)
        normal = self.time_to_serve()
        print(f"high {high:.2f} s, normal {normal:.2f} s", flush=True)
        self.assertLess(high, normal / 2)

    def test_the_lowest_priority_is_served_while_higher_ones_keep_coming(self):
        load = Load(self.cluster, 40, seconds=LONG_S, priority=4)
        self.addCleanup(load.stop)
        self.wait_for_queue(30)
        low = self.time_to_serve(priority=-4)
        print(f"low {low:.2f} s", flush=True)
        self.assertIsNone(load.process.poll())
        # It was overtaken by what came within 8 steps of priority.
        self.assertGreater(low, 8 * AGE_CREDIT_MS / 1000)


class SlowReader(unittest.TestCase):
    TIMEOUT_S = 2

    def test_a_client_that_does_not_read_holds_back_nobody(self):
        directory = tempfile.mkdtemp(prefix="baton-e2e-")
        self.addCleanup(shutil.rmtree, directory)
        # More than gRPC holds for a client, less than the router does.
        unread = api.generation([7] * 8, max_tokens=450, ignore_eos=True, logprobs=20)
        little_window = {"grpc.http2.lookahead_bytes": 1024, "grpc.http2.bdp_probe": 0}
        with Cluster(tiny_model(directory), "--threads", "1", "--slow-client-timeout-ms",
                     str(self.TIMEOUT_S * 1000)) as cluster, \
                api.Client(cluster.target) as client, api.Client(cluster.target, **little_window) as lazy:
            def took():
                began = time.monotonic()
                answers = api.in_threads(8, lambda i: client.stream(api.generation(
                    [i] * 8, max_tokens=200, ignore_eos=True)).read().ids[0])
                self.assertEqual({len(ids) for ids in answers}, {200})
                return time.monotonic() - began

            alone = min(took() for _ in range(3))
            with lazy.stream(unread) as stuck:
                stuck.read_tokens(1)
                # Until all of it waits at the router, and for longer than that lets it.
                beside, until = [], None
                while until is None or time.monotonic() < until:
                    beside.append(took())
                    if until is None and cluster.metrics("router")["baton_requests_running"] == 0:
                        until = time.monotonic() + 2 * self.TIMEOUT_S
                print(f"8 streams took {alone:.2f} s, beside one that is not read {min(beside):.2f} s", flush=True)
                self.assertLess(min(beside), 3 * alone)
                # All that time it held something back: itself.
                with self.assertRaises(api.Failure) as caught:
                    stuck.read()
                self.assertEqual((caught.exception.code, caught.exception.reason), ("RESOURCE_EXHAUSTED", "SLOW_CLIENT"))
            cluster.assert_idle()


if __name__ == "__main__":
    main()
