#!/usr/bin/env python3
"""Counts test cases and prints the closing line `N passed, N failed, N skipped`.

report.py [--bazel EVENTS RC]... [--checks FILE]... [--out FILE] [--left-out FILE]

EVENTS is Bazel's build event file (JSON lines), RC Bazel's exit status; a checks file has one JSON
object a line: {"name", "status": passed|failed|skipped, "detail"}. Exits 1 when something failed or
nothing passed.
"""
import argparse
import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ET


class Counts:
    def __init__(self):
        self.passed, self.failed, self.skipped, self.left_out = 0, [], [], []

    def add_xml(self, label, path):
        """One test.xml; a file that cannot be read is the caller's to count."""
        for case in ET.parse(path).iter("testcase"):
            name = f"{label} {case.get('classname', '')}.{case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            elif skipped is not None or case.get("status") == "notrun":
                reason = "" if skipped is None else (skipped.get("message") or "")
                self.skipped.append(f"{name}: {reason.strip().splitlines()[-1] if reason.strip() else 'disabled'}")
            else:
                self.passed += 1

    def add_result(self, label, result):
        """One run of one target (a shard, an attempt)."""
        before = len(self.failed)
        for output in result.get("testActionOutput", []):
            if output["name"] == "test.xml":
                try:
                    self.add_xml(label, urllib.parse.unquote(output["uri"][len("file://"):]))
                except (OSError, ET.ParseError) as error:
                    self.failed.append(f"{label} has no readable test.xml: {error}")
        # A crash or a timeout loses the XML of the whole program: one failed case.
        if result["status"] != "PASSED" and len(self.failed) == before:
            self.failed.append(f"{label} {result['status']}")

    def add_events(self, path, exit_status, interrupted_ok):
        before = len(self.failed)
        if not os.path.exists(path):
            self.failed.append(f"bazel exited with {exit_status} before it ran anything")
            return
        with open(path) as events:
            for event in map(json.loads, events):
                label = next(iter(event["id"].values()), {}).get("label", "")
                reason = event.get("aborted", {}).get("reason", "")
                if "testResult" in event:
                    self.add_result(label, event["testResult"])
                elif interrupted_ok and reason in ("USER_INTERRUPTED", "INCOMPLETE", "NO_ANALYZE", "NO_BUILD"):
                    if "targetCompleted" in event["id"] or "testSummary" in event["id"]:
                        self.left_out.append(label)
                elif "targetCompleted" in event["id"] and not event.get("completed", {}).get("success"):
                    if reason != "SKIPPED":  # incompatible with the configuration
                        self.failed.append(f"{label} did not build")
        nothing_to_do = exit_status == 4  # no test targets: the caller's filter decides
        if exit_status not in (0, 8 if interrupted_ok else 0) and not nothing_to_do and len(self.failed) == before:
            self.failed.append(f"bazel exited with {exit_status}")

    def add_checks(self, path):
        with open(path) as lines:
            for case in map(json.loads, lines):
                if case["status"] == "passed":
                    self.passed += 1
                elif case["status"] == "skipped":
                    self.skipped.append(f"{case['name']}: {case.get('detail', '')}")
                else:
                    self.failed.append(case["name"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bazel", nargs=2, action="append", default=[])
    parser.add_argument("--checks", action="append", default=[])
    parser.add_argument("--interrupted-ok", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    counts = Counts()
    for path, status in args.bazel:
        counts.add_events(path, int(status), args.interrupted_ok)
    for path in args.checks:
        counts.add_checks(path)
    for name in sorted(set(counts.left_out)):
        print(f"LEFT OUT {name}")
    for name in counts.skipped:
        print(f"SKIPPED {name}")
    for name in counts.failed:
        print(f"FAILED {name}")
    numbers = counts.passed, len(counts.failed), len(counts.skipped)
    if args.out:
        with open(args.out, "w") as out:
            print(*numbers, file=out)
    if counts.passed == 0 and not counts.failed:
        print("nothing ran")
    print("%d passed, %d failed, %d skipped" % numbers)
    sys.exit(bool(counts.failed) or counts.passed == 0)


if __name__ == "__main__":
    main()
