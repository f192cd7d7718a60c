#!/usr/bin/env python3
"""Many streams for a long time over two routers, two prefill and two decode workers: every answer that comes
whole is the one that the request got alone, every other one its beginning, and afterwards every process is as it was.

Argument: seconds of load (default 12). From 5 minutes on the memory of each process must be flat after the first two."""
import api  # first: it may start the program again under another interpreter
import collections
import contextlib
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from cluster import RUNFILES, Cluster, main, scrape, tiny_model, wait_for
from mixed_sampling import mixed_fields

SECONDS = 12.0
SEED = 20240701
STREAMS = 64
REQUESTS = 200
VOCAB = 256  # ids that every tiny model has
LONGEST_PROMPT = 400  # a step has 64 tokens
FLAT_FROM_S = 300.0
SETTLED_S = 120.0
WINDOW = 30  # samples, one a second
RSS_GROWTH = 1.05
KILLED_EVERY_S = 0.5
# Of gRPC, which keeps what they once grew to.
GRPC_POOLS = ("default-executo", "event_engine", "grpc_global_tim", "grpcpp_sync_ser", "nexting_thread")
SOAK_CLIENT = os.path.join(RUNFILES, "tests/load/soak_client")


def mixed_generation(numbers):
    """A request with any prompt length and any mixture of sampling fields."""
    length = numbers.choice((numbers.randint(1, 40), numbers.randint(41, 130), numbers.randint(131, LONGEST_PROMPT)))
    fields = {"max_tokens": numbers.randint(1, 80), **mixed_fields(numbers, VOCAB)}
    for name, draw in (("priority", lambda: numbers.randint(-4, 4)), ("n", lambda: numbers.randint(2, 4)),
                       ("tenant", lambda: numbers.choice("abc"))):
        if numbers.random() < 0.25:
            fields[name] = draw()
    return api.generation([numbers.randrange(VOCAB) for _ in range(length)], **fields)


def write_pool(path, model):
    """The requests with the answers that a decode worker alone gives to each alone."""
    numbers = random.Random(SEED)
    with Cluster(model, "--prefill-workers", "0", "--threads", "1") as cluster, api.Client(cluster.target) as client, \
            open(path, "wb") as file:
        for _ in range(REQUESTS):
            generation = mixed_generation(numbers)
            answer = client.generate(generation)
            for message in (api.pb.GenerateStreamRequest(generation=generation), answer):
                data = message.SerializeToString()
                file.write(struct.pack("<I", len(data)) + data)


def process_state(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    names = collections.Counter()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
            names[file.read().strip()] += 1
    pools = {name: names.pop(name, 0) for name in GRPC_POOLS}
    return {"rss_kib": int(status["VmRSS"].split()[0]), "threads": names.total(), "grpc_threads": pools,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


class Background:
    """_run in a thread of its own while the context lasts; `stopped` says when to leave it."""

    def __init__(self):
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()

    def _run(self):
        raise NotImplementedError


class Watch(Background):
    """Samples every process of a cluster once a second."""

    def __init__(self, cluster):
        super().__init__()
        self.pids = {entry["name"]: entry["pid"] for entry in cluster.info["workers"] + cluster.info["routers"]}
        self.workers = cluster.info["workers"]
        self.given_up = {}  # after SETTLED_S, by worker: cached blocks that made room
        self.samples = []  # (seconds, {name: process_state})
        self.began = time.monotonic()

    def now(self):
        return {name: process_state(pid) for name, pid in self.pids.items()}

    def _run(self):
        while not self.stopped.wait(1):
            seconds = time.monotonic() - self.began
            self.samples.append((seconds, self.now()))
            if seconds >= SETTLED_S and not self.given_up:
                self.given_up = {worker["name"]: scrape(worker["metrics"])["baton_prefix_cache_evictions_total"]
                                 for worker in self.workers}

    def rss(self, begin=None):
        """{name: median KiB} of WINDOW samples from so many seconds on, or of the last ones. Not of so much time: a
        machine may stand still."""
        states = [state for at, state in self.samples if begin is None or at >= begin]
        chosen = states[-WINDOW:] if begin is None else states[:WINDOW]
        return {name: statistics.median(state[name]["rss_kib"] for state in chosen) for name in self.pids}


class Killer(Background):
    """Clients that go away without a word: started and killed, all the time."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster = cluster
        self.killed = 0

    def _run(self):
        numbers = random.Random(SEED)
        routers = [router["listen"] for router in self.cluster.info["routers"]]
        while not self.stopped.wait(KILLED_EVERY_S):
            command = self.cluster.command_of("--prompt-tokens", ",".join(["7"] * numbers.randint(1, 300)),
                                              "--max-tokens", "300", "--ignore-eos", target=numbers.choice(routers))
            client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                client.wait(timeout=numbers.uniform(0.01, 0.3))
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()
                self.killed += 1


class Soak(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="baton-soak-")
        cls.model = tiny_model(cls.directory, context=1024)
        cls.pool = os.path.join(cls.directory, "pool")
        write_pool(cls.pool, cls.model)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def cluster(self):
        # Blocks are scarce: most requests wait for room somewhere.
        return Cluster(self.model, "--prefill-workers", "2", "--decode-workers", "2", "--routers", "2",
                       "--threads", "1", "--kv-blocks", "384")

    def soak(self, cluster, seconds, pool=None, errors=None, **flags):
        """The finished process of soak_client and its counts."""
        targets = ",".join(router["listen"] for router in cluster.info["routers"])
        flags = {"pool": pool or self.pool, "targets": targets, "seconds": seconds, "streams": STREAMS, "seed": SEED,
                 **flags}
        done = subprocess.run([SOAK_CLIENT, *(f"--{name}={value}" for name, value in flags.items())],
                              stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    def assert_nothing_left(self, cluster):
        cluster.assert_idle()
        for entry in cluster.info["workers"] + cluster.info["routers"]:
            def left(entry=entry):
                return {name: value for name, value in scrape(entry["metrics"]).items() if value != 0 and name.split("{")[0]
                        in ("baton_requests_running", "baton_requests_waiting", "baton_transfers_in_flight",
                            "baton_router_inflight")}
            wait_for(lambda left=left: not left(), what=f"{entry['name']} has nothing under way")

    def assert_back(self, watch, start):
        """Threads and descriptors as they were; gRPC's own pools within their bounds, which go by the CPUs."""
        limit = 2 * os.cpu_count() + 2
        def more():
            return [f"{name}: {count} of {pool}" for name, state in watch.now().items()
                    for pool, count in state["grpc_threads"].items() if count > limit] + [f"{name}: {state[what]} {what}, {start[name][what]} at the start"
                    for name, state in watch.now().items() for what in ("threads", "descriptors")
                    if state[what] > start[name][what]]
        try:
            wait_for(lambda: not more(), what="threads and descriptors")
        except AssertionError as error:
            raise AssertionError(f"{error}: {more()}") from None

    def assert_flat(self, watch, seconds):
        # Every pool was full before the first window, so that no block of it is written for the first time later.
        self.assertGreater(min(watch.given_up.values()), 0, watch.given_up)
        settled, last = watch.rss(SETTLED_S), watch.rss()
        minutes = [watch.rss(at) for at in range(0, int(seconds - WINDOW), 60)]
        for name, before in settled.items():
            print(f"{name}: {before:.0f} KiB after {SETTLED_S:.0f} s, {last[name]:.0f} KiB at the end; by the minute",
                  *(f"{minute[name]:.0f}" for minute in minutes), flush=True)
        self.assertEqual([name for name, before in settled.items() if last[name] > RSS_GROWTH * before], [])

    def test_every_answer_is_right_and_nothing_is_left(self):
        with self.cluster() as cluster:
            # Connections between workers are made when they are first needed.
            self.assertEqual(self.soak(cluster, 3)[0], 0)
            self.assert_nothing_left(cluster)
            with Watch(cluster) as watch:
                start = watch.now()
                with Killer(cluster) as killer:
                    code, counts = self.soak(cluster, SECONDS, seed=SEED + 1)
                print(f"{counts}, {killer.killed} clients killed", flush=True)
                self.assertEqual((code, counts["different"], counts["failed"]), (0, 0, 0))
                self.assertGreater(counts["cancelled"], counts["ended"] / 6)
                self.assertGreater(counts["late"], 0)
                self.assertGreater(killer.killed, 0)
                self.assert_nothing_left(cluster)
                for name, state in watch.now().items():
                    print(f"{name}: at the start {start[name]}", f"{name}: at the end   {state}", sep="\n", flush=True)
                if SECONDS >= FLAT_FROM_S:
                    self.assert_flat(watch, SECONDS)
                self.assert_back(watch, start)

    def test_a_wrong_answer_would_be_noticed(self):
        generation = mixed_generation(random.Random(SEED))
        wrong = api.pb.GenerateResponse(seed=generation.sampling.seed)
        wrong.choices.add(token_ids=[0] * 99)
        path = os.path.join(self.directory, "wrong")
        with open(path, "wb") as file:
            for message in (api.pb.GenerateStreamRequest(generation=generation), wrong):
                data = message.SerializeToString()
                file.write(struct.pack("<I", len(data)) + data)
        with self.cluster() as cluster:
            code, counts = self.soak(cluster, 1, pool=path, streams=8, errors=subprocess.DEVNULL)
            self.assertEqual(code, 1)
            self.assertGreater(counts["different"], 0)
            self.assertEqual(counts["equal"], 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        SECONDS = float(sys.argv.pop())
    main()
