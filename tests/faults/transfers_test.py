#!/usr/bin/env python3
"""Faults on the links between prefill and decode worker, and of either in the middle of a transfer."""
import contextlib
import math
import random
import signal
import time

from fault_cluster import FaultCluster, FaultTest, api, blocks_held, limit, rounds, wait_for
from cluster import main

SLOW_MODEL = {"layers": 16, "context": 4096}
SLOW_FLAGS = ("--backend", "reference", "--step-tokens", "16")


def tokens(count, salt=0):
    return [3 + (31 * i + 7 * salt + count) % 200 for i in range(count)]


def asked(prompt_tokens, max_tokens=8, salt=0, **fields):
    """Bypasses caches: every repetition ships the whole prompt."""
    return api.generation(tokens(prompt_tokens, salt), max_tokens=max_tokens, ignore_eos=True, **{"bypass_cache": True, **fields})


class Links(FaultTest):
    """One prefill and one decode worker that answer in milliseconds; the links decide."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = FaultCluster(
            decode_flags=("--kv-blocks", "40"), prefill_flags=("--kv-blocks", "60"),
            router_flags=("--worker-silence-ms", "2000")).__enter__()
        cls.data, cls.control = cls.cluster.data["decode-0"], cls.cluster.control["decode-0"]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def setUp(self):
        self.serves()

    def tearDown(self):
        for link in (self.data, self.control, *self.cluster.to_worker.values()):
            link.resume()
        self.quiet(5)
        self.alive()

    def serves(self):
        """The split path works."""
        def split():
            try:
                return self.cluster.direct.generate(asked(20)).workers.prefill != ""
            except api.Failure:
                return False
        wait_for(split, what="a split request")

    def test_blocks_and_control_messages_cross_the_proxies(self):
        before = (self.data.passed["up"], self.control.passed["up"])
        self.is_gold(asked(200))
        self.assertGreater(self.data.passed["up"] - before[0], 40_000)
        self.assertGreater(self.control.passed["up"], before[1])

    def test_slow_links_change_no_token(self):
        """Nothing orders the links against each other: each is late in turn, then all of them."""
        links = (self.data, self.control, *self.cluster.to_worker.values())
        for late in (*((link,) for link in links), links):
            for link in late:
                link.delay(0.03)
            for salt in range(rounds(2, 20)):
                self.is_gold(asked(100, max_tokens=1 + 5 * salt, salt=salt))
            for link in late:
                link.resume()

    @contextlib.contextmanager
    def in_mid_transfer(self, count):
        """Leaves when so many bytes have passed to the decode worker since it was entered."""
        target = self.data.passed["up"] + count
        yield
        wait_for(lambda: self.data.passed["up"] >= target, what="a part of the transfer")

    def test_a_late_write_never_lands_in_blocks_that_were_given_to_another_pd02(self):
        """Both prompts need more than half of the decode worker's blocks."""
        for round_number in range(rounds(5, 200)):
            first, second = asked(400, salt=2 * round_number), asked(400, salt=2 * round_number + 1)
            expected = self.cluster.gold(second)
            self.data.throttle(int(110_000 / rounds(0.5, 1)))
            held_at = self.data.hold_after(35_000)
            stream = self.cluster.direct.stream(first)
            wait_for(lambda at=held_at: self.data.passed["up"] == at, what="a part of the transfer")
            self.assertGreater(self.cluster.held("decode-0"), 20)
            stream.cancel()
            self.data.release()
            answer = self.cluster.direct.generate(second)
            self.assertEqual(list(answer.choices[0].token_ids), expected[0], f"round {round_number}")
            self.data.resume()

    def cut_everywhere(self, link, way, request, places=rounds(5, 200)):
        """Cuts the link after each of many numbers of bytes of a request. The codes that came of it."""
        self.serves()
        before = link.passed[way]
        self.cluster.direct.generate(request)
        total = link.passed[way] - before
        codes = []
        for place in range(places + 1):
            self.serves()
            link.cut_after(max(1, total * place // places), way)
            began = time.monotonic()
            stream = self.cluster.direct.stream(request)
            codes.append(self.gold_or(("UNAVAILABLE",), stream, request))
            self.assertLess(time.monotonic() - began, limit(3))
            link.resume()
        self.quiet(5)
        return codes

    def test_a_data_link_cut_at_any_byte_never_gives_a_partial_answer_pd03(self):
        codes = self.cut_everywhere(self.data, "up", asked(300))
        self.assertIn("UNAVAILABLE", codes)

    def test_a_data_link_cut_in_its_answers_never_gives_a_wrong_answer_pd03(self):
        self.cut_everywhere(self.data, "down", asked(300))

    def test_a_control_link_cut_at_any_byte_never_gives_a_wrong_answer_pd03(self):
        for way in ("up", "down"):
            self.cut_everywhere(self.control, way, asked(300))

    def test_a_routers_link_cut_at_any_byte_never_gives_a_wrong_answer(self):
        for link in self.cluster.to_worker.values():
            for way in ("up", "down"):
                self.cut_everywhere(link, way, asked(100, max_tokens=30), rounds(5, 50))

    def test_a_data_connection_that_cannot_be_made_is_gone_around_pd03(self):
        request = asked(120)
        self.data.refuse()
        self.cluster.reset(self.data, "prefill-0")
        began = time.monotonic()
        answer = self.is_gold(request)
        self.assertLess(time.monotonic() - began, limit(2))
        self.assertEqual(answer.workers.prefill, "")
        self.data.resume()
        self.serves()
        # Made, and cut at once: the prompt may have begun.
        self.cluster.reset(self.data, "prefill-0")
        self.data.cut_connection()
        began = time.monotonic()
        self.gold_or(("UNAVAILABLE",), self.cluster.direct.stream(request), request)
        self.assertLess(time.monotonic() - began, limit(2))

    def test_a_control_link_that_cannot_be_made_is_gone_around(self):
        """The request must not wait for room that will never be seen."""
        self.control.refuse()
        self.cluster.reset(self.control, "prefill-0")
        began = time.monotonic()
        answer = self.is_gold(asked(120))
        self.assertLess(time.monotonic() - began, limit(2))
        self.assertEqual(answer.workers.prefill, "")

    def test_many_cancelled_before_the_workers_met_leave_nothing_pd06(self):
        links = (self.control, self.data, self.cluster.to_worker["decode-0"])
        for link in links:
            link.hold()
        streams = [self.cluster.direct.stream(asked(100, salt=i)) for i in range(rounds(20, 50))]
        wait_for(lambda: self.cluster.held("prefill-0") > 0, what="the prefill worker waits")
        for stream in streams:
            stream.cancel()
        for link in links:
            link.resume()
        self.quiet(5)
        self.serves()

    def test_cancels_around_the_end_of_the_prompt_leave_nothing_pd04(self):
        chance = random.Random(4)
        began = time.monotonic()
        with self.cluster.direct.stream(asked(200)) as stream:
            stream.read_tokens(1)
            first_token = time.monotonic() - began
        for index in range(rounds(60, 2000)):
            with self.cluster.direct.stream(asked(200, max_tokens=40, salt=index)):
                time.sleep(max(0, first_token + chance.uniform(-0.02, 0.02)))
        self.quiet(5)

    def test_cancelling_all_in_the_middle_of_slow_transfers_frees_the_pool_pd09(self):
        for _ in range(rounds(2, 5)):
            self.data.throttle(50_000)
            with self.in_mid_transfer(15_000):
                streams = [self.cluster.direct.stream(asked(300, salt=i)) for i in range(rounds(30, 300))]
            for stream in streams:
                stream.cancel()
            began = time.monotonic()
            self.is_gold(asked(30))
            self.assertLess(time.monotonic() - began, limit(5))
            self.data.resume()
            self.quiet(10)

    def test_errors_of_a_broken_link_name_no_address_pd23(self):
        """gold_or looks at each of them, as END1 does in all tests of these files."""
        request = asked(300)
        codes = []
        for link in (self.data, self.control, *self.cluster.to_worker.values()):
            self.serves()
            self.data.throttle(100_000)
            stream = self.cluster.direct.stream(request)
            wait_for(lambda: self.cluster.held("decode-0") > 0, what="a transfer")
            link.reset()
            codes.append(self.gold_or(("UNAVAILABLE",), stream, request))
            self.data.resume()
        self.assertIn("UNAVAILABLE", codes)


class Plain(FaultTest):
    """What needs no fault but the split itself."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = FaultCluster().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def test_max_tokens_are_exact_split_and_alone_pd11(self):
        for max_tokens in (1, 2, 3, 16, 17):
            request = asked(40, max_tokens)
            for client in (self.cluster.direct, self.cluster.gold_client):
                answer = client.generate(request)
                stream = self.end1(client.stream(request))
                self.assertEqual(len(answer.choices[0].token_ids), max_tokens)
                self.assertEqual(stream.ids[0], list(answer.choices[0].token_ids))
                self.assertEqual(stream.finish, {0: "length"})
                self.assertEqual(answer.usage.completion_tokens, max_tokens)
                self.assertEqual(self.cluster.gold(request)[0], stream.ids[0])
        self.quiet(5)

    def test_split_and_alone_give_the_same_ids_pd22(self):
        chance = random.Random(22)
        for index in range(rounds(25, 200)):
            length = chance.choice((1, 15, 16, 17, 31, 64, chance.randrange(1, 400)))
            ids = [7] * length if index % 5 == 0 else tokens(length, index)
            self.is_gold(api.generation(ids, max_tokens=24, ignore_eos=True))
        self.quiet(5)


class Slow(FaultTest):
    """Requests that are under way for many seconds unless something ends them."""

    def slow(self, **options):
        flags = (*SLOW_FLAGS, *options.pop("flags", ()))
        return self.started(model=SLOW_MODEL, flags=flags, **options)

    def test_cancelled_between_transfer_and_batch_pd07(self):
        cluster = self.slow(decode_flags=("--max-running", "1"))

        def generated():
            return cluster.workers["decode-0"].metrics()["baton_generation_tokens_total"]

        before_it = generated()
        long = cluster.direct.stream(asked(16, max_tokens=3000))
        long.read_tokens(2)

        def of_the_long_one():
            """It alone decodes, so the tokens are its own. Perhaps one more, for its growth."""
            return math.ceil((16 + generated() - before_it) / 16)

        def beside_it():
            """Blocks, at least and at most: it grows while they are counted."""
            before, held = of_the_long_one(), cluster.held("decode-0")
            return held - of_the_long_one(), held - before

        for index in range(rounds(10, 100)):
            handed_over = cluster.workers["prefill-0"].metrics()["baton_handoff_seconds_count"]
            with cluster.direct.stream(asked(40, salt=index)):
                wait_for(lambda: cluster.workers["prefill-0"].metrics()["baton_handoff_seconds_count"]
                         > handed_over, what="the handoff")
                self.assertGreaterEqual(beside_it()[1], 3)
            wait_for(lambda: beside_it()[0] <= 1, limit(2), "the blocks of the cancelled are back")
        long.cancel()
        self.quiet(5)
        self.alive()

    def test_a_prefill_worker_that_dies_ends_its_requests_at_once_pd15(self):
        cluster = self.slow()
        for _ in range(rounds(1, 10)):
            steps = cluster.steps("prefill-0")
            stream = cluster.direct.stream(asked(1500))
            cluster.wait_for_steps("prefill-0", steps)
            cluster.workers["prefill-0"].kill()
            killed = time.monotonic()
            self.end1(stream)
            self.assertLess(time.monotonic() - killed, limit(1))
            self.assertEqual((stream.failure.code, stream.failure.reason), ("UNAVAILABLE", "WORKER_LOST"))
            # The decode worker may be the first to say it.
            self.assertTrue(stream.failure.text.startswith(("prefill: ", "handoff: ")), stream.failure)
            self.quiet(2)
            cluster.restart("prefill-0")
            wait_for(lambda: cluster.direct.generate(asked(20)).workers.prefill, what="it is used again")
        self.alive()

    def test_a_decode_worker_that_dies_ends_its_requests_unavailable_and_its_next_life_serves_pd21(self):
        cluster = self.slow()
        for before_first_token in (False, True):
            request = asked(1500 if before_first_token else 20, max_tokens=500)
            stream = cluster.direct.stream(request)
            if before_first_token:
                wait_for(lambda: cluster.held("decode-0") > 0, what="the grant")
            else:
                stream.read_tokens(5)
            cluster.workers["decode-0"].kill()
            killed = time.monotonic()
            self.end1(stream)
            self.assertLess(time.monotonic() - killed, limit(2))
            self.assertEqual(stream.failure.code, "UNAVAILABLE")
            # One whose grant was still on its way to the prefill worker had not begun: it looks for another.
            self.assertIn(stream.failure.reason, ("WORKER_LOST", "NO_WORKER") if before_first_token else ("WORKER_LOST",))
            self.assertEqual(bool(stream.ids), not before_first_token)
            self.fails(("UNAVAILABLE",), lambda: cluster.direct.generate(asked(20)))
            wait_for(lambda: cluster.held("prefill-0") == 0, limit(5), "the source is rid of it")
            cluster.restart("decode-0")
            restarted = time.monotonic()
            wait_for(lambda: self.served_split(cluster), what="the next life serves")
            self.assertLess(time.monotonic() - restarted, limit(10))
        self.quiet(5)
        self.alive()

    def served_split(self, cluster):
        try:
            return cluster.direct.generate(asked(20)).workers.prefill != ""
        except api.Failure as failure:
            self.assertEqual(failure.code, "UNAVAILABLE")
            return False

    def test_a_decode_worker_that_stood_still_beyond_the_lease_never_uses_other_kv_pd20(self):
        cluster = self.slow(decode=2, flags=("--lease-ms", "1500"),
                            prefill_flags=("--kv-blocks", "80"), router_flags=("--worker-silence-ms", "1500"))
        for index in range(rounds(1, 10)):
            request = asked(900, salt=index)
            expected = cluster.gold(request)
            stream = cluster.direct.stream(request)
            stopped = wait_for(lambda: next((name for name in ("decode-0", "decode-1") if cluster.held(name)), None),
                               what="the grant")
            cluster.workers[stopped].signal(signal.SIGSTOP)
            began = time.monotonic()
            churn = 0
            while time.monotonic() - began < 3:
                try:
                    cluster.direct.generate(asked(600, max_tokens=2, salt=1000 + churn), timeout_s=5)
                except api.Failure as failure:
                    self.clean(failure)
                churn += 1
            cluster.workers[stopped].signal(signal.SIGCONT)
            self.assertGreater(churn, 0)
            self.end1(stream)
            if stream.completed is not None:
                self.assertEqual([stream.ids[0]], expected)
            else:
                self.assertEqual(stream.failure.code, "UNAVAILABLE", stream.failure)
            self.quiet(5)
            wait_for(lambda: self.served_split(cluster), what="split requests")
        self.alive()


if __name__ == "__main__":
    main()
