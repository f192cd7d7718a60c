#!/usr/bin/env python3
"""A router that is given its workers by name."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from cluster import Cluster, main, tiny_model, wait_for


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        cls.model = tiny_model(cls.directory)
        cls.cluster = Cluster(cls.model, "--threads", "1").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)
        shutil.rmtree(cls.directory)

    def router(self, *more_workers):
        """A second router; its log and ready file."""
        log, ready = (os.path.join(self.directory, name) for name in ("log", "ready"))
        for path in (log, ready):
            if os.path.exists(path):
                os.remove(path)
        by_name = {role: self.cluster.worker(role)["listen"].replace("127.0.0.1", "localhost")
                   for role in ("prefill", "decode")}
        with open(log, "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [os.path.join(self.cluster.bin, "baton-router"), "--model", self.model,
                 "--prefill-workers", by_name["prefill"],
                 "--decode-workers", ",".join([by_name["decode"], *more_workers]),
                 "--ready-file", ready], stdout=output, stderr=output)

        def stop():
            process.terminate()
            process.wait(timeout=60)

        self.addCleanup(stop)
        return log, ready

    @staticmethod
    def lines(log, word):
        with open(log, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.startswith("{") and word in line]

    def test_localhost_is_a_worker_like_any_other(self):
        _, ready = self.router()
        wait_for(lambda: os.path.exists(ready), what="the ready file")
        with open(ready, encoding="utf-8") as file:
            target = json.load(file)["listen"]
        answer = self.cluster.generate("--prompt", "the time", "--max-tokens", "8", target=target)
        self.assertEqual(answer["workers"], {"prefill": "prefill-0", "decode": "decode-0"})
        self.assertEqual(answer["token_ids"], self.cluster.generate(
            "--prompt", "the time", "--max-tokens", "8")["token_ids"])

    def test_a_name_that_does_not_resolve_stops_nobody(self):
        log, ready = self.router("no-such-host.invalid:7000")
        wait_for(lambda: self.lines(log, "name does not resolve"), what="the warning")
        wait_for(lambda: len(self.lines(log, "worker ready")) == 2, what="the other workers")
        wait_for(lambda: self.lines(log, "router listens"), what="the router's address")
        target = self.lines(log, "router listens")[0]["listen"]
        self.cluster.generate("--prompt", "the time", "--max-tokens", "2", target=target)
        self.assertFalse(os.path.exists(ready))


if __name__ == "__main__":
    main()
