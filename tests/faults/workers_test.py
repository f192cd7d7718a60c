#!/usr/bin/env python3
"""What a broken, a hostile or a second router may say to the workers themselves."""
import time

from fault_cluster import FaultCluster, FaultTest, api, limit, rounds, wait_for
from cluster import main
from hand_made_peers import Router, Source

P, D = "prefill-0", "decode-0"
TOMBSTONE = 7  # worker.v1.Cause


def tokens(count, salt=0):
    return [3 + (17 * i + 5 * salt + count) % 200 for i in range(count)]


class Workers(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = FaultCluster(prefill_flags=("--kv-blocks", "32"),
                                   flags=("--lease-ms", "4000", "--reserve-patience-ms", "2000")).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def setUp(self):
        self.router = Router(self.cluster.workers.values())
        self.addCleanup(self.router.__exit__)

    def finished(self):
        self.quiet(5)
        self.alive()

    def expected(self, prompt, max_tokens):
        return self.cluster.gold(api.generation(prompt, max_tokens=max_tokens, ignore_eos=True))[0]

    def split(self, attempt, prompt, max_tokens):
        """The request's tokens as the decode worker tells them."""
        self.router.submit(P, attempt, prompt, max_tokens, [D])
        self.router.wait(attempt, "started")
        self.router.attach(D, attempt)
        return self.router.tokens(attempt, D)

    def refused(self, code, words, call):
        with self.assertRaises(api.Failure) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(words, caught.exception.text)

    def test_the_same_attempt_twice_at_once_is_taken_once_pd08(self):
        prompt = tokens(200)
        for _ in range(rounds(10, 200)):
            attempt = self.router.new_attempt()
            answers = [self.router.submit_future(P, attempt, prompt, 10, [D]) for _ in range(4)]
            codes = []
            for answer in answers:
                try:
                    answer.result()
                    codes.append("OK")
                except api.Failure as failure:
                    codes.append(failure.code)
            # The first may be over before the last is looked at.
            self.assertEqual(codes.count("OK"), 1, codes)
            self.assertLessEqual(set(codes), {"OK", "ALREADY_EXISTS", "FAILED_PRECONDITION"})
            self.router.wait(attempt, "started")
            self.router.attach(D, attempt)
            self.assertEqual(self.router.tokens(attempt, D), self.expected(prompt, 10))
        self.finished()

    def test_an_attempt_that_is_over_is_refused_everywhere_pd08(self):
        prompt = tokens(50)
        attempt = self.router.new_attempt()
        self.assertEqual(self.split(attempt, prompt, 6), self.expected(prompt, 6))
        self.router.wait(attempt, "handed_off")
        for worker, sinks in ((P, [D]), (D, [])):
            self.refused("FAILED_PRECONDITION", "TOMBSTONE",
                         lambda w=worker, s=sinks: self.router.submit(w, attempt, prompt, 6, s))
        self.assertEqual(len(self.router.of(attempt, "token", D)), 6)
        self.finished()

    def test_an_attempt_sent_to_both_workers_lives_once_at_the_sink_pd08(self):
        """The router asks the source to hand it over and the sink to run it alone."""
        prompt = tokens(120)
        for index in range(rounds(20, 500)):
            attempt = self.router.new_attempt()
            both = [self.router.submit_future(P, attempt, prompt, 8, [D]), self.router.submit_future(D, attempt, prompt, 8)]
            if index % 2:
                both.reverse()
            codes = {}
            for name, answer in zip((P, D) if index % 2 == 0 else (D, P), both):
                try:
                    answer.result()
                    codes[name] = "OK"
                except api.Failure as failure:
                    codes[name] = failure.code
            self.assertEqual(codes[P], "OK")
            self.assertIn(codes[D], ("OK", "ALREADY_EXISTS", "FAILED_PRECONDITION"))
            if codes[D] == "OK":
                told = self.router.tokens(attempt, D)
                self.assertEqual(self.router.wait(attempt, "no_room")[0].cause, TOMBSTONE)
                self.assertEqual(self.router.of(attempt, "started"), [])
            else:
                self.router.wait(attempt, "started")
                self.router.attach(D, attempt)
                told = self.router.tokens(attempt, D)
            self.assertEqual(told, self.expected(prompt, 8), "every token once")
            self.router.cancel(P, attempt)
            self.router.cancel(D, attempt)
        self.finished()

    def test_two_attempts_of_one_request_race_and_either_may_be_cancelled(self):
        prompt = tokens(150)
        expected = self.expected(prompt, 10)
        for index in range(rounds(20, 500)):
            first = self.router.new_attempt()
            second = self.router.new_attempt(attempt=2, request=first.request)
            answers = [self.router.submit_future(P, attempt, prompt, 10, [D]) for attempt in (first, second)]
            for answer in answers:
                answer.result()
            loser, winner = (first, second) if index % 2 else (second, first)
            for worker in (P, D):
                self.router.cancel(worker, loser)
            self.router.wait(winner, "started")
            self.router.attach(D, winner)
            self.assertEqual(self.router.tokens(winner, D), expected)
        self.finished()

    def test_a_cancel_before_its_submit_and_a_duplicate_cancel_are_harmless(self):
        attempt = self.router.new_attempt()
        for worker in (P, D):
            self.router.cancel(worker, attempt)
            self.router.cancel(worker, attempt)
        probe = self.router.new_attempt()
        self.assertEqual(self.split(probe, tokens(20), 4), self.expected(tokens(20), 4))
        self.refused("FAILED_PRECONDITION", "TOMBSTONE", lambda: self.router.submit(P, attempt, tokens(20), 4, [D]))
        self.finished()

    def test_an_attempt_of_another_router_ends_the_session_of_who_speaks_of_it(self):
        with Router(self.cluster.workers.values()) as other:
            attempt = other.new_attempt()
            other.submit(P, attempt, tokens(300), 100, [D])
            other.wait(attempt, "started")
            other.attach(D, attempt)
            self.router.cancel(D, attempt)
            self.assertEqual(self.router.end_of(D).code, "INVALID_ARGUMENT")
            self.assertEqual(other.tokens(attempt, D), self.expected(tokens(300), 100))
        self.finished()


    def source(self):
        """A prefill worker of the test's own."""
        source = Source(self.cluster.workers[D], self.router.hellos[D])
        self.addCleanup(source.close)
        return source

    def test_a_reservation_that_fits_is_granted_without_a_place_in_the_queue(self):
        source, attempt = self.source(), self.router.new_attempt()
        source.reserve(attempt, tokens(40), 8)
        self.assertEqual(source.answer(attempt), "granted")
        source.close()
        self.finished()

    def test_one_transfer_id_reserved_twice_is_granted_once_pd08(self):
        first, second, attempt = self.source(), self.source(), self.router.new_attempt()
        first.reserve(attempt, tokens(40), 8)
        self.assertEqual(first.answer(attempt), "granted")
        held = self.cluster.held(D)
        # Another source with the same id is refused, and may not release what is not its own.
        second.reserve(attempt, tokens(40), 8)
        self.assertEqual(second.answer(attempt), "refused")
        second.send(release=api.transfer_pb.Release(attempt=attempt))
        second.reserve(self.router.new_attempt(), tokens(20), 4)  # answered, so the Release has been read
        second.answer()
        self.assertGreaterEqual(self.cluster.held(D), held)
        # The same source again: it does not know what it does, and its session ends with all it had.
        first.reserve(attempt, tokens(40), 8)
        self.assertEqual(first.end_of().code, "INVALID_ARGUMENT")
        # Nobody may use the id again.
        third = self.source()
        third.reserve(attempt, tokens(40), 8)
        self.assertEqual(third.answer(attempt), "refused")
        for source in (second, third):
            source.close()
        self.finished()


class ShortSink(FaultTest):
    """A decode worker that refuses what the prefill worker takes."""

    def test_what_the_sink_refuses_is_given_back_by_the_source_at_once_pd01(self):
        cluster = self.started(flags=("--reserve-patience-ms", "60000"), prefill_flags=("--kv-blocks", "24"),
                               decode_flags=("--context", "100"))
        with Router(cluster.workers.values()) as router:
            for index in range(20):
                attempt = router.new_attempt()
                began = time.monotonic()
                router.submit(P, attempt, tokens(200, index), 8, [D])
                end = router.wait(attempt, "no_room")[0]
                self.assertLess(time.monotonic() - began, limit(1))
                self.assertNotEqual(end.cause, 0)
                wait_for(lambda: cluster.held(P) == 0, limit(2), "the source gave its blocks back")
            attempt = router.new_attempt()
            router.submit(P, attempt, tokens(50), 8, [D])
            router.wait(attempt, "started")
            router.attach(D, attempt)
            self.assertEqual(router.tokens(attempt, D),
                             cluster.gold(api.generation(tokens(50), max_tokens=8, ignore_eos=True))[0])
        # Through the router such a request is refused before any worker hears of it.
        began = time.monotonic()
        failure = self.fails(("INVALID_ARGUMENT",), lambda: cluster.direct.generate(
            api.generation(tokens(200), max_tokens=8)))
        self.assertLess(time.monotonic() - began, limit(1))
        self.assertEqual(failure.fields[0][0], "generation.prompt")
        self.quiet(2)
        self.alive()


if __name__ == "__main__":
    main()
