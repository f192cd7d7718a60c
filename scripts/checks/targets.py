"""Bazel's targets as data: which files a target has and what it depends on."""
import collections
import re
import xml.etree.ElementTree as ET

from checks.source import bazel

Target = collections.namedtuple("Target", "label files headers deps")


def _path(label):
    return label[2:].replace(":", "/").lstrip("/")


def load(planted=False):
    """All C++ targets of ours by label."""
    result = bazel("query", "--noshow_progress", "--output=xml", 'kind("cc_.* rule", //...)')
    if result.returncode != 0:
        raise RuntimeError("bazel query failed: " + result.stderr[-2000:])
    targets = {}
    # Bazel writes XML 1.1, which the parser refuses.
    for rule in ET.fromstring(re.sub(r"^<\?xml[^>]*>", "", result.stdout)).iter("rule"):
        label = rule.get("name")
        if label.startswith("//bazel/forbidden") and not planted:
            continue
        lists = {l.get("name"): [v.get("value") for v in l.iter("label")] for l in rule.iter("list")}
        headers = [_path(v) for v in lists.get("hdrs", []) + lists.get("textual_hdrs", [])]
        sources = [_path(v) for v in lists.get("srcs", [])]
        targets[label] = Target(label, set(headers + sources), set(headers), set(lists.get("deps", [])))
    return targets
