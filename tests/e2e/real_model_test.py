#!/usr/bin/env python3
"""The real model in a real cluster: split = unified, on each transport."""
import unittest

from cluster import Cluster, main, real_model

PROMPTS = [
    ("--prompt", "Once upon a time"),
    ("--prompt", "The"),
    ("--chat", "What is the capital of France?"),
    ("--prompt", "Der Fluß überquert die Brücke. 日本語のテキスト 🎉 " * 3),
    ("--prompt", "def fibonacci(n):\n    " * 9),
]
VARIATIONS = [(), ("--temperature", "0.8", "--top-p", "0.9", "--seed", "3"),
              ("--temperature", "1.2", "--top-k", "40", "--min-p", "0.05", "--seed", "4")]


@unittest.skipIf(real_model() is None, "BATON_MODEL names no file")
class RealModel(unittest.TestCase):
    def answers(self, *flags):
        with Cluster(real_model(), *flags) as cluster:
            out = [cluster.generate(*prompt, "--max-tokens", "16", *variation)
                   for prompt in PROMPTS for variation in VARIATIONS]
            cluster.assert_idle()
            return out

    def test_split_gives_the_tokens_of_unified_on_each_transport(self):
        unified = self.answers("--prefill-workers", "0")
        self.assertEqual({a["workers"]["prefill"] for a in unified}, {""})
        for transport in ("shm", "tcp"):
            split = self.answers("--transport", transport)
            self.assertEqual({a["workers"]["prefill"] for a in split}, {"prefill-0"})
            self.assertEqual([a["token_ids"] for a in split], [a["token_ids"] for a in unified])
            self.assertEqual([a["text"] for a in split], [a["text"] for a in unified])

    def test_chat_answers_the_question(self):
        with Cluster(real_model()) as cluster:
            answer = cluster.generate("--chat", "What is the capital of France? Answer in one sentence.",
                                      "--max-tokens", "24")
            self.assertIn("Paris", answer["text"])
            self.assertEqual(answer["finish_reason"], "stop")


if __name__ == "__main__":
    main()
