"""The speed rows of whole servers: Baton over gRPC beside llama-server over HTTP, one kind of cluster beside another,
and OpenVINO GenAI."""
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

import clusters
import figures
import llama_cpp
import processes
import step_bench
from step_rows import NO_PEER

STREAMS, REQUESTS, PROMPT, OUTPUT = 16, 32, 128, 32
ROOM = 256  # positions of a stream, prompt and answer, on both sides


def baton_load(cluster):
    """(output tokens a second, median time to first token) of a closed loop."""
    report = cluster.bench("--concurrency", STREAMS, "--requests", REQUESTS, "--prompt-tokens", PROMPT,
                           "--output-tokens", OUTPUT)
    return report["output_tokens_per_s"], report["ttft_s"]["p50"]


class Serve:
    """16 streams end to end, 128 tokens in and 32 out."""

    def __init__(self, model, bounds):
        self.model = model
        self.bounds = {f"serve16_tokens_{model}": bounds[0], f"serve16_ttft_{model}": bounds[1]}
        self.names = tuple(self.bounds)

    def run(self, run):
        path = run.model(self.model)
        ours, theirs = [], []
        flags = ("--prefill-workers", "0", "--threads", str(run.threads), "--kv-blocks", str(STREAMS * ROOM // 16))
        with run.cluster(self.model, *flags) as cluster:
            baton_load(cluster)
            if run.llama is None:
                ours = [baton_load(cluster) for _ in range(run.rounds)]
                return self._rows(ours, [], None)
            with self._best_server(run, path) as server:
                for _ in range(run.rounds):
                    ours.append(baton_load(cluster))
                    theirs.append(self._server_load(server))
                return self._rows(ours, theirs, " ".join(server.command))

    @staticmethod
    def _server(run, path, setting):
        return llama_cpp.Server(run.llama.folder, path, run.threads, STREAMS, ROOM, setting)

    def _best_server(self, run, path):
        """The one with the most tokens a second; half the load tells."""
        tried = []
        for setting in llama_cpp.SERVER_SETTINGS:
            with self._server(run, path, setting) as server:
                tried.append((server.load(REQUESTS // 2, PROMPT, OUTPUT)[0], setting))
        text = ", ".join(f"{' '.join(setting)}: {rate:.1f}" for rate, setting in tried)
        print(f"bench: peer: llama-server ({text} tokens/s)", file=sys.stderr)
        return self._server(run, path, max(tried)[1])

    @staticmethod
    def _server_load(server):
        rate, firsts = server.load(REQUESTS, PROMPT, OUTPUT)
        return rate, statistics.median(firsts)

    def _rows(self, ours, theirs, peer):
        tokens, ttft = self.names
        rows = [figures.pair_row(tokens, [o[0] for o in ours], "tokens/s", peer, [t[0] for t in theirs]),
                figures.pair_row(ttft, [o[1] for o in ours], "s", peer, [t[1] for t in theirs],
                                 larger_is_better=False)]
        for row in rows:
            figures.judge(row, self.bounds[row["name"]])
            if not theirs:
                row["note"] = NO_PEER
        return rows

    def failed(self, note):
        return [figures.failed_row(name, note, bound) for name, bound in self.bounds.items()]


class SplitVsUnified:
    """One prefill and one decode worker on this host beside one worker that does both."""

    names = ("split_vs_unified_16", "split_vs_unified_16_p99")
    BOUNDS = {"split_vs_unified_16": 0.9, "split_vs_unified_16_p99": 1.0}

    def run(self, run):
        flags = ("--threads", str(run.threads), "--kv-blocks", "2048")
        interference = clusters.Interference(16, 2000, 40, 400)
        split, unified = [], []
        with (run.cluster("q4_1", *flags) as two,
              run.cluster("q4_1", "--prefill-workers", "0", *flags) as one):
            for cluster in (two, one):
                baton_load(cluster)
            for _ in range(run.rounds):
                for cluster, into in ((two, split), (one, unified)):
                    into.append((baton_load(cluster)[0], interference.measure(cluster)[1]))
        peer = "one worker for both, the same number of threads"
        rows = [figures.pair_row(self.names[0], [s[0] for s in split], "tokens/s", peer, [u[0] for u in unified]),
                figures.pair_row(self.names[1], [s[1] for s in split], "s", peer, [u[1] for u in unified],
                                 larger_is_better=False)]
        return [figures.judge(row, self.BOUNDS[row["name"]]) for row in rows]

    def failed(self, note):
        return [figures.failed_row(name, note, self.BOUNDS[name]) for name in self.names]


class Start:
    """`baton up` with its defaults, from its start until a request would succeed: one worker, or one of each role."""

    FLAGS = {"start_unified_q4_1": ("--prefill-workers", "0"), "start_split_q4_1": ()}
    names = tuple(FLAGS)
    BOUND_S = 1.5

    def run(self, run):
        seconds = {name: [] for name in self.names}
        for _ in range(run.rounds):
            for name, flags in self.FLAGS.items():
                begin = time.time()
                with run.cluster("q4_1", *flags) as cluster:
                    seconds[name].append(os.path.getmtime(cluster.ready) - begin)
        rows = [figures.pair_row(name, seconds[name], "s") | {"bound": self.BOUND_S} for name in self.names]
        return [row | {"pass": row["value"] < self.BOUND_S} for row in rows]

    def failed(self, note):
        return [figures.failed_row(name, note, self.BOUND_S) for name in self.names]


class OpenVino:
    """OpenVINO GenAI on the Q4_1 file, with its default KV type."""

    names = ("openvino_prefill", "openvino_decode", "openvino_batch16")
    BOUNDS = {"openvino_prefill": 1.5, "openvino_decode": 1.0, "openvino_batch16": 1.5}
    CONTEXT, TOKENS = 512, 32

    def run(self, run):
        if not run.openvino:
            raise processes.Failed("no peer: --openvino was not given")
        workloads = {"openvino_prefill": step_bench.Prefill(self.CONTEXT),
                     "openvino_decode": step_bench.Decode(1, self.CONTEXT, self.TOKENS),
                     "openvino_batch16": step_bench.Decode(STREAMS, self.CONTEXT, self.TOKENS)}
        bench = run.step_bench("q4_1")
        ours = {name: [] for name in self.names}
        theirs = {name: [] for name in self.names}
        for _ in range(run.rounds):
            for name, workload in workloads.items():
                bench.run(workload.request())
                ours[name].append(workload.measured(bench.run(workload.request()))[0])
            for name, rate in self._peer(run).items():
                theirs[name].append(rate)
        return [figures.judge(figures.pair_row(name, ours[name], "tokens/s", self._command(run), theirs[name]),
                              self.BOUNDS[name]) for name in self.names]

    def _command(self, run):
        return (f"{self._only_avx2(run)}{run.openvino} {run.model('q4_1')} --prompt-tokens {self.CONTEXT} --output-tokens {self.TOKENS} "
                f"--streams 1,{STREAMS} --repeat 1 --threads {run.threads}")

    @staticmethod
    def _only_avx2(run):
        """OpenVINO takes the newest instructions that the processor names, so it is named fewer."""
        return f"env LD_PRELOAD={os.path.abspath('bin/avx2-only.so')} " if run.backend == "cpu-avx2" else ""

    def _peer(self, run):
        command = self._command(run)
        done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise processes.Failed(f"{command} exited with {done.returncode}: {done.stderr[-500:]}")
        return parse_openvino(done.stdout)

    def failed(self, note):
        return [figures.failed_row(name, note, self.BOUNDS[name]) for name in self.names]


def parse_openvino(output):
    """Tokens per second by row of what the peer's script prints."""
    rows = {row["streams"]: row for row in json.loads(output)["rows"]}
    return {"openvino_prefill": rows[1]["prefill_tok_s"], "openvino_decode": rows[1]["decode_tok_s"],
            "openvino_batch16": rows[STREAMS]["decode_tok_s"]}


def rows():
    yield Serve("q4_1", (4, 4))
    yield Serve("q4_0", (2, 2))
    yield OpenVino()
    yield SplitVsUnified()
    yield Start()
