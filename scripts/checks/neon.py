"""The tiers of aarch64: compiled by the cross compiler and compared with the scalar one under QEMU, which
runs programs of another processor. Bazel builds for this machine only."""
import concurrent.futures
import glob
import os
import re
import tempfile

from checks import source

COMPILER = "aarch64-linux-gnu-g++"
FLAGS = ["-std=c++20", "-ffp-contract=off", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-I."]
NEON = ["-O3", "-march=armv8.2-a+dotprod"]
GTEST = "/usr/src/googletest/googletest"
TEST = ["kernels/cpu/tiers.cc", "kernels/cpu/tiers_aarch64.cc", "kernels/cpu/tier_test.cc",
        "kernels/raw_tensor.cc"]


def _compile(path, folder):
    flags = NEON if path.startswith("kernels/cpu/neon/") else ["-O1"]
    if path.startswith(GTEST):
        flags = ["-O1", "-w", "-I" + GTEST]
    target = os.path.join(folder, path.strip("/").replace("/", "_") + ".o")
    result = source.run(COMPILER, *FLAGS, *flags, "-c", path, "-o", target)
    return target, result.stderr if result.returncode else ""


def tier_gives_the_bits_of_scalar_code():
    os.chdir(source.ROOT)
    paths = (TEST + glob.glob("kernels/cpu/scalar/*.cc") + glob.glob("kernels/cpu/neon/*.cc")
             + [f"{GTEST}/src/gtest-all.cc", f"{GTEST}/src/gtest_main.cc"])
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda path: _compile(path, folder), paths))
        problems = [error[:800] for _, error in objects if error]
        if problems:
            return problems
        program = os.path.join(folder, "tier_test")
        linked = source.run(COMPILER, "-static", "-o", program, *(o for o, _ in objects))
        if linked.returncode:
            return [linked.stderr[:800]]
        result = source.run("qemu-aarch64", program)
        return _failures(result.stdout + result.stderr, result.returncode)


def _failures(output, code):
    """A tier that was skipped has not been compared."""
    passed = re.search(r"\[  PASSED  \] (\d+) tests", output)
    skipped = re.search(r"\[  SKIPPED \] \d+ test", output)
    if code == 0 and passed and int(passed[1]) > 0 and not skipped:
        return []
    wrong = [l for l in output.splitlines() if re.search(r"Failure|FAILED|SKIPPED", l)]
    return wrong or [output[-800:]]
