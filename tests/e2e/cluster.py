"""A real cluster for tests: the binaries, their own processes, free ports. Python's standard library only."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import xml.etree.ElementTree as ElementTree

RUNFILES = os.path.join(os.environ.get("TEST_SRCDIR", "out/bin"),
                        os.environ.get("TEST_WORKSPACE", "."))
PROGRAMS = {
    "baton": "client/baton",
    "baton-router": "router/baton-router",
    "baton-prefill-worker": "prefill_worker/baton-prefill-worker",
    "baton-decode-worker": "decode_worker/baton-decode-worker",
    "make_tiny_model": "model/make_tiny_model",
}
# Slow machines are slow: what is measured is never how long a test waits for something to happen.
PATIENCE_S = 60
MOST_BETWEEN_LOOKS_S = 1
# What is asked for may take a slow and busy machine so long; the call or program ends then.
LONGEST_S = 600
SANITIZER = re.compile(r"^.*(?:ERROR: \w+Sanitizer|runtime error): .*$", re.MULTILINE)


def program(name):
    return os.path.join(RUNFILES, PROGRAMS[name])


def wait_for(condition, timeout_s=PATIENCE_S, what="condition"):
    """The first true value of condition(); fails after timeout_s. A machine that stands still meanwhile (its owner may
    pause it) does not use them up."""
    left, last = timeout_s, time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        left -= min(now - last, MOST_BETWEEN_LOOKS_S)
        last = now
        if left < 0:
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        time.sleep(0.005)


def limit(seconds):
    """A bound of the contract, which is for a machine that does nothing else: here other tests run as well."""
    return 4 * seconds


def tiny_model(directory, **flags):
    path = os.path.join(directory, "tiny.gguf")
    args = [f"--{key}={value}" for key, value in flags.items()]
    subprocess.run([program("make_tiny_model"), "--out=" + path, *args], check=True)
    return path


def real_model():
    """Path of the real model, or None. Missing with CI=true is an error."""
    path = os.environ.get("BATON_MODEL", "")
    if os.path.isfile(path):
        return path
    if os.environ.get("CI") == "true":
        raise AssertionError("BATON_MODEL names no file and CI is true")
    return None


def scrape(address):
    """{"name{labels}": value} of one /metrics."""
    values = {}
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        for line in response.read().decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
    return values


def skip_whole_test(reason):
    """Ends the program as one skipped case; with CI=true as a failure."""
    print(reason, file=sys.stderr)
    if os.environ.get("CI") == "true":
        sys.exit(1)
    if "XML_OUTPUT_FILE" in os.environ:
        suite = ElementTree.Element("testsuite", name=os.path.basename(sys.argv[0]))
        case = ElementTree.SubElement(suite, "testcase", name=os.path.basename(sys.argv[0]))
        ElementTree.SubElement(case, "skipped", message=reason)
        ElementTree.ElementTree(suite).write(os.environ["XML_OUTPUT_FILE"])
    sys.exit(0)


class Cluster:
    """baton up, stopped when the context ends."""

    def __init__(self, model, *flags):
        self.directory = tempfile.mkdtemp(prefix="baton-e2e-")
        self.bin = os.path.join(self.directory, "bin")
        os.mkdir(self.bin)
        for name, path in PROGRAMS.items():
            os.symlink(os.path.abspath(os.path.join(RUNFILES, path)),
                       os.path.join(self.bin, name))
        self.ready_file = os.path.join(self.directory, "ready.json")
        self.command = [os.path.join(self.bin, "baton"), "up", "--model", model,
                        "--ready-file", self.ready_file,
                        "--log-dir", os.path.join(self.directory, "logs"), *flags]
        self.process = None
        self.info = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        try:
            wait_for(lambda: os.path.exists(self.ready_file) or self.process.poll() is not None,
                     what="baton up")
            if self.process.poll() is not None:
                raise AssertionError("baton up ended: " + self.process.stdout.read())
            with open(self.ready_file, encoding="utf-8") as file:
                self.info = json.load(file)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        output = self.process.stdout.read()
        self.process.stdout.close()
        if kind is not None:
            self.print_logs()
        reports = self.sanitizer_reports(output)
        shutil.rmtree(self.directory, ignore_errors=True)
        if reports:
            raise AssertionError("\n".join(reports))

    def sanitizer_reports(self, output):
        """What a sanitizer wrote: `baton up` does not end with the status of its servers, and a test that
        kills one expects it to be gone."""
        logs = os.path.join(self.directory, "logs")
        texts = {"baton up": output}
        for name in sorted(os.listdir(logs)) if os.path.isdir(logs) else []:
            with open(os.path.join(logs, name), encoding="utf-8", errors="replace") as file:
                texts[name] = file.read()
        return [f"--- {name}\n{text[text.index(line):]}" for name, text in texts.items()
                for line in SANITIZER.findall(text)[:1]]

    def print_logs(self):
        logs = os.path.join(self.directory, "logs")
        for name in sorted(os.listdir(logs)) if os.path.isdir(logs) else []:
            with open(os.path.join(logs, name), encoding="utf-8", errors="replace") as file:
                print(f"--- {name}", *file.readlines()[-20:], sep="\n", file=sys.stderr)

    def logs(self, name):
        with open(os.path.join(self.directory, "logs", name + ".log"), encoding="utf-8") as file:
            return file.read()

    @property
    def target(self):
        return self.info["target"]

    def worker(self, role, index=0):
        return [w for w in self.info["workers"] if w["role"] == role][index]

    def metrics(self, role, index=0):
        if role == "router":
            return scrape(self.info["routers"][index]["metrics"])
        return scrape(self.worker(role, index)["metrics"])

    def signal(self, role, number, index=0):
        os.kill(self.worker(role, index)["pid"], number)

    def command_of(self, *flags, target=None):
        return [os.path.join(self.bin, "baton"), "generate", "--target", target or self.target,
                *flags]

    def run(self, *flags, target=None, timeout_s=LONGEST_S):
        """The finished process of `baton generate`, output as bytes."""
        return subprocess.run(self.command_of(*flags, target=target), capture_output=True,
                              timeout=timeout_s, check=False)

    def generate(self, *flags, target=None, timeout_s=LONGEST_S):
        """The JSON answer, that of the first of several choices; fails when the request does."""
        return self.generate_all(*flags, target=target, timeout_s=timeout_s)[0]

    def generate_all(self, *flags, target=None, timeout_s=LONGEST_S):
        """The JSON answers of all choices."""
        done = self.run("--json", *flags, target=target, timeout_s=timeout_s)
        if done.returncode != 0:
            raise AssertionError(f"{flags}: {done.stderr.decode()}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *flags):
        return Stream(self.command_of(*flags))

    def blocks_held(self, role, index=0):
        metrics = self.metrics(role, index)
        return sum(value for name, value in metrics.items()
                   if name.startswith("baton_kv_blocks{")
                   and not name.endswith(('"free"}', '"cached"}')))

    def assert_idle(self, timeout_s=PATIENCE_S):
        """Every worker holds nothing."""
        for worker in self.info["workers"]:
            wait_for(lambda w=worker: sum(
                value for name, value in scrape(w["metrics"]).items()
                if name.startswith("baton_kv_blocks{")
                and not name.endswith(('"free"}', '"cached"}'))) == 0,
                     timeout_s, f"{worker['name']} holds no blocks")
            violations = scrape(worker["metrics"])["baton_kv_self_check_violations_total"]
            if violations:
                raise AssertionError(f"{worker['name']} counts {violations} violations of its KV blocks")


class Stream:
    """A running `baton generate` whose output is read as it comes."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.output = b""
        self.errors = b""
        self.first_byte_at = None
        self.readers = [threading.Thread(target=self._read_output, daemon=True),
                        threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_output(self):
        while True:
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return
            if self.first_byte_at is None:
                self.first_byte_at = time.monotonic()
            self.output += piece

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def wait(self, timeout_s=LONGEST_S):
        """The exit code."""
        try:
            code = self.process.wait(timeout=timeout_s)
        finally:
            self.kill()
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


class CountedResult(unittest.TextTestResult):
    """Writes each case to the XML that the test runner counts."""

    def __init__(self, *args):
        super().__init__(*args)
        self.cases = []
        self.with_subtests = set()
        self.started = 0.0

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def addSubTest(self, test, subtest, err):
        """Each subTest is a case of its own; the test around it counts only when it breaks."""
        super().addSubTest(test, subtest, err)
        self.cases.append((subtest, err and "failure", 0.0))
        self.with_subtests.add(test.id())

    def stopTest(self, test):
        outcome = next((kind for kind, found in
                        (("failure", self.failures), ("error", self.errors),
                         ("skipped", self.skipped))
                        if any(case is test for case, _ in found)), None)
        if outcome is not None or test.id() not in self.with_subtests:
            self.cases.append((test, outcome, time.monotonic() - self.started))
        super().stopTest(test)

    def write(self, path):
        suite = ElementTree.Element("testsuite", name=os.path.basename(sys.argv[0]))
        for test, outcome, seconds in self.cases:
            case = ElementTree.SubElement(
                suite, "testcase", classname=type(test).__name__,
                name=test.id().split(".", 2)[-1], time=f"{seconds:.3f}")
            if outcome is not None:
                ElementTree.SubElement(case, outcome, message=outcome)
        ElementTree.ElementTree(suite).write(path)


def main():
    """unittest.main with an XML of the cases, and bazel's --test_filter."""
    pattern = os.environ.get("TESTBRIDGE_TEST_ONLY")
    argv = [sys.argv[0], "-v"] + (["-k", pattern] if pattern else []) + sys.argv[1:]
    runner = unittest.TextTestRunner(resultclass=CountedResult, verbosity=2)
    result = unittest.main(module="__main__", argv=argv, testRunner=runner, exit=False).result
    if "XML_OUTPUT_FILE" in os.environ:
        result.write(os.environ["XML_OUTPUT_FILE"])
    sys.exit(not result.wasSuccessful())

