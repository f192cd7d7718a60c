#!/usr/bin/env python3
"""Split equals unified on the tiny model, by token and log probability: the full product of prompt lengths
around every block border, greedy, seeded and mixed fields, chunk sizes, alone and in a crowd, over the transports between processes. One
decode worker alone gives the expected tokens. (in_process: tests/equality.)"""
import concurrent.futures
import random
import tempfile
import unittest

from cluster import Cluster, main, tiny_model
from mixed_sampling import differences, mixed_flags

SEED = 20240613
BLOCK = 16
VOCAB = 256  # ids that every tiny model has
CHUNKS = (1, 7, 16, 64, 256)  # the last holds any prompt here whole
TRANSPORTS = ("shm", "tcp")
CROWD = 17
LENGTHS = sorted({k * BLOCK + d for k in range(7) for d in (-1, 0, 1)} - {-1, 0})


def requests():
    numbers = random.Random(SEED)
    out = []
    for length in LENGTHS:
        tokens = ",".join(str(numbers.randrange(VOCAB)) for _ in range(length))
        plain = ["--prompt-tokens", tokens, "--max-tokens", "6"]
        base = plain + ["--ignore-eos"]
        out.append(base)
        out.append(plain + mixed_flags(numbers, VOCAB))
        out.append(base + ["--temperature", "0.8", "--top-p", "0.95", "--seed", str(numbers.getrandbits(32))])
    return out


def answers(cluster, asked, at_once):
    def one(request):
        try:
            return cluster.generate_all(*request)
        except Exception as error:  # takes the place of its answer
            return error
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, asked))


class SplitEqualsUnified(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model(cls.folder.name)
        cls.requests = requests()
        print(f"seed {SEED}: {len(cls.requests)} requests, {len(TRANSPORTS)} transports, "
              f"{len(CHUNKS)} chunk sizes, alone and {CROWD} at once", flush=True)
        with Cluster(cls.model, "--prefill-workers", "0") as unified:
            cls.expected = answers(unified, cls.requests, at_once=1)
            unified.assert_idle()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, transport, chunk):
        with Cluster(self.model, "--transport", transport, "--step-tokens", str(chunk)) as split:
            for at_once in (1, CROWD):
                got = answers(split, self.requests, at_once)
                for i, (answer, expected) in enumerate(zip(got, self.expected)):
                    with self.subTest(transport=transport, chunk=chunk, at_once=at_once, request=i):
                        self.assertIsInstance(expected, list)
                        self.assertIsInstance(answer, list)
                        self.assertEqual([choice["token_ids"] for choice in answer],
                                         [choice["token_ids"] for choice in expected])
                        self.assertEqual(differences(answer, expected), [])
                        self.assertNotEqual(answer[0]["workers"]["prefill"], "")
            split.assert_idle()


def add_cases():
    for transport in TRANSPORTS:
        for chunk in CHUNKS:
            def case(self, transport=transport, chunk=chunk):
                self.check(transport, chunk)
            setattr(SplitEqualsUnified, f"test_{transport}_in_chunks_of_{chunk}", case)


add_cases()

if __name__ == "__main__":
    main()
