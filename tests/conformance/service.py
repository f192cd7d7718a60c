"""What the entries of docs/contract.md ask of a whole service, over real processes and a client that is not ours:

GOLD   the tokens of a request alone on a unified cluster
BAD    INVALID_ARGUMENT at once, naming the field, and no step of any engine
ALIVE  the same processes as before, and the canary's answer is GOLD
QUIET  nothing held, running, waiting or in flight, descriptors and threads as before
END1   one end for each choice and one for the request, nothing behind them
"""
import os
import shutil
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import api  # noqa: E402
from cluster import Cluster, limit, real_model, scrape, tiny_model, wait_for  # noqa: E402
from gguf_file import GgufFile  # noqa: E402

# Descriptors and threads that come and go with gRPC's own pools.
SLACK = 24


def canary():
    return api.generation("the time of the canary", max_tokens=24, ignore_eos=True)


def ids(answer, choice=0):
    return list(answer.choices[choice].token_ids)


class ServiceTest(unittest.TestCase):
    """One split cluster for all tests of a class."""
    MODEL = {}                 # flags of make_tiny_model
    FLAGS = ("--threads", "1")

    @staticmethod
    def edit(_file):
        """Changes the model's file before it is served."""

    @classmethod
    def make_model(cls, directory):
        path = tiny_model(directory, **cls.MODEL)
        file = GgufFile(path)
        cls.edit(file)
        return file.write(path)

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-conformance-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.model = cls.make_model(cls.directory)
        alone = cls.unified().__enter__()
        with api.Client(alone.target) as client:
            cls.gold = ids(client.generate(canary()))
            cls.prepare(client)
        # It takes some seconds to stop, mostly of waiting.
        stopping = threading.Thread(target=alone.__exit__, args=(None, None, None))
        stopping.start()
        cls.addClassCleanup(stopping.join)
        cls.cluster = Cluster(cls.model, *cls.FLAGS).__enter__()
        cls.addClassCleanup(lambda: cls.cluster.__exit__(None, None, None))
        cls.client = api.Client(cls.cluster.target)
        cls.addClassCleanup(cls.client.close)
        cls.client.generate(canary())
        cls.usage = cls.resources()

    @classmethod
    def prepare(cls, alone):
        """Gets more GOLD from a unified cluster; `alone` is its client."""

    @classmethod
    def unified(cls):
        return Cluster(cls.model, *cls.FLAGS, "--prefill-workers", "0")

    @classmethod
    def servers(cls):
        return cls.cluster.info["routers"] + cls.cluster.info["workers"]

    @classmethod
    def resources(cls):
        """{pid: (descriptors, threads)}; a process that is gone or a zombie has none."""
        return {server["pid"]: tuple(len(os.listdir(f"/proc/{server['pid']}/{what}")) for what in ("fd", "task"))
                for server in cls.servers()}

    def tearDown(self):
        """Whatever a test did; and the next one finds nothing under way."""
        self.assert_quiet()
        self.assert_alive()
        self.assert_quiet()

    def assert_alive(self):
        for server in self.servers():
            with open(f"/proc/{server['pid']}/stat", encoding="utf-8") as file:
                self.assertNotIn(file.read().rsplit(") ", 1)[1][0], "ZX", server)
        self.assertEqual(ids(self.client.generate(canary())), self.gold)

    def busy(self, clients=0):
        """What is not at rest, in words."""
        found = []
        for server in self.servers():
            for name, value in scrape(server["metrics"]).items():
                gauge = name.split("{")[0]
                held = gauge == "baton_kv_blocks" and not name.endswith(('"free"}', '"cached"}'))
                if value != 0 and (held or gauge in ("baton_requests_running", "baton_requests_waiting",
                                                     "baton_transfers_in_flight", "baton_router_inflight")):
                    found.append(f"{server['name']} {name} {value}")
        for pid, now in self.resources().items():
            found += [f"{pid}: {what} {before} -> {after}" for what, before, after in
                      zip(("descriptors", "threads"), self.usage[pid], now) if after > before + SLACK + clients]
        return found

    def assert_quiet(self, timeout_s=5, clients=0):
        """`clients`: connections that are still open."""
        try:
            wait_for(lambda: not self.busy(clients), limit(timeout_s))
        except AssertionError:
            self.assertEqual(self.busy(clients), [])

    def steps(self):
        return sum(scrape(worker["metrics"])["baton_step_seconds_count"] for worker in self.cluster.info["workers"])

    def assert_bad(self, request, field, code="INVALID_ARGUMENT"):
        """The Failure."""
        before, began = self.steps(), time.monotonic()
        with self.assertRaises(api.Failure) as caught:
            self.client.generate(request)
        failure = caught.exception
        self.assertLess(time.monotonic() - began, limit(2))
        self.assertEqual(failure.code, code, failure)
        self.assertEqual([path for path, _ in failure.fields], [field], failure)
        self.assertEqual(self.steps(), before)
        return failure

    def both(self, request):
        """The unary answer, after the stream has said the same and ended once."""
        answer = self.client.generate(request)
        stream = self.client.stream(request).read()
        self.assert_end1(stream, len(answer.choices))
        for choice in answer.choices:
            self.assertEqual(stream.ids.get(choice.index, []), list(choice.token_ids))
            self.assertEqual(stream.texts.get(choice.index, ""), choice.text)
            self.assertEqual(stream.finish[choice.index], api.pb_finish(choice.finish_reason))
        self.assertEqual(api.spent(stream.completed.usage), api.spent(answer.usage))
        return answer

    def assert_end1(self, stream, choices=1):
        self.assertEqual(stream.out_of_order, [])
        self.assertEqual(sorted(stream.finish), list(range(choices)))
        self.assertIsNotNone(stream.completed)


class RealModelTest(ServiceTest):
    """The same on the real model; skipped without it."""

    @classmethod
    def setUpClass(cls):
        if real_model() is None:
            raise unittest.SkipTest("needs BATON_MODEL")
        super().setUpClass()

    @classmethod
    def make_model(cls, directory):
        return real_model()
