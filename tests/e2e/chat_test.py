#!/usr/bin/env python3
"""baton chat over a pipe: turns, cancels, ends."""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from cluster import Cluster, limit, main, tiny_model, wait_for

SLOW = {"layers": 32, "context": 4096}


class Chat:
    """A running `baton chat`."""

    def __init__(self, cluster, *flags):
        self.process = subprocess.Popen(
            [os.path.join(cluster.bin, "baton"), "chat", "--target", cluster.target, *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.output = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.output += piece

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.reader.join()
        errors = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, errors


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        self.addCleanup(shutil.rmtree, self.directory)

    def cluster(self, *flags, **model):
        return Cluster(tiny_model(self.directory, **model), "--threads", "1", *flags)

    def test_turns_carry_the_history_until_the_input_ends(self):
        with self.cluster() as cluster:
            def prompt_tokens():
                return cluster.metrics("router").get("baton_prompt_tokens_total", 0)

            alone = cluster.generate("--chat", "hi", "--max-tokens", "4", "--ignore-eos")
            before = prompt_tokens()
            chat = Chat(cluster, "--max-tokens", "4", "--ignore-eos")
            chat.say("hi")
            wait_for(lambda: chat.output.endswith(b"\n"), what="the first answer")
            self.assertEqual(chat.output.decode(), alone["text"] + "\n")
            first = prompt_tokens() - before
            self.assertEqual(first, len(alone["prompt_token_ids"]))
            chat.say("hi")
            wait_for(lambda: prompt_tokens() - before - first > 0, what="the second turn")
            second = prompt_tokens() - before - first
            self.assertGreater(second, first + 2)
            chat.say("/clear")
            chat.say("hi")
            wait_for(lambda: prompt_tokens() - before - first - second > 0, what="the third turn")
            self.assertEqual(prompt_tokens() - before - first - second, first)
            self.assertEqual(chat.end(), (0, ""))
            self.assertTrue(chat.output.decode().endswith("\n" + alone["text"] + "\n"))

    def test_a_whole_input_at_once_is_answered_line_by_line_until_quit(self):
        with self.cluster() as cluster:
            alone = cluster.generate("--chat", "hi", "--max-tokens", "3", "--ignore-eos")["text"]
            done = subprocess.run(
                [os.path.join(cluster.bin, "baton"), "chat", "--target", cluster.target,
                 "--max-tokens", "3", "--ignore-eos"],
                input=b"hi\n/clear\n\nhi\n/quit\nhi\n", capture_output=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(done.stdout.decode(), (alone + "\n") * 2)

    def test_an_error_ends_the_turn_and_not_the_program(self):
        with self.cluster() as cluster:
            chat = Chat(cluster, "--max-tokens", "2", "--ignore-eos")
            chat.say("x" * 4000)
            chat.say("hi")
            code, errors = chat.end()
            self.assertEqual(code, 1)
            self.assertIn("error: INVALID_ARGUMENT PROMPT_TOO_LONG", errors)
            self.assertEqual(errors.count("\n"), 1)
            self.assertTrue(chat.output)

    def test_an_interrupt_cancels_the_answer_and_not_the_program(self):
        with self.cluster("--backend", "reference", "--step-tokens", "16", **SLOW) as cluster:
            chat = Chat(cluster, "--max-tokens", "3500", "--ignore-eos")
            for _ in range(2):
                seen = len(chat.output)
                chat.say("the time")
                wait_for(lambda n=seen: len(chat.output) > n, what="the answer")
                # Not the last of the one before.
                wait_for(lambda: cluster.metrics("router")["baton_requests_running"] == 1, what="a request")
                chat.process.send_signal(signal.SIGINT)
                wait_for(lambda: cluster.metrics("router")["baton_requests_running"] == 0)
                wait_for(lambda: chat.output.endswith(b"\n"), what="the end of the line")
            cluster.assert_idle(limit(5))
            chat.process.send_signal(signal.SIGINT)
            chat.say("/quit")
            self.assertEqual(chat.end(), (0, ""))


if __name__ == "__main__":
    main()
