#!/usr/bin/env python3
"""gcov data of one test -> lcov (--coverage_dir), or many lcov files -> one (--reports_file). Must be executable."""
import collections, glob, json, os, subprocess, sys
args, hits = dict(a[2:].split("=", 1) for a in sys.argv[1:]), collections.defaultdict(collections.Counter)
for gcda in glob.glob(args.get("coverage_dir", "/nonexistent") + "/**/*.gcda", recursive=True):
    if os.path.exists(gcda[:-4] + "gcno"):
        out = subprocess.check_output(["gcov", "--json-format", "--stdout", gcda], cwd=os.path.dirname(gcda))
        for f in (f for doc in out.splitlines() for f in json.loads(doc)["files"]):
            if not f["file"].startswith(("/", "external/", "bazel-out/")):
                hits[f["file"]].update({line["line_number"]: line["count"] for line in f["lines"]})
for report in open(args["reports_file"]).read().split() if "reports_file" in args else []:
    for line in open(report):
        kind, _, value = line.strip().partition(":")
        if kind == "SF":
            name = value
        elif kind == "DA":
            number, count = map(int, value.split(","))
            hits[name].update({number: count})
with open(args["output_file"], "w") as out:
    for name, lines in sorted(hits.items()):
        print(f"SF:{name}", *(f"DA:{n},{c}" for n, c in sorted(lines.items())), "end_of_record", sep="\n", file=out)
