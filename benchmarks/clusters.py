"""A cluster on this machine, and load against it."""
import json
import os
import re
import subprocess
import tempfile
import urllib.request

import figures
import processes


class Cluster:
    """`baton up` with these flags; a context manager."""

    def __init__(self, model, *flags):
        self.folder = tempfile.TemporaryDirectory()
        self.ready = os.path.join(self.folder.name, "ready")
        self.command = ["bin/baton", "up", "--model", model, "--port", "0", "--ready-file", self.ready, *flags]
        if "--prefix-cache" not in flags:
            self.command += ["--prefix-cache", "off"]  # most suites send the same prompts again and again

    def __enter__(self):
        with open(os.path.join(self.folder.name, "log"), "w", encoding="utf-8") as log:
            self.process = processes.start(self.command, stdout=log, stderr=log)
        try:
            processes.wait_until(lambda: os.path.exists(self.ready), self.process, "baton up")
        except processes.Failed as failed:
            with open(os.path.join(self.folder.name, "log"), encoding="utf-8") as log:
                raise processes.Failed(f"{failed}: {log.read()[-500:]}") from None
        except BaseException:
            self.__exit__()
            raise
        with open(self.ready, encoding="utf-8") as file:
            self.info = json.load(file)
        self.target = self.info["target"]
        return self

    def __exit__(self, *_):
        processes.stop(self.process)
        self.folder.cleanup()

    def bench(self, *flags):
        """The report of `baton bench`."""
        command = ["bin/baton", "bench", "--target", self.target, "--json", *map(str, flags)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise processes.Failed(f"{' '.join(command)} exited with {done.returncode}: {done.stderr[-500:]}")
        return json.loads(done.stdout)

    def generate(self, prompt, *flags):
        """The one choice that `baton generate` prints for these token ids."""
        done = subprocess.run(["bin/baton", "generate", "--target", self.target, "--prompt-tokens",
                               ",".join(map(str, prompt)), "--ignore-eos", "--json", *flags],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise processes.Failed(f"baton generate exited with {done.returncode}: {done.stderr[-500:]}")
        return json.loads(done.stdout)

    def metric(self, name, servers="routers"):
        """Of the first of these, without labels; 0 while it has not moved."""
        return _metric(self.info[servers][0], name)

    def metric_sum(self, name, servers):
        """Of all of these."""
        return sum(_metric(server, name) for server in self.info[servers])


def _metric(server, name):
    with urllib.request.urlopen(f"http://{server['metrics']}/metrics", timeout=10) as response:
        found = re.search(rf"^{name} (\S+)$", response.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


class Streams:
    """Requests that run from now on, all at once, none after them."""

    def __init__(self, target, requests, prompt_tokens, max_tokens):
        self.process = processes.start(
            ["bin/load-client", "--target", target, "--concurrency", str(requests), "--requests", str(requests),
             "--prompt_tokens", str(prompt_tokens), "--max_tokens", str(max_tokens), "--token_times"],
            stdout=subprocess.PIPE, text=True)

    def answers(self):
        """Waits for all; each has `sent_at` and `token_times`."""
        rows = [json.loads(line) for line in self.process.communicate()[0].splitlines()]
        bad = [row for row in rows if row["code"] != 0]
        if self.process.returncode != 0 or bad:
            raise processes.Failed(f"load-client exited with {self.process.returncode}: {bad[:1]}")
        return rows


def gaps(rows, begin, end):
    """The gaps between tokens that end between the two times, ascending."""
    return sorted(later - earlier for row in rows for earlier, later in zip(row["token_times"], row["token_times"][1:])
                  if begin < later <= end)


class Interference:
    """What a long prompt costs `streams` streams that are being answered in the same cluster."""

    SHORT_PROMPT = 16

    def __init__(self, streams, prompt_tokens, quiet_tokens, max_tokens):
        """The prompt comes when each stream has had `quiet_tokens`; `max_tokens` last until it is done."""
        self.streams, self.prompt_tokens = streams, prompt_tokens
        self.quiet_tokens, self.max_tokens = quiet_tokens, max_tokens

    def measure(self, cluster):
        """(p99 of the streams' gaps before the prompt came, p99 from then to its first token, how long that took)."""
        before = cluster.metric("baton_generation_tokens_total")
        streams = Streams(cluster.target, self.streams, self.SHORT_PROMPT, self.max_tokens)
        processes.wait_until(lambda: cluster.metric("baton_generation_tokens_total") - before >=
                             self.streams * self.quiet_tokens, streams.process, "the streams")
        long_one = Streams(cluster.target, 1, self.prompt_tokens, 2).answers()[0]
        rows = streams.answers()
        began = max(row["token_times"][0] for row in rows)
        sent, first = long_one["sent_at"], long_one["token_times"][0]
        if min(row["token_times"][-1] for row in rows) < first:
            raise processes.Failed("a stream ended before the prompt's first token")
        return (figures.percentile(gaps(rows, began, sent), 99), figures.percentile(gaps(rows, sent, first), 99),
                first - sent)
