"""Checks that run a compiler's front end over our sources, with the flags that the build uses."""
import concurrent.futures
import json
import os
import re

from checks import source

CLANG_ONLY_TROUBLE = ("-fno-canonical-system-headers", "-Wunused-but-set-parameter", "-Wno-free-nonheap-object")


def compile_commands():
    """Source -> arguments, from Bazel's actions; also written for clangd and clang-tidy."""
    result = source.bazel("aquery", "--noshow_progress", "--output=jsonproto", 'mnemonic("CppCompile", //...)')
    if result.returncode != 0:
        raise RuntimeError("bazel aquery failed: " + result.stderr[-2000:])
    commands = {}
    for action in json.loads(result.stdout).get("actions", []):
        arguments = [a.replace("bazel-out/", "out/out/") for a in action["arguments"] if a not in CLANG_ONLY_TROUBLE]
        path = arguments[arguments.index("-c") + 1]
        commands[path] = arguments
    entries = [{"directory": source.ROOT, "file": f, "arguments": a} for f, a in sorted(commands.items())]
    with open(os.path.join(source.ROOT, "compile_commands.json"), "w", encoding="utf-8") as out:
        json.dump(entries, out, indent=1)
    return commands


def _in_parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [problem for problems in pool.map(function, items) for problem in problems]


def _is_heavy(path, known, seen):
    """Whether gRPC or protobuf headers are reached."""
    if path in seen:
        return False
    seen.add(path)
    for _, header in source.includes(path):
        if re.match(r"(grpc|grpcpp|google)/", header) or header.endswith(".pb.h"):
            return True
        if header in known and _is_heavy(header, known, seen):
            return True
    return False


def clang_tidy(commands):
    known = set(source.files(*source.CODE))
    light = [f for f in source.files(".cc")
             if f in commands and not f.endswith("_test.cc") and not _is_heavy(f, known, set())]

    def check(path):
        result = source.run("clang-tidy-14", "-p", ".", "--quiet", path)
        found = [l for l in result.stdout.splitlines() if re.search(r": (error|warning): ", l)]
        return found or ([f"{path}: {result.stderr[-300:]}"] if result.returncode else [])

    if not light:
        raise RuntimeError("no source found")
    return _in_parallel(check, light)


# A header of one instruction set is compiled with the flags of the sources that include it.
_INTRINSICS = {
    r"#include <(immintrin|x86intrin|nmmintrin)\.h>": ["g++", "-march=icelake-server", "-mavxvnni"],
    r"#include <arm_neon\.h>": ["aarch64-linux-gnu-g++", "-march=armv8.2-a+dotprod"],
}


def _first_include_of_a_source(header):
    """The build proves a header that some source includes before anything else."""
    stem = header[:-len(".h")]
    for source_path in (stem + ".cc", stem + "_test.cc"):
        if os.path.exists(os.path.join(source.ROOT, source_path)):
            listed = source.includes(source_path)
            if listed and listed[0][1] == header:
                return True
    return False


def headers_are_self_contained():
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror",
             "-I.", "-iquote", "out/bin", "-isystem", "out/bin/proto", "-x", "c++"]

    def check(path):
        text = source.read(path)
        compiler = next((c for pattern, c in _INTRINSICS.items() if re.search(pattern, text)), ["g++"])
        # Included twice by way of a file that has nothing else: its own guard is tested too.
        text = f'#include "{path}"\n#include "{path}"\n'
        result = source.run("bash", "-c", 'printf %s "$1" | "${@:2}" -', "-", text, *compiler, *flags)
        return [] if result.returncode == 0 else [f"{path}: {result.stderr.strip()[:400]}"]

    return _in_parallel(check, [h for h in source.files(".h") if not _first_include_of_a_source(h)])


def clang_format():
    paths = source.files(*source.CODE, planted=True)
    result = source.run("clang-format-14", "--dry-run", "-Werror", *paths)
    wrong = sorted({l.split(":")[0] for l in result.stderr.splitlines() if ": error: " in l})
    return [f"{path} is not formatted" for path in wrong] or (
        [result.stderr[-500:]] if result.returncode else [])
