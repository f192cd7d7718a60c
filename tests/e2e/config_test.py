#!/usr/bin/env python3
"""Flags, files and defaults of the four programs, as a person meets them."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from cluster import RUNFILES, Cluster, main, program, tiny_model

ROLES = {"up": [program("baton"), "up"], "router": [program("baton-router")],
         "prefill-worker": [program("baton-prefill-worker")],
         "decode-worker": [program("baton-decode-worker")]}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


class Configuration(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        self.addCleanup(shutil.rmtree, self.directory)

    def file(self, text):
        path = os.path.join(self.directory, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        return path

    def printed(self, role, *flags):
        done = run(*ROLES[role], "--print-config", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_what_a_program_prints_is_accepted_and_printed_again(self):
        for role in ROLES:
            with self.subTest(role=role):
                first = self.printed(role, "--max-queue", "77")
                self.assertEqual(json.loads(first)["max-queue"], 77)
                path = self.file(first)
                self.assertEqual(self.printed(role, "--config", path), first)
                checked = run(program("baton"), "check-config", path, "--role", role)
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertIn("needs --model", checked.stdout)

    def test_flag_over_file_over_default(self):
        for role in ROLES:
            with self.subTest(role=role):
                path = self.file({"max-queue": 5, "ready-file": "r"})
                value = json.loads(self.printed(role, "--config", path, "--max-queue=6"))
                self.assertEqual((value["max-queue"], value["ready-file"]), (6, "r"))
                self.assertEqual(json.loads(self.printed(role))["max-queue"], 1024)

    def test_a_bad_file_is_refused_in_one_line_that_names_key_value_and_limit(self):
        listen_twice = {"listen": "127.0.0.1:80", "metrics-port": 80}
        for bad, words in (({"max-queue": 0}, ("max-queue is 0", "from 1 to 2147483647")),
                           ({"max_queue": 5}, ("max_queue: unknown key",)),
                           ({"max-queue": "5"}, ('max-queue is "5"', "whole number")),
                           (listen_twice, ("metrics-port is 80", "listen")),
                           ('{"max-queue": 1, "max-queue": 2}', ("max-queue: is given twice",)),
                           ("max-queue: 5", ("line 1: is not JSON",))):
            path = self.file(bad)
            for role, command in ROLES.items():
                with self.subTest(role=role, bad=str(bad)):
                    done = run(*command, "--model", "m", "--config", path)
                    self.assertEqual(done.returncode, 2)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    for word in ("config.json: ", *words):
                        self.assertIn(word, done.stderr)
                    checked = run(program("baton"), "check-config", path, "--role", role)
                    self.assertEqual(checked.returncode, 1)
                    self.assertEqual(checked.stderr.split(": ", 1)[1],
                                     done.stderr.split(": ", 2)[2])

    def test_a_bad_flag_is_refused_in_one_line(self):
        for flags, words in ((("--max-queue=0",), "--max-queue is 0; must be"),
                             (("--colour", "red"), "unknown flag: --colour"),
                             (("--config", "/no/such/file"), "/no/such/file: cannot be read"),
                             ((), "--model: missing")):
            for role, command in ROLES.items():
                with self.subTest(role=role, flags=flags):
                    done = run(*command, *flags)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(words, done.stderr)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_cluster_runs_from_a_file(self):
        path = self.file({"prefill-workers": 0, "kv-blocks": 33, "threads": 1})
        with Cluster(tiny_model(self.directory), "--config", path) as cluster:
            self.assertEqual(len(cluster.info["workers"]), 1)
            cluster.generate("--prompt", "the time", "--max-tokens", "2")
            self.assertEqual(sum(v for name, v in cluster.metrics("decode").items()
                                 if name.startswith("baton_kv_blocks{")), 33)

    def test_the_document_lists_every_option(self):
        with open(os.path.join(RUNFILES, "docs/configuration.md"), encoding="utf-8") as file:
            document = file.read()
        sections = dict(zip(ROLES, (document, document.split("## Router")[1],
                                    *[document.split("## Workers")[1].split("## Router")[0]] * 2)))
        for role in ROLES:
            for option in json.loads(self.printed(role)):
                with self.subTest(role=role, option=option):
                    self.assertIn(f"`{option}`", sections[role])


if __name__ == "__main__":
    main()
