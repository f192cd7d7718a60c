#!/usr/bin/env python3
"""docs/metrics.md lists every metric that the sources declare. metrics_doc.py writes it; the check
compares."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from checks import source  # noqa: E402

DOC = "docs/metrics.md"
DECLARATION = re.compile(r'Add(Counter|Gauge|Histogram)\(\s*"([^"]+)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
NAME = {"Counter": r"baton_[a-z0-9_]+_total", "Gauge": r"baton_[a-z0-9_]+",
        "Histogram": r"baton_[a-z0-9_]+_(seconds|bytes|tokens|ratio)"}
HEAD = """# Metrics

Each role serves these at `/metrics` in the Prometheus text format; a histogram has `_bucket`, `_sum` and `_count`.
Units are seconds, bytes, tokens and plain ratios. This file is written by `scripts/checks/metrics_doc.py` from the declarations, and
`./test` fails when the two differ.

| metric | type | labels | role | meaning |
|---|---|---|---|---|
"""


def _rest_of_call(text, at):
    """The arguments after the help text, up to the call's closing parenthesis."""
    depth = 1
    for end in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[at:end]
    return ""


def declared():
    """(name, type, labels, role, help) rows, and problems."""
    rows, problems = set(), []
    for path in source.files(".cc"):
        if path.startswith("common/") or path.endswith("_test.cc") or path.startswith("tests/"):
            continue
        text, role = source.read(path), "router" if path.startswith("router/") else "worker"
        for found in DECLARATION.finditer(text):
            kind, name = found[1], found[2]
            words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[3]))
            labels = re.search(r"\{((?:\s*\"[a-z_]+\"\s*,?)+)\}", _rest_of_call(text, found.end()))
            names = ", ".join(re.findall(r'"([a-z_]+)"', labels[1])) if labels else ""
            if not re.fullmatch(NAME[kind], name):
                problems.append(f"{path}: {kind} {name} is not named {NAME[kind]}")
            rows.add((name, kind.lower(), names, role, words))
    for name in {row[0] for row in rows}:
        if len({row[1:3] for row in rows if row[0] == name}) > 1:
            problems.append(f"{name} is declared with different types or labels")
    return sorted(rows), problems


def text_of(rows):
    return HEAD + "".join(f"| `{n}` | {t} | {l} | {r} | {h} |\n" for n, t, l, r, h in rows)


def check():
    rows, problems = declared()
    if not os.path.exists(os.path.join(source.ROOT, DOC)) or source.read(DOC) != text_of(rows):
        problems.append(f"{DOC} does not list what the sources declare: run scripts/checks/metrics_doc.py")
    return problems


if __name__ == "__main__":
    with open(os.path.join(source.ROOT, DOC), "w", encoding="utf-8") as doc:
        doc.write(text_of(declared()[0]))
