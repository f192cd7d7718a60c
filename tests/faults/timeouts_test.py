#!/usr/bin/env python3
"""Clocks that run out while blocks are still on their way: under ASan, nothing may be touched after it was freed (PD-10)."""
import random
import time

from fault_cluster import FaultTest, api, rounds, wait_for
from cluster import main


def asked(salt):
    ids = [3 + (31 * i + 7 * salt) % 200 for i in range(200)]
    return api.generation(ids, max_tokens=6, ignore_eos=True, bypass_cache=True)


class Timeouts(FaultTest):
    def setUp(self):
        # The source gives up a commit that makes no progress for a lease, here much shorter than a hole in the link.
        self.started(flags=("--lease-ms", "800", "--reserve-patience-ms", "800"))
        self.link = self.cluster.data["decode-0"]
        self.requests = [asked(salt) for salt in range(8)]
        for request in self.requests:
            self.cluster.gold(request)

    def finished(self):
        self.link.resume()

        def split():
            try:
                return self.cluster.direct.generate(asked(1)).workers.prefill != ""
            except api.Failure:
                return False
        wait_for(split, what="a split request")
        self.quiet(10)
        self.alive()

    def test_deadlines_in_the_middle_of_transfers_pd10(self):
        self.link.throttle(500_000)  # some 100 ms each
        chance = random.Random(10)
        codes = set()
        for _ in range(rounds(6, 250)):
            streams = [self.cluster.direct.stream(request, timeout_s=chance.uniform(0.005, 0.5))
                       for request in self.requests[:4]]
            codes |= {self.gold_or(("DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"), stream, request)
                      for stream, request in zip(streams, self.requests)}
        self.assertIn("DEADLINE_EXCEEDED", codes)
        self.finished()

    def test_leases_that_end_in_the_middle_of_transfers_pd10(self):
        codes = []
        for _ in range(rounds(6, 250)):
            streams = [self.cluster.direct.stream(request) for request in self.requests[:4]]
            time.sleep(0.01)
            self.link.hold()
            codes += [self.gold_or(("UNAVAILABLE",), stream, request)
                      for stream, request in zip(streams, self.requests)]
            self.link.resume()
        self.assertEqual(len(codes), rounds(24, 1000))
        self.finished()


if __name__ == "__main__":
    main()
