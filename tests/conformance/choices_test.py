#!/usr/bin/env python3
"""Several choices of one request (entries SM-03, PD-14)."""
import random

from service import ServiceTest, ids
import api
from cluster import main

PROMPT = [5 + i % 40 for i in range(100)]
# Some answers meet one of these, at places of their own.
STOPS = list(range(3, 334, 40))


def request(n, seed=1, **fields):
    fields = {**dict(temperature=1, max_tokens=60, stop_token_ids=STOPS), **fields}
    return api.generation(PROMPT, n=n, seed=seed, **fields)


def said(answer):
    return [(choice.index, list(choice.token_ids), choice.text, choice.finish_reason) for choice in answer.choices]


class Choices(ServiceTest):
    FLAGS = ("--threads", "1", "--kv-blocks", "2000")
    CASES = [(n, seed) for n in (1, 2, 3, 4, 16) for seed in (1, 2)]

    @classmethod
    def prepare(cls, alone):
        cls.alone = {case: said(alone.generate(request(*case))) for case in cls.CASES}

    # SM-03, PD-14
    def test_each_choice_has_its_own_tokens_text_and_end_in_both_kinds_of_call(self):
        lengths = set()
        for (n, seed), expected in self.alone.items():
            with self.subTest(n=n, seed=seed):
                answer = self.both(request(n, seed))
                self.assertEqual(said(answer), expected)
                self.assertEqual([choice.index for choice in answer.choices], list(range(n)))
                self.assertEqual(len({tuple(choice.token_ids) for choice in answer.choices}), n)
                self.assertEqual(answer.usage.completion_tokens,
                                 sum(len(choice.token_ids) for choice in answer.choices))
                self.assertEqual(answer.usage.prompt_tokens, len(PROMPT))
                for choice in answer.choices:
                    self.assertEqual(choice.text, self.client.detokenize(
                        [token for token in choice.token_ids if token not in STOPS]))
                    lengths.add(len(choice.token_ids))
                self.assertNotEqual(answer.workers.prefill, "")
        self.assertGreater(len(lengths), 5)
        self.assertIn(60, lengths)

    def test_a_choice_does_not_depend_on_how_many_there_are(self):
        for (n, seed), choices in self.alone.items():
            self.assertEqual(choices, self.alone[16, seed][:n])

    def test_greedy_choices_are_equal_and_seeds_repeat(self):
        answer = self.both(request(4, temperature=0))
        self.assertEqual(len({tuple(choice.token_ids) for choice in answer.choices}), 1)
        drawn = self.client.generate(api.generation(PROMPT, n=4, temperature=1, max_tokens=20))
        self.assertEqual(said(self.client.generate(api.generation(PROMPT, n=4, temperature=1, max_tokens=20,
                                                                  seed=drawn.seed))), said(drawn))

    # PD-14
    def test_the_prompt_is_computed_and_shipped_once(self):
        counters = ("baton_prompt_tokens_total", "baton_handoff_bytes_total", "baton_handoff_seconds_count")

        def counted():
            metrics = self.cluster.metrics("prefill")
            return [metrics.get(name, 0) for name in counters]

        costs = []
        for n in (1, 8):
            before = counted()
            self.client.generate(request(n, stop_token_ids=[], bypass_cache=True))
            self.assert_quiet()
            costs.append([now - then for now, then in zip(counted(), before)])
        self.assertEqual(costs[0][0], len(PROMPT))
        self.assertEqual(costs[1], costs[0])

    # PD-14
    def test_a_cancel_after_the_first_choice_ended_frees_everything(self):
        for seed in range(20):
            with self.client.stream(request(4, seed, max_tokens=400)) as stream:
                try:
                    stream.read(lambda one: len(one.finish) > 0)
                except api.Failure as failure:
                    self.fail(str(failure))
                self.assertEqual(stream.out_of_order, [])
            self.assert_quiet()

    def test_many_requests_of_many_choices_beside_each_other(self):
        numbers = random.Random(14)
        cases = [numbers.choice(self.CASES) for _ in range(24)]
        answers = api.in_threads(len(cases), lambda i: self.client.generate(request(*cases[i])))
        for case, answer in zip(cases, answers):
            self.assertEqual(said(answer), self.alone[case], case)

    def test_first_tokens_may_end_some_choices_or_all(self):
        one = self.both(request(8, max_tokens=1))
        self.assertEqual([len(choice.token_ids) for choice in one.choices], [1] * 8)
        first = sorted({ids(one, k)[0] for k in range(8)})
        some = self.both(request(8, max_tokens=6, stop_token_ids=first[:len(first) // 2]))
        self.assertEqual([ids(some, k)[0] for k in range(8)], [ids(one, k)[0] for k in range(8)])
        self.assertIn(1, {len(choice.token_ids) for choice in some.choices})
        every = self.both(request(8, max_tokens=6, stop_token_ids=first))
        self.assertEqual([len(choice.token_ids) for choice in every.choices], [1] * 8)

    def test_the_number_of_choices_has_limits(self):
        for n in (0, 17, 2 ** 32 - 1):
            self.assert_bad(request(n), "generation.n")


if __name__ == "__main__":
    main()
