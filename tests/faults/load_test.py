#!/usr/bin/env python3
"""Load that lasts (entries LD-05 and LD-07), and a worker that dies under it (OPS-01)."""
import statistics
import threading
import time

from fault_cluster import LONG, FaultTest, api, rounds, wait_for
from cluster import main

SLOW_MODEL = {"layers": 16, "context": 4096}
SLOW_FLAGS = ("--backend", "reference")
STREAMS = 8


def asked(prompt_tokens=60, max_tokens=10, salt=0):
    ids = [3 + (31 * i + 7 * salt + salt // 200) % 200 for i in range(prompt_tokens)]
    return api.generation(ids, max_tokens=max_tokens, ignore_eos=True, bypass_cache=True)


def percentile(values, part):
    return sorted(values)[int(len(values) * part)]


class Call:
    """A unary call: when it was sent, when it ended, its answer or Failure."""

    def __init__(self, client, request):
        self.sent, self.done, self.over = time.monotonic(), None, threading.Event()
        self.unary = client.start(request)
        self.unary.call.add_done_callback(self._ended)

    def _ended(self, _):
        self.done = time.monotonic()
        self.over.set()

    def answer(self):
        self.over.wait()
        try:
            return self.unary.result()
        except api.Failure as failure:
            return failure

    @property
    def seconds(self):
        return self.done - self.sent


def paced(seconds, interval, send):
    """[send(0), send(1), ...], one every interval, however long they take."""
    began, calls = time.monotonic(), []
    pause = threading.Event()
    while time.monotonic() < began + seconds:
        calls.append(send(len(calls)))
        pause.wait(max(0, began + len(calls) * interval - time.monotonic()))
    return calls


class Streams:
    """Streams that are read as they come, and the times between their tokens."""

    def __init__(self, client, requests):
        self.gaps, self.lock = [], threading.Lock()
        self.streams = [client.stream(request) for request in requests]
        self.threads = [threading.Thread(target=self._read, args=(one,), daemon=True) for one in self.streams]
        for thread in self.threads:
            thread.start()

    def _read(self, stream):
        last = None
        for kind, _ in stream:
            now = time.monotonic()
            if kind == "delta" and last is not None:
                with self.lock:
                    self.gaps.append(now - last)
            last = now

    def take(self):
        with self.lock:
            gaps, self.gaps = self.gaps, []
        return gaps

    def stop(self):
        for stream in self.streams:
            stream.cancel()
        for thread in self.threads:
            thread.join()


class Load(FaultTest):
    def tearDown(self):
        self.quiet(5)

    def test_a_long_prompt_does_not_stop_the_streams_beside_it_ld05(self):
        # Deep in a prompt of maximum length, scalar code takes ten times as long for the eight tokens that a prompt has
        # of a step at least (decision 0016) as for the decodes.
        flags = rounds(SLOW_FLAGS, ())
        cluster = self.started(prefill=0, model=SLOW_MODEL, flags=(*flags, "--kv-blocks", "2500"))
        quiet, beside, long, (steps, generated) = self.long_prompt_beside_streams(cluster, rounds(1000, 4090))
        # The prompt is cut into many steps, and the streams have a token of each.
        self.assertGreater(len(beside), 40)
        self.assertGreater(generated, 0.9 * STREAMS * steps)
        if LONG:
            self.assertLess(percentile(beside, 0.99), 3 * max(statistics.median(quiet), percentile(quiet, 0.99)))
            self.assertLess(max(beside), long.seconds / 4)

    def test_nor_does_a_short_newcomer_wait_for_it_at_a_prefill_worker_ld05(self):
        # Steps of prompts alone are larger: a shorter one would be done in two or three.
        self.long_prompt_beside_streams(
            self.started(model=SLOW_MODEL, flags=(*SLOW_FLAGS, "--kv-blocks", "2500")), rounds(2000, 4090))

    def long_prompt_beside_streams(self, cluster, tokens):
        """Gaps of eight streams before and beside a long prompt, its call, and steps and tokens of the decode worker
        meanwhile. A newcomer behind it is answered in a part of its time, and both right."""
        def counted():
            metrics = cluster.workers["decode-0"].metrics()
            return metrics["baton_step_seconds_count"], metrics["baton_generation_tokens_total"]

        streams = Streams(cluster.direct, [asked(20, 3000, salt=i) for i in range(STREAMS)])
        # Steps are planned from what earlier ones took, mixed ones too.
        cluster.direct.generate(asked(200, 1, salt=8))
        streams.take()
        wait_for(lambda: len(streams.gaps) > STREAMS * 40, what="quiet gaps")
        quiet, before = streams.take(), counted()
        requests = [asked(tokens, 1, salt=9), asked(30, 1, salt=10)]
        long, newcomer = [Call(cluster.direct, request) for request in requests]
        answers = [call.answer() for call in (newcomer, long)]
        beside, meanwhile = streams.take(), [now - then for now, then in zip(counted(), before)]
        streams.stop()
        self.assertLess(newcomer.done, long.done)
        self.assertLess(newcomer.seconds, long.seconds / rounds(2, 6))
        for request, answer in zip(reversed(requests), answers):
            self.assertEqual([list(choice.token_ids) for choice in answer.choices], cluster.gold(request))
        self.alive()
        return quiet, beside, long, meanwhile

    def test_moderate_load_for_long_loses_no_transfer_and_stays_as_fast_ld07(self):
        cluster = self.started(prefill=2, decode=2, model={"layers": 8}, flags=SLOW_FLAGS)

        def most(_):
            began, count = time.monotonic(), 0
            while time.monotonic() < began + rounds(2, 20):
                cluster.direct.generate(asked(salt=count))
                count += 1
            return count

        capacity = sum(api.in_threads(8, most)) / rounds(2, 20)
        before = self.resident_bytes(cluster)
        calls = paced(rounds(8, 900), 1 / (0.7 * capacity), lambda i: Call(cluster.direct, asked(salt=i)))
        for index, call in enumerate(calls):
            ids = [list(choice.token_ids) for choice in call.answer().choices]  # a Failure has none
            if index % 50 == 0:
                self.assertEqual(ids, cluster.gold(asked(salt=index)))
        for name, worker in cluster.workers.items():
            failures = [key for key, value in worker.metrics().items()
                        if key.startswith("baton_handoff_failures_total") and value > 0]
            self.assertEqual(failures, [], name)
        tenth = len(calls) // 10
        first, last = (statistics.median(call.seconds for call in part) for part in (calls[tenth:2 * tenth], calls[-tenth:]))
        if rounds(0, 1):  # every day other tests take processors away, before or after the capacity was measured
            self.assertLess(last, 1.05 * first)
        for name, bytes_now in self.resident_bytes(cluster).items():
            self.assertLess(bytes_now, rounds(1.3, 1.05) * before[name] + (16 << 20), name)
        self.alive()

    @staticmethod
    def resident_bytes(cluster):
        found = {}
        for process in cluster.processes():
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                found[process.name] = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))
        return found

    def test_a_worker_that_dies_fails_what_it_had_and_gets_nothing_more_ops01(self):
        for role in ("decode", "prefill"):
            with self.subTest(role=role):
                self.one_of_two_dies(role)

    def one_of_two_dies(self, role):
        cluster = self.started(prefill=2, decode=2, model={"layers": 8}, flags=SLOW_FLAGS)
        router = cluster.routers["router-0"]
        # One that has served.
        victim = getattr(cluster.direct.generate(asked(100, 40, salt=1000)).workers, role)
        calls, later = [], []  # later: sent when the router had heard of it

        def send(index):
            if "worker lost" in router.log():
                wait_for(lambda: cluster.inflight(victim) == 0, what="nothing counts as there")
                later.append(index)
            return Call(cluster.direct, asked(100, 40, salt=index))

        def all_placed():  # each at one decode worker
            return sum(map(cluster.inflight, cluster.data)) == sum(not call.over.is_set() for call in calls)

        calls += paced(rounds(2, 3), 0.1, send)
        wait_for(all_placed, what="every request at its workers")
        had = cluster.inflight(victim)
        cluster.workers[victim].kill()

        def enough_later():
            calls.extend(paced(0.5, 0.1, lambda i, first=len(calls): send(first + i)))
            return len(later) > rounds(5, 50)

        wait_for(enough_later, what="requests after the router had heard of it")
        answers = [call.answer() for call in calls]
        failed = [index for index, answer in enumerate(answers) if isinstance(answer, api.Failure)]
        for index in failed:
            self.assertEqual((answers[index].code, answers[index].reason), ("UNAVAILABLE", "WORKER_LOST"))
        self.assertLessEqual(len(failed), had)
        self.assertEqual(set(failed) & set(later), set())
        attempts = router.metrics()["baton_router_attempts_total"]
        after = [cluster.direct.generate(asked(100, 2, salt=500 + index)) for index in range(rounds(4, 20))]
        self.assertEqual(router.metrics()["baton_router_attempts_total"] - attempts, len(after))
        for answer in [*after, *(answers[index] for index in later)]:
            self.assertNotIn(victim, (answer.workers.prefill, answer.workers.decode))
        self.quiet(5)


if __name__ == "__main__":
    main()
