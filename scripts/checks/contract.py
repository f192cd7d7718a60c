"""docs/contract.md names tests as `FILE:TEST`; each must exist, and each entry must have one or say why it cannot occur."""
import os
import re

from checks import source

DOCUMENT = "docs/contract.md"
ROW = re.compile(r"^\| ([A-Z]+-\d+) \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"`([\w./-]+\.(?:py|cc|sh)):([\w.]+)`")
CANNOT = "Cannot occur:"


def defines(text, path, name):
    if path.endswith(".py"):
        return re.search(rf"^ *def {re.escape(name)}\(", text, re.MULTILINE) is not None
    if path.endswith(".sh"):
        return re.search(rf"^{re.escape(name)}\(\)", text, re.MULTILINE) is not None
    suite, _, case = name.partition(".")
    return re.search(rf"^TEST(?:_F|_P)?\(\s*{re.escape(suite)},\s*{re.escape(case)}\)", text, re.MULTILINE) is not None


def problems_of(text, read):
    """`read`: the content of a path, or None."""
    rows = ROW.findall(text)
    entries = [entry for entry, _ in rows]
    problems = [] if rows else [f"{DOCUMENT} has no entries"]
    if entries != sorted(set(entries)):
        problems.append(f"{DOCUMENT}: entries are not sorted, or one comes twice")
    for entry, row in rows:
        if not TEST.search(row) and CANNOT not in row:
            problems.append(f"{DOCUMENT}: {entry} names no test and no reason why it cannot occur")
    for path, name in TEST.findall(text):
        content = read(path)
        if content is None or not defines(content, path, name):
            problems.append(f"{DOCUMENT}: there is no {name} in {path}")
    return problems


def check():
    # What is not seen here is seen nowhere.
    good = "| AB-01 | x | `a_test.py:test_a` |\n| AB-02 | x | `a_test.cc:A.B` |\n"
    files = {"a_test.py": "    def test_a(self):\n", "a_test.cc": "TEST_F(A, B) {\n"}
    planted = [problems_of(text, files.get) for text in
               ("", good.replace("test_a", "test_b"), good.replace("A.B", "A.C"), good.replace("a_test.cc", "b_test.cc"),
                good.replace("AB-02", "AA-02"), good + "| AB-03 | x | y |\n")]
    if problems_of(good, files.get) or not all(planted):
        return ["the check itself is wrong"]
    return problems_of(source.read(DOCUMENT), lambda path: source.read(path) if os.path.exists(path) else None)
