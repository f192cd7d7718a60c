#!/usr/bin/env python3
"""Cached prefixes through the whole cluster: what they spare, whom they are shared with, and that no token changes."""
import shutil
import tempfile
import unittest

from cluster import Cluster, main, tiny_model

FIRST = [7 * i % 250 for i in range(70)]


def flags(tokens, *more, max_tokens=40):
    return ("--prompt-tokens", ",".join(map(str, tokens)), "--max-tokens", str(max_tokens), "--ignore-eos",
            "--temperature", "0.9", "--seed", "3", *more)


def cached(answer):
    return answer["usage"]["cached_prompt_tokens"]


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        self.addCleanup(shutil.rmtree, self.directory)

    def cluster(self, *more):
        return Cluster(tiny_model(self.directory), "--threads", "1", "--step-tokens", "64", *more)

    def assert_clean(self, cluster):
        cluster.assert_idle()
        for role in {worker["role"] for worker in cluster.info["workers"]}:
            self.assertEqual(cluster.metrics(role)["baton_kv_self_check_violations_total"], 0)

    def test_a_second_turn_finds_the_first_one_at_both_workers(self):
        with self.cluster() as cluster:
            def shipped():
                cluster.assert_idle()  # the source has counted it
                return cluster.metrics("prefill").get("baton_handoff_bytes_total", 0)

            first = cluster.generate(*flags(FIRST))
            self.assertEqual(cached(first), 0)
            whole = shipped()
            again = cluster.generate(*flags(FIRST))
            self.assertEqual(cached(again), 64)
            self.assertEqual(again["token_ids"], first["token_ids"])
            # Of five blocks the sink lacked the last, partly filled one.
            self.assertAlmostEqual((shipped() - whole) / whole, 1 / 5)
            turn = FIRST + first["token_ids"] + [5, 6, 7]
            before = shipped()
            second = cluster.generate(*flags(turn))
            self.assertEqual(cached(second), 64)  # the prefill worker never saw the answer
            # The decode worker has all but the answer's last token, 109 in whole blocks: 96 of 113.
            self.assertAlmostEqual((shipped() - before) / whole, 2 / 5)
            plain = cluster.generate(*flags(turn, "--bypass-cache"))
            self.assertEqual(cached(plain), 0)
            self.assertEqual(second["token_ids"], plain["token_ids"])
            self.assertEqual(second["text"], plain["text"])
            self.assert_clean(cluster)

    def test_a_unified_worker_finds_its_own_answers(self):
        with self.cluster("--prefill-workers", "0") as cluster:
            first = cluster.generate(*flags(FIRST))
            turn = FIRST + first["token_ids"] + [5, 6, 7]
            second = cluster.generate(*flags(turn))
            self.assertEqual(cached(second), 96)
            plain = cluster.generate(*flags(turn, "--bypass-cache"))
            self.assertEqual(second["token_ids"], plain["token_ids"])
            metrics = cluster.metrics("decode")
            self.assertEqual(metrics['baton_prefix_cache_requests_total{result="hit"}'], 1)
            self.assertEqual(metrics['baton_prefix_cache_requests_total{result="miss"}'], 1)
            self.assertEqual(metrics["baton_prefix_cached_tokens_total"], 96)
            self.assertGreater(metrics['baton_kv_blocks{state="cached"}'], 0)
            self.assert_clean(cluster)

    def test_conversations_that_take_turns_on_several_workers_answer_as_without_a_cache(self):
        with self.cluster("--prefill-workers", "2", "--decode-workers", "2") as cluster:
            prompts = [[first] + FIRST for first in range(3)]
            found = 0
            for _ in range(4):
                for i, prompt in enumerate(prompts):
                    answer = cluster.generate(*flags(prompt, max_tokens=20))
                    plain = cluster.generate(*flags(prompt, "--bypass-cache", max_tokens=20))
                    self.assertEqual(answer["token_ids"], plain["token_ids"])
                    found += cached(answer)
                    prompts[i] = prompt + answer["token_ids"] + [i] * 5
            self.assertGreater(found, 0)
            self.assert_clean(cluster)

    def test_tenants_and_salts_share_nothing(self):
        with self.cluster("--prefill-workers", "0") as cluster:
            circles = [(), ("--tenant", "a"), ("--tenant", "b"), ("--cache-salt", "a"),
                       ("--tenant", "a", "--cache-salt", "s")]
            for circle in circles:
                self.assertEqual(cached(cluster.generate(*flags(FIRST, *circle, max_tokens=2))), 0, circle)
            for circle in circles:
                self.assertEqual(cached(cluster.generate(*flags(FIRST, *circle, max_tokens=2))), 64, circle)

    def test_a_request_that_bypasses_leaves_nothing_behind(self):
        with self.cluster("--prefill-workers", "0") as cluster:
            cluster.generate(*flags(FIRST, "--bypass-cache"))
            self.assertEqual(cluster.metrics("decode")['baton_kv_blocks{state="cached"}'], 0)
            self.assertEqual(cached(cluster.generate(*flags(FIRST))), 0)

    def test_it_can_be_turned_off(self):
        with self.cluster("--prefix-cache", "off") as cluster:
            tokens = [cluster.generate(*flags(FIRST)) for _ in range(2)]
            self.assertEqual([cached(answer) for answer in tokens], [0, 0])
            self.assertEqual(tokens[0]["token_ids"], tokens[1]["token_ids"])
            self.assertEqual(cluster.metrics("decode")['baton_kv_blocks{state="cached"}'], 0)

    def test_a_pool_full_of_cached_blocks_gives_them_up(self):
        with self.cluster("--kv-blocks", "12") as cluster:
            answers = {}
            for i in list(range(6)) + list(range(6)):
                prompt = [i] + FIRST
                answer = cluster.generate(*flags(prompt, max_tokens=20))
                self.assertEqual(answers.setdefault(i, answer["token_ids"]), answer["token_ids"])
            self.assertGreater(cluster.metrics("decode")["baton_prefix_cache_evictions_total"], 0)
            self.assert_clean(cluster)


if __name__ == "__main__":
    main()
