#!/usr/bin/env python3
"""Connections that die without a word, and black holes that hold longer than a lease: each ends by the clock of
whoever holds something for it, and the next request finds its way."""
import signal
import time

from fault_cluster import FaultTest, api, limit, rounds, wait_for
from cluster import main

SLOW = {"model": {"layers": 16, "context": 4096}, "flags": ("--backend", "reference", "--step-tokens", "16",
                                                           "--lease-ms", "2000", "--reserve-patience-ms", "1500"),
        "router_flags": ("--worker-silence-ms", "1500", "--client-keepalive-ms", "4000")}


def asked(prompt_tokens=20, max_tokens=8, salt=0):
    ids = [3 + (31 * i + 7 * salt) % 200 for i in range(prompt_tokens)]
    return api.generation(ids, max_tokens=max_tokens, ignore_eos=True, bypass_cache=True)


class HalfOpen(FaultTest):
    def setUp(self):
        self.started(**SLOW)

    def served_split(self):
        def split():
            try:
                return self.cluster.direct.generate(asked()).workers.prefill != ""
            except api.Failure as failure:
                self.clean(failure)
                return False
        wait_for(split, limit(15), "a split request")

    def test_a_client_that_vanishes_is_noticed_by_keepalive(self):
        for fault in (self.cluster.client_link.reset, self.cluster.client_link.drop_silently):
            stream = self.cluster.client.stream(asked(20, 3000))
            stream.read_tokens(5)
            fault()
            began = time.monotonic()
            wait_for(lambda: self.cluster.held("decode-0") == 0, what="its blocks are back")
            self.assertLess(time.monotonic() - began, limit(6))
            self.quiet(5)
            stream.cancel()
        # A client that only listens is not taken for one that vanished.
        stream = self.cluster.direct.stream(asked(20, 600))
        self.assertEqual(self.gold_or((), stream, asked(20, 600)), "OK")
        self.alive()

    def test_a_router_link_that_dies_silently_ends_its_requests_and_is_made_anew(self):
        for name, request in (("decode-0", asked(20, 3000)), ("prefill-0", asked(1500))):
            # In the middle of what this worker does for it.
            steps = self.cluster.steps(name)
            stream = self.cluster.direct.stream(request)
            self.cluster.wait_for_steps(name, steps)
            self.cluster.to_worker[name].drop_silently()
            began = time.monotonic()
            self.end1(stream)
            self.assertEqual(stream.failure.code, "UNAVAILABLE", stream.failure)
            self.assertLess(time.monotonic() - began, limit(3))
            self.served_split()
            self.quiet(5)
        self.alive()

    def test_a_control_link_that_dies_silently_frees_both_sides_and_is_made_anew(self):
        stream = self.cluster.direct.stream(asked(1500))
        wait_for(lambda: self.cluster.held("decode-0") > 0, what="the grant")
        self.cluster.control["decode-0"].drop_silently()
        self.end1(stream)
        if stream.completed is not None:
            self.assertEqual([stream.ids[0]], self.cluster.gold(asked(1500)))
        self.served_split()
        self.quiet(5)
        self.alive()

    def test_data_links_that_die_silently_do_not_pile_up(self):
        for round_number in range(rounds(2, 20)):
            self.cluster.data["decode-0"].drop_silently()
            request = asked(100, salt=round_number)
            stream = self.cluster.direct.stream(request)
            self.assertEqual(self.gold_or(("UNAVAILABLE",), stream, request), "UNAVAILABLE")
            self.served_split()
            wait_for(lambda: self.cluster.data["decode-0"].half_open() == 0, what="both ends give it up")
        self.quiet(5)
        self.alive()

    def test_a_worker_that_stands_still_costs_nobody_a_connection(self):
        self.served_split()
        before = {process.name: process.usage()[1] for process in self.cluster.processes()}
        for name in ("decode-0", "prefill-0"):
            for _ in range(rounds(2, 8)):
                self.cluster.workers[name].signal(signal.SIGSTOP)
                time.sleep(4.5)  # everybody gives it up, tries again and again
                self.cluster.workers[name].signal(signal.SIGCONT)
                self.served_split()

        def more():
            return {process.name: process.usage()[1] - before[process.name] for process in self.cluster.processes()
                    if process.usage()[1] > before[process.name] + 1}
        wait_for(lambda: not more(), limit(5), "descriptors are back: " + str(before))
        self.quiet(5)
        self.alive()

    def test_holes_shorter_than_any_lease_cost_nothing_but_time(self):
        links = (self.cluster.control["decode-0"], self.cluster.data["decode-0"], *self.cluster.to_worker.values(),
                 self.cluster.client_link)
        for prompt_tokens, max_tokens in ((20, 300), (600, 20)):
            request = asked(prompt_tokens, max_tokens)
            stream = self.cluster.client.stream(request)
            wait_for(lambda: self.cluster.held("decode-0") > 0, what="the grant")
            for link in links:
                link.hold()
                time.sleep(0.3)
                link.resume()
            self.assertEqual(self.gold_or((), stream, request), "OK")
        self.quiet(5)
        self.alive()

    def test_a_hole_between_the_workers_longer_than_the_lease_is_gone_around(self):
        links = (self.cluster.control["decode-0"], self.cluster.data["decode-0"])
        for link in links:
            link.hold()
        began = time.monotonic()
        self.is_gold(asked(60))
        self.assertLess(time.monotonic() - began, limit(6))
        # Not by each request anew: only probes try the split while nothing passes, ever fewer of them.
        def attempts():
            return self.cluster.routers["router-0"].metrics()["baton_router_attempts_total"]
        before = attempts()
        for _ in range(20):
            self.is_gold(asked(60))
        self.assertLess(attempts() - before, 20 + 12)
        for link in links:
            link.resume()
        self.served_split()
        self.quiet(5)
        self.alive()


if __name__ == "__main__":
    main()
