#!/usr/bin/env python3
"""Many requests and the router: counts, ids, health, readiness."""
import json
import os
import random
import subprocess
import sys
import time

from fault_cluster import HERE, FaultCluster, FaultTest, api, limit, rounds, wait_for
from cluster import main


def asked(prompt_tokens=20, max_tokens=8, salt=0, **fields):
    ids = [3 + (31 * i + 7 * salt) % 200 for i in range(prompt_tokens)]
    return api.generation(ids, max_tokens=max_tokens, ignore_eos=True, **fields)


class Requests(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = FaultCluster().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def tearDown(self):
        self.quiet(5)
        self.alive()

    def test_all_gauges_fall_back_after_all_was_aborted_ops07(self):
        streams = [self.cluster.direct.stream(asked(100, 300, salt=i)) for i in range(rounds(40, 200))]
        for stream in streams[::2]:
            stream.read_tokens(1)
        for stream in streams:
            stream.cancel()
        self.quiet(5)

    def test_two_live_requests_may_carry_one_id_and_each_gets_its_own_answer_ops09(self):
        first, second = asked(60, 60, salt=1, request_id="same"), asked(60, 60, salt=2, request_id="same")
        self.assertNotEqual(self.cluster.gold(first), self.cluster.gold(second))
        for _ in range(rounds(5, 100)):
            streams = [self.cluster.direct.stream(request) for request in (first, second)]
            for stream, request in zip(streams, (first, second)):
                self.assertEqual(self.gold_or((), stream, request), "OK")
                self.assertEqual(stream.started.request_id, "same")
            with self.cluster.direct.stream(first) as stream:
                stream.read_tokens(1)  # the blocks are on their way to the decode worker, or held for it
            self.is_gold(second)
            self.is_gold(first)

    def test_ids_of_any_kind_work_or_are_refused_and_workers_name_one_transfer_pd18(self):
        for identity in ("", "x" * 128, "a b/c:~", "again", "again"):
            self.is_gold(asked(50, request_id=identity))
        for identity in ("x" * 129, "x" * (64 << 10), "tab\there", "nul\0", "\x7f", "grün"):
            began = time.monotonic()
            failure = self.fails(("INVALID_ARGUMENT",),
                                 lambda i=identity: self.cluster.direct.generate(asked(50, request_id=i)))
            self.assertLess(time.monotonic() - began, limit(1))
            self.assertEqual(failure.fields[0][0], "generation.request_id")
        # What both workers call it is the router's own attempt id, never the client's.
        def names():
            return [{line.split('"request":"')[1].split('"')[0] for line in self.cluster.workers[worker].log().splitlines()
                     if '"request":"' in line and '"attempt over"' in line} for worker in ("prefill-0", "decode-0")]
        wait_for(lambda: len(set.intersection(*names())) >= 5, what="what both workers say")
        self.assertFalse(any("again" in name for name in set.union(*names())))


class Loads(FaultTest):
    def test_cancelled_requests_leave_no_load_behind_and_a_restarted_worker_gets_its_share_only_ops03(self):
        # Steps long enough that the workers' measured speeds, by which requests are placed, are not mere noise.
        cluster = self.started(prefill=2, decode=2, model={"layers": 16}, flags=("--backend", "reference"))
        chance = random.Random(3)
        for index in range(rounds(120, 1000)):
            with cluster.direct.stream(asked(100, 60, salt=index)) as stream:
                stage = chance.randrange(4)  # 0: perhaps before the router has seen it
                if stage == 1:
                    time.sleep(chance.uniform(0, 0.02))
                elif stage > 1:
                    stream.read_tokens(stage)
        self.quiet(5)
        cluster.restart("decode-0")
        wait_for(lambda: self.serves_on_both(cluster), what="both decode workers are used")
        used = {"decode-0": 0, "decode-1": 0}
        count = rounds(60, 200)
        for wave in range(count // 10):
            for answer in api.in_threads(10, lambda i, w=wave: cluster.direct.generate(asked(50, 30, salt=10 * w + i))):
                used[answer.workers.decode] += 1
        # Requests go by measured speed, which is even only on a machine that does nothing else.
        least = count / 2 * rounds(0.1, 0.8)
        self.assertGreaterEqual(min(used.values()), least, used)
        self.quiet(5)
        self.alive()

    @staticmethod
    def serves_on_both(cluster):
        answers = api.in_threads(4, lambda i: cluster.direct.generate(asked(30, 30, salt=i)))
        return {answer.workers.decode for answer in answers} == {"decode-0", "decode-1"}


class Health(FaultTest):
    def test_health_answers_and_streams_run_beside_an_oversized_prompt_ops04(self):
        cluster = self.started(model={"layers": 16, "context": 4096}, flags=("--backend", "reference"))
        streams = [cluster.direct.stream(asked(20, 3000, salt=i)) for i in range(4)]
        for stream in streams:
            stream.read_tokens(2)
        health = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "poll_health.py"), cluster.routers["router-0"].info["listen"]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        health.stdout.readline()
        with api.Client(cluster.routers["router-0"].info["listen"]) as client:
            for megabytes, code in ((15, "INVALID_ARGUMENT"), (20, "RESOURCE_EXHAUSTED")):
                began = time.monotonic()
                with self.assertRaises(api.Failure) as caught:
                    client.generate(api.generation("word " * (megabytes * 200_000), max_tokens=2))
                self.assertEqual(caught.exception.code, code, caught.exception)
                self.assertLess(time.monotonic() - began, limit(10))
            # The longest text that is still tokenized: context x the longest token.
            self.fails(("INVALID_ARGUMENT",), lambda: client.generate(api.generation("word " * 4096, max_tokens=2)))
        answers = sorted(json.loads(health.communicate()[0]))
        self.assertGreater(len(answers), 10)
        # Where other tests run beside this one, only that nothing stands still meanwhile.
        self.assertLess(answers[int(len(answers) * 0.99)], rounds(2, 0.1))
        for stream in streams:
            count = len(stream.ids[0])
            stream.read_tokens(count + 3)
            stream.cancel()
        self.quiet(5)
        self.alive()

    def test_whoever_is_told_serving_is_served_and_before_that_nobody_is_routed_there_ops05(self):
        """The worker loads a model of many layers each time; live and ready are different answers."""
        cluster = self.started(prefill=0, model={"layers": 300})
        worker, router = cluster.workers["decode-0"], cluster.routers["router-0"]
        listen = worker.info["listen"]
        worker.keep_addresses()
        for _ in range(rounds(3, 20)):
            worker.kill()
            wait_for(lambda: cluster.direct.health() == "NOT_SERVING", what="the router is alive and not ready")
            self.assertEqual(self.health_or_nothing(listen), "")
            self.fails(("UNAVAILABLE",), lambda: cluster.direct.generate(asked()))
            worker.start()
            wait_for(lambda: cluster.direct.health() == "SERVING", what="the router is ready")
            cluster.direct.generate(asked())
            self.assertEqual(self.health_or_nothing(listen), "SERVING")
            self.assertIsNone(router.process.poll())
        worker.wait_until_ready()
        cluster.pids["decode-0"] = worker.pid
        wait_for(lambda: cluster.gold_client.health() == "SERVING", what="the other router has it again")
        self.quiet(5)
        self.alive()

    @staticmethod
    def health_or_nothing(address):
        with api.Client(address) as client:
            try:
                return client.health()
            except api.Failure:
                return ""


if __name__ == "__main__":
    main()
