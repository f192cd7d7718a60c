#!/usr/bin/env python3
"""./bench: runs suites and prints one JSON object: the machine, its ceilings and a row per figure."""
import argparse
import datetime
import json
import os
import subprocess
import sys

import claims
import conversations
import operation_rows
import processes
import serving
import speed

# Baton's backends by instruction set; "cpu" is the best that the machine has.
BACKENDS = ("cpu", "cpu-avx512", "cpu-avxvnni", "cpu-avx2", "cpu-scalar")
SUITES = ("limits", "layers", "speed", "claims", "transfer", "handoff", "interference", "placement", "router",
          "cache")


def limits():
    """Rows of what this machine can do at most."""
    return serving.program_rows(["bin/machine-ceilings"])


def peers_folder():
    script = os.path.join(os.environ.get("BATON_SHARED", ""), "peers/llama-cpp")
    if not os.path.exists(script):
        sys.exit("bench: --peers needs the folder peers/ of BATON_SHARED")
    return subprocess.check_output([script], stdin=subprocess.DEVNULL, text=True).strip()


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((l.split(":")[1].strip() for l in info if l.startswith("model name")), "unknown")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./bench")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES) + "; all when none is named")
    parser.add_argument("--llama-cpp", metavar="DIR", default=os.environ.get("BATON_LLAMA_CPP"),
                        help="the folder with llama.cpp's programs")
    parser.add_argument("--peers", action="store_true", help="builds llama.cpp, instead of --llama-cpp")
    parser.add_argument("--openvino", metavar="CMD", help="what measures OpenVINO GenAI")
    parser.add_argument("--backend", choices=BACKENDS, default="cpu",
                        help="Baton's instruction set, and whose ceilings count")
    parser.add_argument("--rows", metavar="NAME,...", help="of the suite speed; * stands for any characters")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--json", "--out", metavar="FILE", help="keeps what is printed")
    args = parser.parse_args(arguments)
    unknown = [s for s in args.suites if s not in SUITES]
    if unknown:
        parser.error(f"unknown suite {unknown[0]}; there are: {' '.join(SUITES)}")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    args.suites = args.suites or list(SUITES)
    patterns = args.rows.split(",") if args.rows else []
    if patterns and "speed" not in args.suites:
        parser.error("--rows chooses rows of the suite speed")
    args.rows, unknown = speed.chosen(patterns, speed.all_rows())
    if unknown:
        parser.error(f"no row is named {unknown[0]}")
    return args


def run_suite(suite, args, run):
    if suite == "speed":
        return speed.measure(args.rows, run)
    return {"layers": operation_rows.attention_rows, "claims": claims.measure, "transfer": serving.transfer,
            "handoff": serving.handoff, "interference": serving.interference, "placement": serving.placement,
            "router": serving.router, "cache": conversations.measure}[suite](run)


def warn_when_unequal(backend, instructions):
    """A peer with instructions that Baton was told not to use."""
    more = [name for name in instructions or () if name.startswith(("AVX512", "AMX")) and backend != "cpu-avx512"
            or name == "AVX_VNNI" and backend not in ("cpu-avxvnni", "cpu-avx512")]
    if backend != "cpu" and more:
        print(f"bench: llama.cpp was built for {', '.join(more)}, and Baton runs {backend}: these figures compare "
              "nothing", file=sys.stderr)


def report(load, ceilings, run, instructions, rows):
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False).stdout.strip()
    return {"cpu": cpu_name(), "cores": processes.threads(), "backend": run.backend,
            "peer_instructions": instructions,
            "ceilings": ceilings,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load_average_before": load, "commit": commit, "commands": [" ".join(["./bench", *sys.argv[1:]])],
            "rows": rows}


def warn_when_busy(load):
    """Peers that spin lose more than others on a busy machine, so ratios are as wrong as rates there."""
    if load > processes.threads() / 2:
        print(f"bench: the machine is busy (load average {load:.1f}): these figures compare nothing", file=sys.stderr)


def main():
    args = parse(sys.argv[1:])
    load = os.getloadavg()[0]
    warn_when_busy(load)
    ceilings = limits()
    folder = args.llama_cpp or (peers_folder() if args.peers else None)
    run = speed.Run(args.rounds, {row["name"]: row["value"] for row in ceilings}, folder, args.openvino,
                    args.backend)
    instructions = run.llama.instructions(run.model("q4_1")) if run.llama else None
    warn_when_unequal(args.backend, instructions)
    rows, failures = [], 0
    for suite in args.suites:
        if suite == "limits":
            continue  # measured above: every suite's rows need them
        try:
            rows += run_suite(suite, args, run)
        except processes.FAILURES as failed:
            print(f"bench: {suite}: {failed}", file=sys.stderr)
            failures += 1
    text = json.dumps(report(load, ceilings, run, instructions, rows), indent=1)
    print(text)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    missed = [row for row in rows if row.get("pass") is False]
    for row in missed:
        print(f"bench: {row['name']} misses its bound" + (f": {row['note']}" if "note" in row else ""),
              file=sys.stderr)
    return 1 if failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
