#!/usr/bin/env python3
"""Sampling fields, stops and limits (entries SM)."""
import itertools
import math
import random
import unittest

from service import ServiceTest, ids
import api
from cluster import main
import gguf_file

VOCAB = 3 + 256 + 75      # model/tiny_vocab.h
END_OF_TEXT, IM_START, IM_END = 0, 1, 2
BYTES = 3                 # the token of byte b is BYTES + b
# What cannot be printed is not chosen.
ASCII_ONLY = {BYTES + byte: -100 for byte in range(256) if not 32 <= byte < 127}


class Sampling(ServiceTest):
    def answers(self, requests):
        """All at once."""
        return api.in_threads(len(requests), lambda i: self.client.generate(requests[i]))

    # SM-01
    def test_every_stop_string_across_a_token_edge_ends_the_text_before_it(self):
        fields = dict(max_tokens=24, ignore_eos=True, logit_bias=ASCII_ONLY)
        whole = self.client.generate(api.generation("a b c", **fields)).choices[0]
        pieces = [self.client.detokenize([one]) for one in whole.token_ids]
        self.assertEqual("".join(pieces), whole.text)
        edges = list(itertools.accumulate(len(piece) for piece in pieces))[:-1]
        stops = {whole.text[start:start + length] for length in range(2, 13) for edge in edges
                 for start in range(max(edge - length + 1, 0), edge)}
        self.assertGreater(len(stops), 100)

        def check(stop):
            answer = self.both(api.generation("a b c", stop_strings=[stop], **fields)).choices[0]
            # A stop string longer than what is left of the text is not in it.
            found = whole.text.find(stop)
            self.assertEqual(answer.text, whole.text[:found] if found >= 0 else whole.text, repr(stop))
            self.assertEqual(api.pb_finish(answer.finish_reason), "stop" if found >= 0 else "length")
            self.assertEqual(list(answer.token_ids), list(whole.token_ids[:len(answer.token_ids)]))

        stops = sorted(stops)
        lanes = 8
        api.in_threads(lanes, lambda lane: [check(stop) for stop in stops[lane::lanes]])

    # SM-02
    def test_a_special_token_as_stop_cuts_no_ordinary_text_and_shows_none_of_its_own(self):
        for token, include in itertools.product((END_OF_TEXT, IM_START, IM_END), (False, True)):
            with self.subTest(token=token, include_stop=include):
                answer = self.both(api.generation(
                    "a b c", logit_bias={token: 100, **ASCII_ONLY}, min_tokens=5, max_tokens=20, stop_token_ids=[token],
                    ignore_eos=True, include_stop=include)).choices[0]
                self.assertEqual(answer.token_ids[-1], token)
                self.assertEqual(len(answer.token_ids), 6)
                self.assertEqual(answer.text, self.client.detokenize(answer.token_ids[:5]))
                self.assertEqual(api.pb_finish(answer.finish_reason), "stop")
        hidden = self.both(api.generation("a b c", logit_bias={IM_START: 100}, max_tokens=8)).choices[0]
        self.assertEqual((list(hidden.token_ids), hidden.text), ([IM_START] * 8, ""))

    # SM-04
    def test_a_seeded_request_gives_the_same_beside_unseeded_ones(self):
        seeded = api.generation("a b c", temperature=1, seed=5, max_tokens=24, ignore_eos=True)
        unseeded = api.generation("a b c", temperature=1, max_tokens=24, ignore_eos=True)
        alone = ids(self.client.generate(seeded))
        others = set()
        for mates in [*range(16), *range(1, 16, 4)]:
            answers = self.answers([seeded] + [unseeded] * mates)
            self.assertEqual(ids(answers[0]), alone, mates)
            others |= {tuple(ids(answer)) for answer in answers[1:]}
        self.assertGreater(len(others), 100)  # they had seeds of their own

    # SM-05
    def test_tiny_temperatures_and_top_p_are_greedy_and_do_no_harm_to_the_batch(self):
        fields = dict(max_tokens=16, ignore_eos=True)
        greedy = ids(self.client.generate(api.generation("a b c", **fields)))
        tiny = ([dict(temperature=t) for t in (0, 1e-45, 1e-9, 1e-6, 1e-4)] +
                [dict(temperature=t, top_p=p) for t in (1e-4, 1, 2) for p in (1e-45, 1e-9, 1e-4)])
        requests = [api.generation("a b c", seed=3, **one, **fields) for one in tiny]
        for one, request in zip(tiny, requests):
            with self.subTest(**one):
                self.assertEqual(ids(self.both(request)), greedy)
        warm = [api.generation("a b c", seed=9, temperature=t, **fields) for t in (1e-2, 0.5, 1, 100)]
        alone = [ids(self.client.generate(one)) for one in warm]
        together = [ids(one) for one in self.answers(requests + warm)]
        self.assertEqual(together, [greedy] * len(requests) + alone)
        self.assert_bad(api.generation("a b c", top_p=0), "generation.sampling.top_p")

    # SM-06
    def test_each_number_out_of_its_range_is_refused_by_name(self):
        huge, nan, inf = 3e38, math.nan, math.inf
        for field, values in {
                "temperature": (-1, -1e-6, 999999, 100.5, huge, -huge, nan, inf, -inf),
                "top_k": (-1, -2 ** 31),
                "top_p": (-1, 0, 1.01, 999999, huge, nan, inf, -inf),
                "min_p": (-1, -1e-6, 1.01, 999999, huge, nan, inf, -inf),
                "presence_penalty": (-2.01, 2.01, 999999, huge, nan, inf, -inf),
                "frequency_penalty": (-2.01, 2.01, 999999, huge, nan, inf, -inf),
                "repetition_penalty": (0, -1, 0.009, 101, 999999, huge, nan, inf, -inf)}.items():
            for value in values:
                with self.subTest(field=field, value=value):
                    # Beside good and bad values of others: the first in the message's order is named.
                    self.assert_bad(api.generation("a", **{field: value}), "generation.sampling." + field)
        for bias in (100.5, -100.5, huge, nan, inf, -inf):
            with self.subTest(bias=bias):
                self.assert_bad(api.generation("a", logit_bias={5: bias}), "generation.sampling.logit_bias[0].bias")
        for field, value in (("min_tokens", 2 ** 32 - 1), ("max_tokens", 0), ("max_tokens", -1)):
            with self.subTest(field=field, value=value):
                self.assert_bad(api.generation("a", **{field: value}), "generation.stop." + field)

    def test_any_product_of_extreme_values_is_answered_or_refused(self):
        numbers = random.Random(6)
        floats = (0, -0.0, 1e-45, 1e-6, 0.5, 1, 2, 100, -1, 999999, 3e38, -3e38, math.nan, math.inf, -math.inf)
        counts = (0, 1, 2, 50, 2 ** 31 - 1, -1, -2 ** 31)
        served = 0
        for _ in range(300):
            fields = {name: numbers.choice(floats) for name in
                      ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
                      if numbers.random() < 0.4}
            if numbers.random() < 0.5:
                fields["top_k"] = numbers.choice(counts)
            try:
                served += len(ids(self.client.generate(api.generation("a b c", max_tokens=2, **fields)))) > 0
            except api.Failure as failure:
                self.assertEqual((failure.code, failure.reason), ("INVALID_ARGUMENT", "INVALID_FIELD"), fields)
        self.assertGreater(served, 30)

    # SM-07
    def test_ids_outside_the_vocabulary_are_refused_wherever_they_stand(self):
        for token in (-1, VOCAB, VOCAB + 1, 2 ** 31 - 1, -2 ** 31):
            with self.subTest(token=token):
                self.assert_bad(api.generation("a", logit_bias={5: 1, token: 1}),
                                "generation.sampling.logit_bias[1].token_id")
                self.assert_bad(api.generation("a", stop_token_ids=[5, token]), "generation.stop.stop_token_ids[1]")
                self.assert_bad(api.generation([5, token]), "generation.prompt.segments[0].token_ids.ids[1]")
                with self.assertRaises(api.Failure) as caught:
                    self.client.detokenize([token])
                self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        self.assertEqual(len(ids(self.client.generate(api.generation([VOCAB - 1], max_tokens=1)))), 1)

    # SM-08
    def test_a_penalty_acts_on_its_own_request_in_any_order_of_arrival(self):
        fields = dict(max_tokens=24, ignore_eos=True, logit_bias={7: 5})
        penalised = api.generation("a b c", repetition_penalty=2, presence_penalty=1, **fields)
        plain = api.generation("a b c", **fields)
        alone = [ids(self.client.generate(one)) for one in (penalised, plain)]
        self.assertNotEqual(*alone)
        for _ in range(25):
            first, second = self.client.start(penalised), self.client.start(plain)
            self.assertEqual([ids(first.result()), ids(second.result())], alone)
            second, first = self.client.start(plain), self.client.start(penalised)
            self.assertEqual([ids(first.result()), ids(second.result())], alone)

    # SM-10
    def test_max_tokens_zero_is_refused_with_and_without_prompt_logprobs(self):
        for extra in ({}, {"prompt_logprobs": 0}, {"prompt_logprobs": 20, "logprobs": 20}):
            for content in ("a b c", [5] * 40):
                self.assert_bad(api.generation(content, max_tokens=0, **extra), "generation.stop.max_tokens")
        self.assertEqual(len(ids(self.both(api.generation("a b c", max_tokens=1, prompt_logprobs=0)))), 1)

    # SM-13
    def test_each_token_has_its_log_probabilities_in_both_kinds_of_call(self):
        fields = dict(max_tokens=40, ignore_eos=True, temperature=1, seed=7)
        plain = self.both(api.generation("a b c", **fields))
        self.assertEqual(list(plain.choices[0].logprobs), [])
        for top in (0, 1, 5):
            with self.subTest(top=top):
                request = api.generation("a b c", logprobs=top, **fields)
                choice = self.client.generate(request).choices[0]
                self.assertEqual(list(choice.token_ids), ids(plain))
                self.assertEqual([one.token_id for one in choice.logprobs], ids(plain))
                self.assertEqual({len(one.top) for one in choice.logprobs}, {top})
                for one in choice.logprobs:
                    ranked = [(-other.logprob, other.token_id) for other in one.top]
                    self.assertEqual(ranked, sorted(ranked))
                    self.assertTrue(all(other.logprob == one.logprob for other in one.top if other.token_id == one.token_id))
                    # The chosen token is one of the best, or none of them is less likely than it.
                    self.assertTrue(top == 0 or one.token_id in {other.token_id for other in one.top} or
                                    one.logprob <= one.top[-1].logprob)
                stream = self.client.stream(request).read()
                self.assertEqual(stream.logprobs[0], list(choice.logprobs))
                for kind, event in stream.events:
                    if kind == "delta":
                        self.assertEqual([one.token_id for one in event.logprobs], list(event.token_ids))


class TwoEndTokens(ServiceTest):
    @staticmethod
    def edit(file):
        file.set("tokenizer.ggml.eot_token_id", gguf_file.UINT32, END_OF_TEXT)

    # SM-09
    def test_ignore_eos_ignores_every_end_token_of_the_model(self):
        for token in (END_OF_TEXT, IM_END):
            with self.subTest(token=token):
                forced = dict(logit_bias={token: 100}, max_tokens=50)
                ended = self.both(api.generation("a b c", **forced)).choices[0]
                self.assertEqual((list(ended.token_ids), api.pb_finish(ended.finish_reason)), ([token], "stop"))
                ignored = self.both(api.generation("a b c", ignore_eos=True, **forced)).choices[0]
                self.assertEqual((list(ignored.token_ids), api.pb_finish(ignored.finish_reason)),
                                 ([token] * 50, "length"))


if __name__ == "__main__":
    main()
