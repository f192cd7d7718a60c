#!/usr/bin/env python3
"""A process that stands still (stopped, or with its whole machine) hears nothing, and blames nobody for it afterwards:
what its peers sent meanwhile waits in its own sockets."""
import random
import signal
import time

from fault_cluster import FaultTest, api, rounds
from cluster import main

STOOD_S = 6  # longer than a router waits for a worker
SLOW = {"layers": 16, "context": 1024}


def asked(salt):
    ids = [3 + (31 * i + 7 * salt) % 200 for i in range(150)]
    return api.generation(ids, max_tokens=200, ignore_eos=True)


class Standstill(FaultTest):
    def stand_still(self, processes, chance):
        """Stopped in the middle of eight requests, in any order, and woken in any other."""
        requests = [asked(salt) for salt in range(8)]
        for request in requests:
            self.cluster.gold(request)
        for _ in range(rounds(2, 20)):
            streams = [self.cluster.direct.stream(request) for request in requests]
            time.sleep(chance.uniform(0, 0.1))
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for process in chance.sample(processes, len(processes)):
                    process.signal(number)
                if number == signal.SIGSTOP:
                    time.sleep(STOOD_S)
            for stream, request in zip(streams, requests):
                self.assertEqual(self.gold_or((), stream, request), "OK")
        self.quiet(10)
        self.alive()
        for process in self.cluster.processes():
            log = process.log()
            self.assertNotIn('"worker lost"', log, process.name)
            self.assertNotIn('"router lost"', log, process.name)

    def test_a_router_that_stood_still_has_lost_no_worker(self):
        cluster = self.started(model=SLOW)
        self.stand_still([cluster.routers["router-0"]], random.Random(1))

    def test_a_cluster_that_stood_still_goes_on_where_it_was(self):
        cluster = self.started(model=SLOW, flags=("--lease-ms", "4000"))
        self.stand_still(cluster.processes(), random.Random(2))


if __name__ == "__main__":
    main()
