#!/usr/bin/env python3
"""Runs the benchmark programs one after the other and puts their rows into one JSON object."""
import argparse
import datetime
import json
import os
import subprocess
import sys

SUITES = ("decode", "prefill", "transfer", "interference")


def run(command):
    """The JSON lines that a program prints to stdout; its stderr goes through."""
    print("$ " + " ".join(command), file=sys.stderr)
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0:
        print(f"bench: {command[0]} exited with {result.returncode}", file=sys.stderr)
    return rows, result.returncode


def commands_of(suite, args, peers):
    model, threads = os.environ["BATON_MODEL"], str(len(os.sched_getaffinity(0)))
    rounds = ["--rounds=" + args.rounds] if args.rounds else []
    if suite == "transfer":
        handoff = ["scripts/handoff_bench.py"] + ([args.rounds] if args.rounds else [])
        return [["bin/transfer-bench"] + rounds, handoff]
    if suite == "interference":
        return [["scripts/interference_bench.py"] + ([args.rounds] if args.rounds else [])]
    command = ["bin/model-bench", "--suite=" + suite, "--model=" + model, "--threads=" + threads]
    return [command + (["--llama_cpp=" + peers] if peers else []) + rounds]


def build_peers():
    script = os.path.join(os.environ.get("BATON_SHARED", ""), "peers/llama-cpp")
    if not os.path.exists(script):
        sys.exit("bench: --peers needs the folder peers/ of BATON_SHARED")
    return subprocess.check_output([script], stdin=subprocess.DEVNULL, text=True).strip()


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((l.split(":")[1].strip() for l in info if l.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--rounds")
    parser.add_argument("--out")
    args = parser.parse_args()
    unknown = [s for s in args.suites if s not in SUITES]
    if unknown:
        sys.exit(f"bench: unknown suite {unknown[0]}; there are: {' '.join(SUITES)}")
    peers = os.environ.get("BATON_LLAMA_CPP") or (build_peers() if args.peers else "")

    ceilings, status = run(["bin/machine-ceilings"])
    commands, rows = [], []
    for command in (c for suite in args.suites or SUITES for c in commands_of(suite, args, peers)):
        commands.append(" ".join(command))
        new_rows, failed = run(command)
        rows += new_rows
        status = status or failed or (0 if new_rows else 1)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    text = json.dumps({
        "cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "ceilings": ceilings,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit, "commands": commands, "rows": rows}, indent=1)
    print(text)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    missed = [row["name"] for row in rows if row.get("pass") is False]
    for name in missed:
        print(f"bench: {name} misses its bound", file=sys.stderr)
    return 1 if status or missed else 0


if __name__ == "__main__":
    sys.exit(main())
