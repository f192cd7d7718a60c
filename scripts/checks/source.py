"""What every check needs: our files, their includes, the cases."""
import json
import os
import re
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLANTED = "bazel/forbidden/"  # sources that break a rule on purpose
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
CODE = (".h", ".cc", ".cu")


def run(*command, **kwargs):
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, **kwargs)


def bazel(*arguments):
    return run(os.path.join(ROOT, "scripts/bazel.sh"), *arguments)


def files(*suffixes, planted=False):
    """Our files: what git tracks or would track."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard").stdout.splitlines()
    return [f for f in sorted(set(listed))
            if f.endswith(suffixes) and os.path.isfile(os.path.join(ROOT, f))
            and (planted or not f.startswith(PLANTED))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def includes(path):
    """(line number, header) pairs."""
    text = read(path)
    return [(text.count("\n", 0, m.start()) + 1, m[1] or m[2]) for m in INCLUDE.finditer(text)]


class Report:
    """Prints each case and writes it to the checks file."""

    def __init__(self, path):
        self.path, self.failed = path, False

    def case(self, name, problems, skipped=None, seconds=0.0):
        status = "skipped" if skipped else "failed" if problems else "passed"
        self.failed |= status == "failed"
        print(f"{status:8} {name}" + (f" ({seconds:.1f} s)" if seconds >= 0.1 else ""), flush=True)
        for problem in problems[:40]:
            print(f"         {problem}", flush=True)
        if len(problems) > 40:
            print(f"         ... and {len(problems) - 40} more", flush=True)
        if self.path:
            with open(self.path, "a", encoding="utf-8") as out:
                detail = skipped or "\n".join(problems)
                print(json.dumps({"name": name, "status": status, "detail": detail}), file=out)

    def timed(self, name, check):
        start = time.monotonic()
        try:
            problems = check()
        except Exception as error:  # a check that breaks has not passed
            problems = [f"the check itself failed: {error!r}"]
        self.case(name, problems, seconds=time.monotonic() - start)
