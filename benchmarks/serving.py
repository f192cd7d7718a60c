"""Rows of whole clusters: transfer, handoff, and what a long prompt costs others."""
import json
import os
import statistics
import subprocess

import clusters
import figures
import processes

HANDOFF_BOUND = 20.0  # time to first token over handoff: a share of 5 %
HANDOFF_PROMPT = 1000
INTERFERENCE_BOUND = 1 / 3


def program_rows(command):
    """The JSON lines that a program prints."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        raise processes.Failed(f"{' '.join(command)} exited with {done.returncode} after {len(rows)} rows")
    return rows


def handoff(run):
    """The handoff's share of the time to first token of the same request."""
    with run.cluster("q4_1") as cluster:
        timings = []
        for turn in range(run.rounds):
            prompt = [1000 + (i * 7 + turn * 13) % 40000 for i in range(HANDOFF_PROMPT)]
            timings.append(cluster.generate(prompt, "--max-tokens", "8")["timings"])
    row = figures.pair_row("handoff_1000_tokens", [t["handoff"] for t in timings], "s",
                           "time to first token of the same request", [t["time_to_first_token"] for t in timings],
                           larger_is_better=False)
    return [figures.judge(row, HANDOFF_BOUND)]


def interference(run):
    """8 streams run on one decode worker alone, then a 2,000-token prompt comes."""
    measured = []
    with run.cluster("q4_1", "--prefill-workers", "0", "--kv-blocks", "2048") as cluster:
        for _ in range(run.rounds):
            measured.append(clusters.Interference(8, 2000, 300, 800).measure(cluster))
    quiet, busy, took = zip(*measured)
    row = figures.pair_row("inter_token_p99_beside_a_2000_token_prompt", busy, "s", "the same without the prompt",
                           quiet, larger_is_better=False)
    row["prompt_s"] = statistics.median(took)
    return [figures.judge(row, INTERFERENCE_BOUND)]


def transfer(run):
    return program_rows(["bin/transfer-bench", f"--rounds={run.rounds}"])


def placement(_run):
    """Whole traces in simulated time, under each way to place."""
    traces = os.path.join(os.environ.get("BATON_SHARED", ""), "traces")
    if not os.path.isdir(traces):
        raise processes.Failed("the folder traces/ of BATON_SHARED is missing")
    return program_rows(["bin/placement-bench", f"--traces={traces}"])


def router(_run):
    return program_rows(["bin/router-bench"])
