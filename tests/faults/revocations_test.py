#!/usr/bin/env python3
"""A decode worker with few blocks takes reservations back for older requests; every answer is that of an empty cluster."""
import random
import time

from fault_cluster import FaultTest, api, gauge, limit, rounds, wait_for
from cluster import main

SLOW_MODEL = {"layers": 16, "context": 4096}
SLOW_FLAGS = ("--backend", "reference", "--step-tokens", "16")
REVOKED = "baton_reservations_revoked_total"


def asked(prompt_tokens, max_tokens, salt, **fields):
    chance = random.Random(salt)
    return api.generation([chance.randrange(3, 250) for _ in range(prompt_tokens)], max_tokens=max_tokens,
                          ignore_eos=True, **fields)


class Revocations(FaultTest):
    def revoked(self):
        return gauge(self.cluster.workers["decode-0"].metrics(), REVOKED)

    def check(self, request, stream):
        """Whole, and GOLD."""
        self.assertEqual(self.gold_or((), stream, request), "OK")

    def ended(self):
        self.quiet(5)
        self.alive()
        sink = self.cluster.workers["decode-0"].metrics()
        self.assertEqual(gauge(sink, 'baton_handoff_failures_total{cause="preempted"}'), self.revoked())

    def test_an_older_request_takes_the_room_of_one_that_is_still_shipped_and_both_answer_right(self):
        cluster = self.started(model=SLOW_MODEL, flags=SLOW_FLAGS, decode_flags=("--kv-blocks", "40"))
        for salt in range(rounds(1, 10)):
            old = [asked(30, 400, 100 * salt + index) for index in range(2)]  # 27 blocks each in the end
            young = asked(300, 8, 100 * salt + 50)  # 19 blocks
            for request in (*old, young):
                cluster.gold(request)
            before = self.revoked()
            streams = [cluster.direct.stream(request) for request in old]
            for stream in streams:
                stream.read_tokens(2)
            cluster.data["decode-0"].throttle(2000)
            held = cluster.held("decode-0")
            late = cluster.direct.stream(young)
            wait_for(lambda: cluster.held("decode-0") > held + 15 or self.revoked() > before, what="the grant")
            wait_for(lambda: self.revoked() > before, limit(30), "a revocation")
            cluster.data["decode-0"].resume()
            for request, stream in (*zip(old, streams), (young, late)):
                self.check(request, stream)
            self.ended()

    def test_many_requests_through_a_pool_of_a_third_of_their_need(self):
        cluster = self.started(prefill=2, flags=("--kv-blocks", "120"), decode_flags=("--kv-blocks", "48"))
        chance = random.Random(7)
        requests = [asked(chance.randrange(20, 250), chance.randrange(2, 300), 1000 + index,
                          n=chance.choice((1, 1, 1, 2)), **({"temperature": 0.8, "seed": index} if index % 2 else {}))
                    for index in range(rounds(40, 400))]
        for request in requests:
            cluster.gold(request)
        cluster.data["decode-0"].throttle(400_000)
        wrong = []

        def client(number):
            for request in requests[number::16]:
                stream = cluster.direct.stream(request)
                try:
                    self.check(request, stream)
                except AssertionError as error:
                    wrong.append(error)
                time.sleep(chance.uniform(0, 0.01))

        api.in_threads(16, client)
        cluster.data["decode-0"].resume()
        self.assertEqual(wrong, [])
        self.assertGreater(self.revoked(), 0)
        self.ended()


if __name__ == "__main__":
    main()
