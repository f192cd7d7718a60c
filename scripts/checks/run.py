#!/usr/bin/env python3
"""The checks that are not Bazel tests. run.py [--out FILE] [--filter REGEX] [--list]"""
import argparse
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from checks import compilers, contract, metrics_doc, neon, planted, source  # noqa: E402
from checks.include_check import Checker  # noqa: E402

MAX_LINES = {".h": 250, ".cc": 500, ".cu": 500}
# No core may reach these, not even through others.
CORES = "//common/... + //sampling/... + //kv/... + //gguf/... + //kernels/... + //engine/... + //model/..."


def sizes():
    problems = []
    for path in source.files(*source.CODE):
        lines, limit = source.read(path).count("\n"), MAX_LINES[os.path.splitext(path)[1]]
        if lines > limit:
            problems.append(f"{path} has {lines} lines, at most {limit}")
    return problems


def buf_lint():
    result = source.run("scripts/python_env.sh")
    if result.returncode != 0:
        return ["no buf: " + result.stderr[-500:]]
    buf = os.path.join(result.stdout.strip(), "buf")
    config = source.read("proto/buf.yaml")
    problems = [] if "- STANDARD" in config else ["proto/buf.yaml does not ask for STANDARD"]
    return problems + [l for l in source.run(buf, "lint", "proto").stdout.splitlines() if l]


def cores_are_free_of_grpc():
    query = f"deps(({CORES}) except //common/rpc/...) intersect (//proto/... + //bazel:grpc + //bazel:protobuf)"
    result = source.bazel("query", "--noshow_progress", query)
    if result.returncode != 0:
        return [result.stderr[-1000:]]
    return [f"reached by a core: {label}" for label in result.stdout.split()]


CHECKS = {
    "checks/clang-format": compilers.clang_format,
    "checks/sizes": sizes,
    "checks/buf-lint": buf_lint,
    "checks/metrics-are-listed": metrics_doc.check,
    "checks/contract-names-tests": contract.check,
    "checks/includes-are-declared": lambda: Checker().undeclared(),
    "checks/includes-follow-the-layers": lambda: Checker().direction(),
    "checks/cores-reach-no-grpc": cores_are_free_of_grpc,
    "checks/forbidden-include-without-dependency-fails": planted.undeclared_include_fails,
    "checks/forbidden-include-through-dependency-fails": planted.include_through_dependency_fails,
    "checks/forbidden-direction-fails": planted.wrong_direction_fails,
    "checks/forbidden-dependency-is-not-visible": planted.invisible_dependency_fails,
    "checks/neon-tier-gives-the-bits-of-scalar-code": neon.tier_gives_the_bits_of_scalar_code,
    "checks/headers-are-self-contained": compilers.headers_are_self_contained,
    "checks/clang-tidy": lambda: compilers.clang_tidy(compilers.compile_commands()),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--filter", default="")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    chosen = [name for name in CHECKS if re.search(args.filter, name)]
    if args.list:
        print("\n".join(chosen))
        return 0
    report = source.Report(args.out)
    for name in chosen:
        report.timed(name, CHECKS[name])
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
