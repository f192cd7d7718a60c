#!/usr/bin/env python3
"""A router that is killed at any moment takes nothing with it, and the other router's requests do not notice."""
import random
import threading
import time

from fault_cluster import FaultTest, api, rounds, wait_for
from cluster import main


def asked(salt):
    ids = [3 + (31 * i + 7 * salt) % 200 for i in range(20 + 40 * (salt % 7))]
    return api.generation(ids, max_tokens=10 + 5 * (salt % 9), ignore_eos=True)


class RouterDeath(FaultTest):
    def test_workers_get_back_all_that_a_killed_router_held_and_the_other_goes_on(self):
        cluster = self.started(prefill=2, decode=2, routers=2)
        requests = [asked(salt) for salt in range(24)]
        expected = [cluster.gold(request) for request in requests]
        other = api.Client(cluster.routers["router-1"].info["listen"])
        self.addCleanup(other.close)
        over, wrong, answered = threading.Event(), [], [0]

        def keep_asking(first):
            index = first
            while not over.is_set():
                stream = other.stream(requests[index % 24])
                for _ in stream:
                    pass
                if stream.failure is not None or [stream.ids[0]] != expected[index % 24]:
                    wrong.append((index, stream.failure, stream.ids))
                answered[0] += 1
                index += 5

        askers = [threading.Thread(target=keep_asking, args=(i,), daemon=True) for i in range(4)]
        for asker in askers:
            asker.start()
        chance = random.Random(9)
        killed = cluster.routers["router-0"]
        for _ in range(rounds(5, 60)):
            with api.Client(killed.info["listen"]) as client:
                streams = [client.stream(requests[chance.randrange(24)]) for _ in range(12)]
                time.sleep(chance.uniform(0, 0.15))
                killed.kill()
                for stream in streams:
                    for _ in stream:
                        pass
                    self.assertEqual(stream.out_of_order, [])
                    self.assertTrue(stream.completed is not None or stream.failure.code in ("UNAVAILABLE", "CANCELLED"),
                                    stream.failure)
            killed.restart()
        wait_for(lambda: answered[0] > 20, what="answers of the other router")
        over.set()
        for asker in askers:
            asker.join()
        self.assertEqual(wrong, [])
        killed.usage_at_start = killed.usage()
        cluster.pids["router-0"] = killed.pid
        self.quiet(5)
        cluster.direct.close()
        cluster.direct = api.Client(killed.info["listen"])
        self.alive()


if __name__ == "__main__":
    main()
