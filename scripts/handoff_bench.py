#!/usr/bin/env python3
"""One JSON row: the handoff's share of the time to first token, real model and processes, 1,000-token prompts.

The larger-is-better ratio is time to first token over handoff; the bound is 20 (a share of 5 %)."""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BOUND = 20.0
PROMPT_TOKENS = 1000


def start(model, folder):
    ready = os.path.join(folder, "ready")
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        cluster = subprocess.Popen(["bin/baton", "up", "--model", model, "--port", "0", "--ready-file", ready],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while not os.path.exists(ready):
        if cluster.poll() is not None:
            with open(os.path.join(folder, "log"), encoding="utf-8") as log:
                sys.exit("handoff bench: the cluster stopped: " + log.read())
        time.sleep(0.05)
    with open(ready, encoding="utf-8") as file:
        return cluster, json.load(file)["target"]


def timings(target, round_number):
    prompt = ",".join(str(1000 + (i * 7 + round_number * 13) % 40000) for i in range(PROMPT_TOKENS))
    done = subprocess.run(["bin/baton", "generate", "--target", target, "--prompt-tokens", prompt, "--max-tokens", "8",
                           "--ignore-eos", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["timings"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        cluster, target = start(os.environ["BATON_MODEL"], folder)
        try:
            measured = [timings(target, i) for i in range(rounds)]
        finally:
            cluster.send_signal(signal.SIGTERM)
            cluster.wait()
    ratios = [t["time_to_first_token"] / t["handoff"] for t in measured]
    ratio = statistics.median(ratios)
    print(json.dumps({
        "name": "handoff_1000_tokens", "value": statistics.median(t["handoff"] for t in measured), "unit": "s",
        "peer": "time to first token of the same request",
        "peer_value": statistics.median(t["time_to_first_token"] for t in measured),
        "ratio": ratio, "ratio_min": min(ratios), "ratio_max": max(ratios), "bound": BOUND, "pass": ratio >= BOUND}))


if __name__ == "__main__":
    main()
