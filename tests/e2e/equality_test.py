#!/usr/bin/env python3
"""Split equals unified, by token and log probability, on the real model: one decode worker alone gives
the expected answers, then clusters that differ in one axis each must repeat them.

The first argument is the number of base requests (default 12); each axis repeats them all. With
`mixed` as the second every request mixes fields, and the axes are unified and split in a crowd."""
import concurrent.futures
import random
import sys
import unittest

from cluster import Cluster, main, real_model
from mixed_sampling import differences, mixed_flags

SEED = 20240607
NUM_BASE = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 12
ALL_MIXED = len(sys.argv) > 1 and sys.argv[1] == "mixed" and bool(sys.argv.pop(1))
BLOCK = 16
VOCAB = 49152

# name, flags of the cluster, requests at once
MIXED_AXES = (
    ("unified, crowd", ["--prefill-workers", "0"], 16),
    ("split, crowd", ["--transport", "shm"], 16),
)
AXES = MIXED_AXES if ALL_MIXED else (
    ("shared memory, alone", ["--transport", "shm"], 1),
    ("shared memory, crowd", ["--transport", "shm"], 16),
    ("tcp, crowd", ["--transport", "tcp"], 16),
    ("steps of 7 tokens", ["--step-tokens", "7"], 4),
    ("steps of 512 tokens", ["--step-tokens", "512"], 4),
    ("two prefill and two decode workers, one thread each",
     ["--prefill-workers", "2", "--decode-workers", "2", "--threads", "1"], 16),
)


def base_requests():
    """Prompts around block borders first, then of any length; greedy, by a seed and mixed in turns."""
    numbers = random.Random(SEED)
    lengths = [1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 6 * BLOCK + 1]
    requests = []
    for i in range(NUM_BASE):
        length = lengths[i] if i < len(lengths) else numbers.randint(1, 200)
        tokens = ",".join(str(numbers.randrange(VOCAB)) for _ in range(length))
        request = ["--prompt-tokens", tokens, "--max-tokens", str(numbers.randint(4, 24))]
        if ALL_MIXED or i % 3 == 2:
            requests.append(request + mixed_flags(numbers, VOCAB))
            continue
        request += ["--ignore-eos"]
        if i % 3 == 1:
            request += ["--temperature", "0.9", "--top-k", "50", "--top-p", "0.95", "--min-p", "0.01",
                        "--seed", str(numbers.getrandbits(32))]
        requests.append(request)
    return requests


def answers(cluster, requests, at_once):
    """The answers in the order of the requests; an error takes the place of its answer."""
    def one(request):
        try:
            return cluster.generate_all(*request, timeout_s=600)
        except Exception as error:  # reported by the case that it belongs to
            return error
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, requests))


@unittest.skipIf(real_model() is None, "BATON_MODEL names no file")
class SplitEqualsUnified(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}, {NUM_BASE} requests on each of {len(AXES)} axes", flush=True)
        cls.requests = base_requests()
        with Cluster(real_model(), "--prefill-workers", "0") as unified:
            cls.expected = answers(unified, cls.requests, at_once=1)
            unified.assert_idle()

    def test_every_axis_repeats_the_answers(self):
        for name, flags, at_once in AXES:
            with Cluster(real_model(), *flags) as split:
                got = answers(split, self.requests, at_once)
                split.assert_idle()
            for i, (answer, expected) in enumerate(zip(got, self.expected)):
                with self.subTest(axis=name, request=i):
                    self.assert_same(answer, expected)
                    if not name.startswith("unified"):
                        self.assertNotEqual(answer[0]["workers"]["prefill"], "")

    def assert_same(self, answer, expected):
        self.assertIsInstance(expected, list)
        self.assertIsInstance(answer, list)
        self.assertEqual([choice["token_ids"] for choice in answer],
                         [choice["token_ids"] for choice in expected])
        self.assertEqual(differences(answer, expected), [])
        self.assertEqual(expected[0]["workers"]["prefill"], "")


if __name__ == "__main__":
    main()
