#!/usr/bin/env python3
"""A decode worker whose pool holds 40 % of what its requests need at once: all of them end, each as with room for all;
sequences are preempted, and the oldest one always goes on.

Arguments: the number of requests (default 200); `real` for the real model."""
import api  # first: it may start the program again under another interpreter
import random
import shutil
import sys
import tempfile
import threading
import unittest

from cluster import Cluster, main, real_model, scrape, tiny_model
from mixed_sampling import mixed_fields

SEED = 20261202
REAL = "real" in sys.argv and bool(sys.argv.pop(sys.argv.index("real")))
REQUESTS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 200
AT_ONCE = 40
SHARE = 0.4
BLOCK = 16
VOCAB = 49152 if REAL else 256  # of a tiny model: ids that every one has
LAYERS = 48  # of a tiny model: so slow that a client in Python keeps up
PREEMPTIONS = "baton_preemptions_total"
# A step gives a token to each of about AT_ONCE choices. Between two tokens of the oldest come steps with its prompt, at
# first or once more when it was preempted before it was the oldest, and what was on the way to other clients.
MOST_STEPS_BETWEEN = 15


def requests():
    """Short prompts and long answers, so that little is known of the need when they start."""
    numbers = random.Random(SEED)
    out = [api.generation([i] * 20, max_tokens=76, seed=i, ignore_eos=True) for i in (1, 2)]  # they reach borders together
    for i in range(REQUESTS - len(out)):
        fields = {"max_tokens": numbers.randint(48, 96), "seed": i, "ignore_eos": True}
        if i % 3 == 1:
            fields |= {"temperature": 0.9, "top_p": 0.95, "logprobs": 2}
        elif i % 3 == 2:
            fields |= mixed_fields(numbers, VOCAB)
        if i % 8 == 7:
            fields["n"] = 2
        prompt = [numbers.randrange(VOCAB) for _ in range(numbers.randint(1, 70))]
        out.append(api.generation(prompt, **fields))
    return out


def blocks_needed(request):
    """When its answer is whole: whole blocks of the prompt once, the rest for each choice. The last token never runs."""
    shared, rest = divmod(len(request.prompt.segments[0].token_ids.ids), BLOCK)
    return shared + max(1, request.n) * -(-(rest + request.stop.max_tokens - 1) // BLOCK)


def blocks_at_once(asked):
    """The most that AT_ONCE requests in a row need."""
    needs = [blocks_needed(request) for request in asked]
    return max(sum(needs[first:first + AT_ONCE]) for first in range(len(needs)))


class Progress:
    """In which order tokens came to whom. Called by many threads; requests are numbered by age."""

    def __init__(self):
        self.lock = threading.Lock()
        self.sent = 0
        self.unfinished = {}  # number: tokens of all requests when it got its last one or became the oldest
        self.tokens = 0
        self.longest_wait = 0

    def start(self, send, limit):
        """The next request's number and stream, once the router has it; nothing after `limit` of them."""
        with self.lock:
            if self.sent == limit:
                return None
            number, self.sent = self.sent, self.sent + 1
            stream = send(number).read(lambda stream: stream.started is not None)
            self.unfinished[number] = self.tokens
            return number, stream

    def token(self, number, count):
        with self.lock:
            if number == min(self.unfinished):
                self.longest_wait = max(self.longest_wait, self.tokens - self.unfinished[number])
            self.tokens += count
            self.unfinished[number] = self.tokens

    def end(self, number):
        with self.lock:
            del self.unfinished[number]
            if self.unfinished:
                self.unfinished[min(self.unfinished)] = self.tokens


def whole_answer(stream):
    """All that it said, however it was cut."""
    return stream.ids, stream.texts, stream.finish, stream.prompt_logprobs, stream.logprobs


def run_all(target, asked):
    """The answers, and what Progress saw."""
    progress, answers = Progress(), [None] * len(asked)
    with api.Client(target) as client:
        def send(number):
            return client.stream(asked[number])

        def work(_):
            while (started := progress.start(send, len(asked))) is not None:
                number, stream = started
                for kind, event in stream:
                    if kind == "delta" and event.token_ids:
                        progress.token(number, len(event.token_ids))
                answers[number] = whole_answer(stream.read())  # raises when it failed
                progress.end(number)
        api.in_threads(AT_ONCE, work)
    return answers, progress


@unittest.skipIf(REAL and real_model() is None, "BATON_MODEL names no file")
class Preemption(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        cls.model = real_model() if REAL else tiny_model(cls.directory, layers=LAYERS)
        cls.requests = requests()
        cls.demand = blocks_at_once(cls.requests)
        print(f"seed {SEED}: {REQUESTS} requests, {AT_ONCE} at once need {cls.demand} blocks", flush=True)
        with cls.cluster("--prefill-workers", "0", "--kv-blocks", str(cls.demand + AT_ONCE)) as cluster:
            cls.expected, _ = run_all(cluster.target, cls.requests)
            assert cls.preemptions(cluster) == 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    @classmethod
    def cluster(cls, *flags):
        return Cluster(cls.model, "--threads", "1", *flags)

    @staticmethod
    def preemptions(cluster):
        return sum(scrape(worker["metrics"])[PREEMPTIONS] for worker in cluster.info["workers"]
                   if worker["role"] == "decode")

    def check(self, *flags):
        pool = int(SHARE * self.demand)
        with self.cluster("--kv-blocks", str(pool), *flags) as cluster:
            answers, progress = run_all(cluster.target, self.requests)
            cluster.assert_idle()
            print(f"{pool} blocks: {self.preemptions(cluster):.0f} preemptions; the oldest waited for "
                  f"{progress.longest_wait} tokens of others at most", flush=True)
            self.assertGreater(self.preemptions(cluster), 0)
            for worker in cluster.info["workers"]:
                self.assertEqual(scrape(worker["metrics"])["baton_kv_self_check_violations_total"], 0)
        for number, (answer, expected) in enumerate(zip(answers, self.expected)):
            with self.subTest(request=number):
                self.assertEqual(answer, expected)
        self.assertLess(progress.longest_wait, MOST_STEPS_BETWEEN * AT_ONCE)

    def test_behind_a_prefill_worker(self):
        self.check()

    def test_alone(self):
        self.check("--prefill-workers", "0")

    @unittest.skipIf(REAL, "the tiny model does")
    def test_without_a_cache_of_what_was_preempted(self):
        self.check("--prefix-cache", "off")

    def test_two_that_need_the_last_block_do_not_freeze(self):
        pair, expected = self.requests[:2], self.expected[:2]
        need = blocks_needed(pair[0])
        self.assertEqual(need, blocks_needed(pair[1]))
        for lacking in (1, 2, need):
            with self.cluster("--kv-blocks", str(2 * need - lacking)) as cluster, api.Client(cluster.target) as client:
                streams = [client.stream(request) for request in pair]
                answers = api.in_threads(2, lambda i, streams=streams: whole_answer(streams[i].read()))
                cluster.assert_idle()
            self.assertEqual(answers, expected, lacking)


if __name__ == "__main__":
    main()
