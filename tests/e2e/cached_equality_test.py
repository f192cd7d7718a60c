#!/usr/bin/env python3
"""Cached equals uncached on the real model, by token and log probability. Conversations of several tenants that share
system prompts run on two prefill and two decode workers, one at a time and in a crowd; then a cluster without a cache,
and one whose pools are so small that cached blocks come and go, answer every request once more.

Argument: the number of requests (default 36)."""
import api  # first: it may start the program again under another interpreter
import itertools
import random
import sys
import unittest

from cluster import Cluster, main, real_model, scrape
from mixed_sampling import mixed_fields

SEED = 20261201
REQUESTS = 36
TURNS = 6
AT_ONCE = 12
BLOCK = 16
VOCAB = 49152
CIRCLES = ({}, {"tenant": "a"}, {"tenant": "a", "cache_salt": b"s"}, {"tenant": "b"})
SYSTEM_LENGTHS = [blocks * BLOCK + around for blocks in (1, 2, 5, 8) for around in (-1, 0, 1)]
SYSTEM_TEXT = "You answer briefly and in whole sentences. You say so when you do not know. " * 6
QUESTIONS = ("What is the capital of France?", "And of Italy?", "Name three colours.", "Why is the sky blue?",
             "Count to five.", "Wer hat Faust geschrieben?")
ROLES = ("prefill", "decode")
SMALL_POOL = 112
HITS = 'baton_prefix_cache_requests_total{result="hit"}'


def ids(numbers, count):
    return [numbers.randrange(VOCAB) for _ in range(count)]


def drawn_fields(numbers):
    """Greedy, by a seed and mixed; one answer or several."""
    fields = {"max_tokens": numbers.randint(2, 24), "seed": 1, "ignore_eos": True}
    kind = numbers.randrange(3)
    if kind == 1:
        fields |= {"temperature": 0.9, "top_p": 0.95, "seed": numbers.getrandbits(32), "logprobs": 3}
    elif kind == 2:
        fields |= mixed_fields(numbers, VOCAB)
    if numbers.random() < 0.25:
        fields["n"] = numbers.randint(2, 4)
    return fields


class Prompt:
    """Of a conversation so far: token ids, or text in the model's template."""

    def __init__(self, numbers, systems):
        self.numbers = numbers
        self.ids = list(numbers.choice(systems)) if numbers.random() < 0.7 else None
        self.turns = [("system", SYSTEM_TEXT[:numbers.choice((40, 90, 400))])]

    def ask(self):
        if self.ids is not None:
            self.ids += ids(self.numbers, self.numbers.randint(1, 40))
        else:
            self.turns.append(("user", self.numbers.choice(QUESTIONS)))

    def take(self, answer):
        choice = self.numbers.choice(answer.choices)
        if self.ids is not None:
            self.ids += choice.token_ids
        else:
            self.turns.append(("assistant", choice.text))

    def input(self):
        return {"content": self.ids} if self.ids is not None else {"chat_turns": self.turns}


def conversation(number, systems):
    """Its requests, the answer to each of which is sent in before the next. Some are asked again: after the first
    token alone, which leaves the prompt at the source; as they were; for the log probabilities of the prompt, of
    which a source finds nothing."""
    numbers = random.Random(SEED + number)
    circle = CIRCLES[number % len(CIRCLES)]
    prompt = Prompt(numbers, systems)
    while True:
        prompt.ask()
        asked = {**prompt.input(), **circle}
        more = numbers.choice(("first token", "again", "prompt", None, None))
        if more == "first token":
            yield api.generation(**asked, max_tokens=1, seed=1)
        answer = yield api.generation(**asked, **drawn_fields(numbers))
        if more == "again":
            yield api.generation(**asked, **drawn_fields(numbers))
        if more == "prompt":
            yield api.generation(**asked, **{**drawn_fields(numbers), "prompt_logprobs": 1})
        prompt.take(answer)


def hold(talk, turns, ask):
    """[(request, answer)] of so many turns."""
    done, answer = [], None
    for _ in range(turns):
        request = talk.send(answer)
        answer = ask(request)
        done.append((request, answer))
    return done


def total(cluster, role, name):
    return sum(scrape(worker["metrics"]).get(name, 0) for worker in cluster.info["workers"] if worker["role"] == role)


def shared(one, other):
    """How many tokens two lists begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


@unittest.skipIf(real_model() is None, "BATON_MODEL names no file")
class CachedEqualsUncached(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        numbers = random.Random(SEED)
        # Two of each length, so that a stem is not always of the one it seems.
        systems = [ids(numbers, length) for length in 2 * SYSTEM_LENGTHS]
        talks = [conversation(number, systems) for number in range(REQUESTS // TURNS)]
        print(f"seed {SEED}: {len(talks)} conversations of {TURNS} requests", flush=True)
        with cls.cluster("--kv-blocks", "512") as cluster, api.Client(cluster.target) as client:
            cls.places = dict.fromkeys(itertools.product((False, True), repeat=2), 0)
            cls.done = []
            for talk in talks[::3]:
                cls.done += hold(talk, TURNS, lambda request: cls.ask_and_note_place(cluster, client, request))
            crowd = [talk for number, talk in enumerate(talks) if number % 3 != 0]
            for first in range(0, len(crowd), AT_ONCE):
                part = crowd[first:first + AT_ONCE]
                for one in api.in_threads(len(part), lambda i, part=part: hold(
                        part[i], TURNS, lambda request: client.generate(request))):
                    cls.done += one
            cls.assert_clean(cluster)

    @staticmethod
    def cluster(*flags):
        return Cluster(real_model(), "--prefill-workers", "2", "--decode-workers", "2", "--threads", "1", *flags)

    @classmethod
    def ask_and_note_place(cls, cluster, client, request):
        before = [total(cluster, role, HITS) for role in ROLES]
        answer = client.generate(request)
        found = tuple(total(cluster, role, HITS) > hits for role, hits in zip(ROLES, before))
        cls.places[found] += 1
        assert found[0] == (answer.usage.cached_prompt_tokens > 0), (found, answer.usage)
        return answer

    @staticmethod
    def assert_clean(cluster):
        cluster.assert_idle()
        for role in ROLES:
            assert total(cluster, role, "baton_kv_self_check_violations_total") == 0, role

    def answers(self, cluster, order):
        """Of all requests, asked in this order."""
        requests = [self.done[i][0] for i in order]
        with api.Client(cluster.target) as client:
            def some(thread):
                return [client.generate(request) for request in requests[thread::AT_ONCE]]
            parts = api.in_threads(AT_ONCE, some)
        answers = [None] * len(order)
        for place, i in enumerate(order):
            answers[i] = parts[place % AT_ONCE][place // AT_ONCE]
        return answers

    def assert_equal_answers(self, answers):
        self.assertEqual(len(answers), len(self.done))
        for i, (answer, (request, cached)) in enumerate(zip(answers, self.done)):
            with self.subTest(request=i):
                self.assertEqual([list(choice.token_ids) for choice in answer.choices],
                                 [list(choice.token_ids) for choice in cached.choices], request)
                self.assertEqual(api.decided(answer), api.decided(cached), request)

    def test_without_a_cache_the_answers_are_the_same(self):
        with self.cluster("--kv-blocks", "512", "--prefix-cache", "off") as cluster:
            answers = self.answers(cluster, range(len(self.done)))
            self.assert_clean(cluster)
        self.assertEqual({answer.usage.cached_prompt_tokens for answer in answers}, {0})
        self.assert_equal_answers(answers)

    def test_while_blocks_are_given_up_the_answers_are_the_same(self):
        order = list(range(len(self.done)))
        random.Random(SEED).shuffle(order)
        with self.cluster("--kv-blocks", str(SMALL_POOL)) as cluster:
            answers = self.answers(cluster, order)
            for role in ROLES:
                self.assertGreater(total(cluster, role, HITS), 0)
                if len(order) > 100:
                    self.assertGreater(total(cluster, role, "baton_prefix_cache_evictions_total"), 0)
            self.assert_clean(cluster)
        self.assert_equal_answers(answers)

    def test_prefixes_were_found_at_the_source_at_the_sink_and_at_both(self):
        print({f"source {source}, sink {sink}": count for (source, sink), count in self.places.items()}, flush=True)
        for place, count in self.places.items():
            self.assertGreater(count, 0, place)

    def test_nobody_found_what_its_tenant_and_salt_did_not_leave(self):
        said = [[list(answer.prompt_token_ids) + list(choice.token_ids) for choice in answer.choices]
                for _, answer in self.done]
        circles = [(request.tenant, request.cache_salt) for request, _ in self.done]
        for i, (_, answer) in enumerate(self.done):
            with self.subTest(request=i):
                others = itertools.chain.from_iterable(
                    said[j] for j, circle in enumerate(circles) if j != i and circle == circles[i])
                most = max((shared(answer.prompt_token_ids, other) for other in others), default=0)
                self.assertLessEqual(answer.usage.cached_prompt_tokens, most)
        self.assertGreater(sum(answer.usage.cached_prompt_tokens for _, answer in self.done), len(self.done) * BLOCK)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        REQUESTS = int(sys.argv.pop(1))
    main()
