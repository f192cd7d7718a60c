#!/usr/bin/env python3
"""One JSON row: what a long prompt costs those that are being answered on the same worker. Real model, one decode worker
alone: 8 streams run, then a 2,000-token prompt comes. The ratio, larger is better, is the 99th percentile of the
streams' gaps between tokens while nothing else runs over that from the prompt's arrival to its first token.

Argument: the number of rounds (default 3)."""
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

BOUND = 1 / 3
STREAMS = 8
PROMPT_TOKENS = 2000
SHORT_PROMPT = 16
QUIET_TOKENS = 300  # of each stream, before the prompt comes
MAX_TOKENS = 800    # of each stream: enough until it is done, at 8 of its tokens a step


def start(model, folder):
    ready = os.path.join(folder, "ready")
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        cluster = subprocess.Popen(["bin/baton", "up", "--model", model, "--port", "0", "--prefill-workers", "0",
                                    "--kv-blocks", "2048", "--ready-file", ready],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while not os.path.exists(ready):
        if cluster.poll() is not None:
            with open(os.path.join(folder, "log"), encoding="utf-8") as log:
                sys.exit("interference bench: the cluster stopped: " + log.read())
        time.sleep(0.05)
    with open(ready, encoding="utf-8") as file:
        return cluster, json.load(file)


def load(target, requests, prompt_tokens, max_tokens):
    """So many requests at once, none after them."""
    return subprocess.Popen(["bin/load-client", "--target", target, "--concurrency", str(requests),
                             "--requests", str(requests), "--prompt_tokens", str(prompt_tokens),
                             "--max_tokens", str(max_tokens), "--token_times"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def answers(process):
    rows = [json.loads(line) for line in process.communicate()[0].splitlines()]
    if process.returncode != 0 or any(row["code"] != 0 for row in rows):
        sys.exit(f"interference bench: {[row for row in rows if row['code'] != 0][:1]}")
    return rows


def p99(values):
    ordered = sorted(values)
    return ordered[-(-len(ordered) * 99 // 100) - 1]


def gaps(rows, begin, end):
    """The gaps between tokens that end between the two times."""
    return [later - earlier for row in rows for earlier, later in zip(row["token_times"], row["token_times"][1:])
            if begin < later <= end]


def tokens_so_far(metrics):
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as response:
        found = re.search(r"^baton_generation_tokens_total (\S+)$", response.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0


def measure(info):
    """The quiet and the busy p99, and how long the prompt took."""
    metrics = info["routers"][0]["metrics"]
    before = tokens_so_far(metrics)
    streams = load(info["target"], STREAMS, SHORT_PROMPT, MAX_TOKENS)
    while tokens_so_far(metrics) - before < STREAMS * QUIET_TOKENS:
        if streams.poll() is not None:
            sys.exit("interference bench: the streams ended early")
        time.sleep(0.1)
    long_one = answers(load(info["target"], 1, PROMPT_TOKENS, 2))[0]
    rows = answers(streams)
    began = max(row["token_times"][0] for row in rows)
    sent, first = long_one["sent_at"], long_one["token_times"][0]
    if min(row["token_times"][-1] for row in rows) < first:
        sys.exit("interference bench: a stream ended before the prompt's first token")
    return p99(gaps(rows, began, sent)), p99(gaps(rows, sent, first)), first - sent


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        cluster, info = start(os.environ["BATON_MODEL"], folder)
        try:
            measured = [measure(info) for _ in range(rounds)]
        finally:
            cluster.send_signal(signal.SIGTERM)
            cluster.wait()
    ratios = [quiet / busy for quiet, busy, _ in measured]
    ratio = statistics.median(ratios)
    print(json.dumps({
        "name": "inter_token_p99_beside_a_2000_token_prompt", "value": statistics.median(busy for _, busy, _ in measured),
        "unit": "s", "peer": "the same without the prompt",
        "peer_value": statistics.median(quiet for quiet, _, _ in measured),
        "prompt_s": statistics.median(took for _, _, took in measured),
        "ratio": ratio, "ratio_min": min(ratios), "ratio_max": max(ratios), "bound": BOUND, "pass": ratio >= BOUND}))


if __name__ == "__main__":
    main()
