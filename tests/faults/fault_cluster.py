"""Routers and workers as processes of their own, with a proxy on every link of the first router.

    client --client--> router-0 --to_worker[name]--> prefill-0, decode-0
                       prefill-N --control[decode], data[decode]--> decode-N
    router-gold ----------------------------------> decode workers alone, no proxy: what answers must be equal to

Every other router (router-1 and on) is connected without a proxy. KV blocks travel over tcp.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import api  # noqa: E402
import cluster as e2e  # noqa: E402
from cluster import PATIENCE_S, SANITIZER, program, scrape, tiny_model, wait_for  # noqa: E402
from proxy import Proxy  # noqa: E402

# `./test --long faults` runs the numbers of the reports, the everyday run a few of each.
LONG = "long" in sys.argv
sys.argv = [argument for argument in sys.argv if argument != "long"]


def rounds(everyday, in_long_suite):
    return in_long_suite if LONG else everyday


def limit(seconds):
    """A bound of the reports, as it is in the long suite, which has the machine for itself."""
    return seconds if LONG else e2e.limit(seconds)


# Nothing of how a cluster is built may reach a client: addresses, ports, paths, ranks, schemes of resolvers.
INTERNAL = re.compile(r"\d+\.\d+\.\d+\.\d+|localhost|ipv[46]|unix:|tcp:|shm:|/tmp|/root|errno|rank|0x[0-9a-f]+|:\d{4,5}\b")
THREADS_NEAR = 12  # gRPC keeps a few threads of a burst
FILES_NEAR = 8


class Process:
    """One server; its ready file is read when it is there."""

    def __init__(self, cluster, kind, name, flags):
        self.cluster, self.kind, self.name, self.flags = cluster, kind, name, list(flags)
        self.process = self.info = self.usage_at_start = None

    def start(self):
        ready = os.path.join(self.cluster.directory, self.name + ".ready")
        if os.path.exists(ready):
            os.remove(ready)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [program("baton-" + self.kind), "--name", self.name, "--ready-file", ready, *self.flags],
                stdout=log, stderr=log)
        self.info = None
        self.ready_path = ready
        return self

    def wait_until_ready(self):
        wait_for(lambda: os.path.exists(self.ready_path) or self.process.poll() is not None,
                 what=self.name + " ready")
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended:\n{self.log()[-3000:]}")
        with open(self.ready_path, encoding="utf-8") as file:
            self.info = json.load(file)
        return self

    @property
    def log_path(self):
        return os.path.join(self.cluster.directory, self.name + ".log")

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, and gone when this returns."""
        self.process.kill()
        self.process.wait()

    def restart(self):
        """Another process on the same addresses."""
        if self.process.poll() is None:
            self.kill()
        self.keep_addresses()
        self.start().wait_until_ready()

    def keep_addresses(self):
        """Later lives listen where this one does; of a flag given twice the last counts."""
        for name, key in (("--listen", "listen"), ("--data-listen", "data")):
            if key in self.info:
                self.flags += [name, self.info[key]]

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()

    def reap(self):
        if self.process is None:
            return
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()

    def metrics(self):
        return scrape(self.info["metrics"])

    def usage(self):
        """(threads, open files)."""
        return tuple(len(os.listdir(f"/proc/{self.pid}/{what}")) for what in ("task", "fd"))


def blocks_held(metrics):
    return sum(value for name, value in metrics.items() if name.startswith("baton_kv_blocks{")
               and not name.endswith(('"free"}', '"cached"}')))


def gauge(metrics, name):
    return sum(value for key, value in metrics.items() if key == name or key.startswith(name + "{"))


class FaultCluster:
    """Stopped when the context ends. Flags are those of the programs, for all workers or one role."""

    def __init__(self, prefill=1, decode=1, routers=1, model=None, flags=(), prefill_flags=(), decode_flags=(),
                 router_flags=()):
        self.directory = tempfile.mkdtemp(prefix="baton-faults-")
        self.model = tiny_model(self.directory, **(model or {}))
        self.client_link = Proxy()
        self.to_worker, self.control, self.data = {}, {}, {}
        self.workers, self.routers = {}, {}
        self.goldens = {}
        common = ["--model", self.model, "--listen", "127.0.0.1:0", "--transport", "tcp", "--threads", "1", *flags]
        for index in range(decode):
            name = f"decode-{index}"
            self.control[name], self.data[name] = Proxy(), Proxy()
            self._worker("decode-worker", name, [
                *common, *decode_flags, "--advertise", self.control[name].address,
                "--data-advertise", self.data[name].address])
        for index in range(prefill):
            self._worker("prefill-worker", f"prefill-{index}", [*common, *prefill_flags])
        self._router_count, self._router_flags = routers, list(router_flags)

    def _worker(self, kind, name, flags):
        self.to_worker[name] = Proxy()
        self.workers[name] = Process(self, kind, name, flags)

    def __enter__(self):
        try:
            for worker in self.workers.values():
                worker.start()
            for name, worker in self.workers.items():
                worker.wait_until_ready()
                self.to_worker[name].target = worker.info["listen"]
                if name in self.control:
                    self.control[name].target = worker.info["listen"]
                    self.data[name].target = worker.info["data"]
            for index in range(self._router_count):
                self._start_router(f"router-{index}", behind_proxies=index == 0)
            self._start_router("router-gold", behind_proxies=False, with_prefill=False)
            for router in self.routers.values():
                router.wait_until_ready()
            self.client_link.target = self.routers["router-0"].info["listen"]
            self.direct = api.Client(self.routers["router-0"].info["listen"])
            self.client = api.Client(self.client_link.address)
            self.gold_client = api.Client(self.routers["router-gold"].info["listen"])
            self._warm_up()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _start_router(self, name, behind_proxies, with_prefill=True):
        lists = {"prefill": [], "decode": []}
        for worker_name, worker in self.workers.items():
            address = self.to_worker[worker_name].address if behind_proxies else worker.info["listen"]
            lists[worker_name.split("-")[0]].append(address)
        flags = ["--model", self.model, "--listen", "127.0.0.1:0", "--decode-workers", ",".join(lists["decode"])]
        if with_prefill and lists["prefill"]:
            flags += ["--prefill-workers", ",".join(lists["prefill"])]
        self.routers[name] = Process(self, "router", name, flags + self._router_flags).start()

    def _warm_up(self):
        for router in self.routers.values():
            with api.Client(router.info["listen"]) as client:
                client.generate(api.generation([7] * 20, max_tokens=4, ignore_eos=True))
        for process in self.processes():
            process.usage_at_start = process.usage()
        self.pids = {process.name: process.pid for process in self.processes()}

    def __exit__(self, kind, *_):
        for name in ("client", "direct", "gold_client"):
            if hasattr(self, name):
                getattr(self, name).close()
        for group in (self.routers, self.workers):
            for process in group.values():
                process.stop()
            for process in group.values():
                process.reap()
        for link in (self.client_link, *self.to_worker.values(), *self.control.values(), *self.data.values()):
            link.close()
        logs = {process.name: process.log() for process in self.processes() if os.path.exists(process.log_path)}
        shutil.rmtree(self.directory, ignore_errors=True)
        if kind is not None:
            for name, text in logs.items():
                print(f"--- {name}", *text.splitlines()[-20:], sep="\n", file=sys.stderr)
        reports = [f"{name}: {line}" for name, text in logs.items() for line in SANITIZER.findall(text)[:1]]
        if reports:
            raise AssertionError("\n".join(reports))

    def processes(self):
        return [*self.workers.values(), *self.routers.values()]

    def restart(self, name):
        """The worker's next life on the same addresses; ALIVE means the new one from here on."""
        worker = self.workers[name]
        worker.restart()
        if name in self.data:
            self.data[name].target = worker.info["data"]
        self.pids[name] = worker.pid

    def gold(self, request):
        """Token ids of the same request run alone on a decode worker, from no cache and leaving nothing in one."""
        alone = type(request)()
        alone.CopyFrom(request)
        alone.bypass_cache = True
        key = alone.SerializeToString(deterministic=True)
        if key not in self.goldens:
            self.goldens[key] = [list(choice.token_ids)
                                 for choice in self.gold_client.generate(alone).choices]
        return self.goldens[key]

    def transfer_bytes(self, request, name="decode-0"):
        """What the request puts on the data link."""
        before = self.data[name].passed["up"]
        self.direct.generate(request)
        return self.data[name].passed["up"] - before

    def held(self, name):
        return blocks_held(self.workers[name].metrics())

    def steps(self, name):
        return self.workers[name].metrics()["baton_step_seconds_count"]

    def wait_for_steps(self, name, before):
        """The worker computes: what it had to say of the request before that is long at the router."""
        wait_for(lambda: self.steps(name) >= before + 5, what=f"steps of {name}")

    def reset(self, link, name):
        """Resets the link; when this returns the worker that had connected has closed its ends."""
        peer = f"0100007F:{link.port:04X}"
        with open("/proc/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in file]
        ends = {f"socket:[{row[9]}]" for row in rows if row[2] == peer}
        link.reset()
        wait_for(lambda: not ends & self.open_files(name), what=f"{name} has closed its connections")

    def open_files(self, name):
        """What the worker's descriptors are."""
        folder, found = f"/proc/{self.workers[name].pid}/fd", set()
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(os.path.join(folder, fd)))
        return found

    def inflight(self, name):
        """Live requests of the first router at this worker."""
        return self.routers["router-0"].metrics().get(f'baton_router_inflight{{worker="{name}"}}', 0)

    def why_not_quiet(self):
        """Everything that a cluster without requests does not have."""
        found = []
        for process in self.processes():
            if process.process.poll() is not None:
                continue
            metrics = process.metrics()
            held = blocks_held(metrics)
            if held:
                found.append(f"{process.name} holds {held} blocks")
            for name in ("baton_requests_running", "baton_requests_waiting", "baton_transfers_in_flight",
                         "baton_router_inflight", "baton_router_queue_tokens",
                         "baton_kv_self_check_violations_total"):
                value = gauge(metrics, name)
                if value:
                    found.append(f"{process.name} {name} {value}")
            for what, now, start, near in zip(("threads", "files"), process.usage(), process.usage_at_start,
                                              (THREADS_NEAR, FILES_NEAR)):
                if now > start + near:
                    found.append(f"{process.name} has {now} {what}, {start} at the start")
        return found


class FaultTest(unittest.TestCase):
    """QUIET, ALIVE, END1 and GOLD of the reports."""

    cluster = None  # of the class that sets it

    def started(self, *args, **options):
        """A cluster of this test's own."""
        cluster = FaultCluster(*args, **options).__enter__()
        self.addCleanup(self._stop, cluster)
        self.cluster = cluster
        return cluster

    def _stop(self, cluster):
        cluster.__exit__(None if self._outcome.success else AssertionError, None, None)

    def quiet(self, seconds, cluster=None):
        """Within so many seconds nothing is left of any request."""
        found = []

        def nothing_left():
            found[:] = (cluster or self.cluster).why_not_quiet()
            return not found

        try:
            wait_for(nothing_left, limit(seconds))
        except AssertionError:
            self.fail(f"after {limit(seconds)} s: {found}")

    def alive(self, cluster=None):
        """The same processes, and a canary answers as ever."""
        cluster = cluster or self.cluster
        for process in cluster.processes():
            self.assertIsNone(process.process.poll(), process.name + " ended")
            self.assertEqual(process.pid, cluster.pids[process.name])
        self.is_gold(api.generation([11, 5, 9] * 9, max_tokens=10, ignore_eos=True), cluster)

    def is_gold(self, request, cluster=None):
        cluster = cluster or self.cluster
        answer = cluster.direct.generate(request)
        self.assertEqual([list(choice.token_ids) for choice in answer.choices], cluster.gold(request))
        return answer

    def end1(self, stream):
        """Exactly one end, nothing after it, and OK never without all that belongs to it. Reads it to its end."""
        for _ in stream:
            pass
        self.assertEqual(stream.out_of_order, [])
        self.assertNotEqual(stream.completed is None, stream.failure is None, stream.failure)
        if stream.completed is not None:
            self.assertEqual(set(stream.finish), set(stream.ids))
            self.assertEqual(stream.completed.usage.completion_tokens, sum(map(len, stream.ids.values())))
        else:
            self.assertNotEqual(stream.failure.code, "OK")
            self.clean(stream.failure)
        return stream

    def gold_or(self, codes, stream, request, cluster=None):
        """END1, and all of GOLD, or a part of it and then one of the codes. Returns the code."""
        self.end1(stream)
        gold = (cluster or self.cluster).gold(request)
        for choice, ids in stream.ids.items():
            self.assertEqual(ids, gold[choice][:len(ids)])
        if stream.completed is not None:
            self.assertEqual([stream.ids[choice] for choice in sorted(stream.ids)], gold)
            return "OK"
        self.assertIn(stream.failure.code, codes, stream.failure)
        return stream.failure.code

    def clean(self, failure):
        """An error of the router names its kind and stage, and nothing of how the cluster is built (PD-23)."""
        if "grpc-status-details-bin" not in failure.trailers:
            # Said by the client's own gRPC, which knows the address anyway.
            return self.assertIn(failure.code, ("DEADLINE_EXCEEDED", "CANCELLED"), failure)
        self.assertNotEqual(failure.reason, "", failure)
        for text in (failure.text, str(failure.metadata), str(failure.fields),
                     *(str(value) for key, value in failure.trailers.items() if not key.endswith("-bin"))):
            self.assertIsNone(INTERNAL.search(text), f"{failure.code}: {text}")

    def fails(self, codes, call):
        with self.assertRaises(api.Failure) as caught:
            call()
        self.assertIn(caught.exception.code, codes, caught.exception)
        self.clean(caught.exception)
        return caught.exception
