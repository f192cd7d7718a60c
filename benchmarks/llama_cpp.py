"""llama.cpp as a peer: its own benchmark programs and its server, each with the best of its settings."""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import processes

FLASH_ATTENTION = ("on", "off")
# With -kvu all slots share one buffer of keys and values.
SERVER_SETTINGS = (("-fa", "on"), ("-fa", "off"), ("-fa", "on", "-kvu"))
MICRO_BATCHES = (512, 256, 128)


def parse_bench(output):
    """Tokens per second of `llama-bench -o json` with one test."""
    rows = json.loads(output)
    if len(rows) != 1:
        raise ValueError(f"llama-bench printed {len(rows)} rows, not one")
    return rows[0]["avg_ts"]


def parse_batched_bench(output):
    """Tokens per second while generating, of `llama-batched-bench --output-format jsonl` with one row."""
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if len(rows) != 1:
        raise ValueError(f"llama-batched-bench printed {len(rows)} rows, not one")
    return rows[0]["speed_tg"]


def parse_instructions(output):
    """["SSE3", "AVX2", ...] of the line system_info, which says what the processor has and the build uses."""
    line = next((line for line in output.splitlines() if "system_info:" in line), "")
    return [name for name, value in re.findall(r"(\w+) = (\d+)", line) if value != "0"
            and name not in ("n_threads", "n_threads_batch")] or None


class Prefill:
    """A prompt of so many tokens."""

    def __init__(self, tokens):
        self.tokens = tokens

    def settings(self):
        return [("-fa", fa, "-ub", str(ub)) for fa in FLASH_ATTENTION for ub in MICRO_BATCHES]

    def command(self, model, threads):
        return ["llama-bench", "-m", model, "-t", str(threads), "-p", str(self.tokens), "-n", "0", "-r", "1",
                "-ctk", "f16", "-ctv", "f16", "-o", "json"]

    parse = staticmethod(parse_bench)


class Decode:
    """One stream that generates `tokens` behind `context` others."""

    def __init__(self, context, tokens):
        self.context, self.tokens = context, tokens

    def settings(self):
        return [("-fa", fa) for fa in FLASH_ATTENTION]

    def command(self, model, threads):
        return ["llama-bench", "-m", model, "-t", str(threads), "-p", "0", "-n", str(self.tokens), "-d",
                str(self.context), "-r", "1", "-ctk", "f16", "-ctv", "f16", "-o", "json"]

    parse = staticmethod(parse_bench)


class Batch:
    """`streams` that generate `tokens` each behind `context` others of their own."""

    def __init__(self, streams, context, tokens):
        self.streams, self.context, self.tokens = streams, context, tokens

    def settings(self):
        return [("-fa", fa) for fa in FLASH_ATTENTION]

    def command(self, model, threads):
        room = self.streams * (self.context + self.tokens)
        return ["llama-batched-bench", "-m", model, "-t", str(threads), "-tb", str(threads), "-c", str(room), "-b",
                "2048", "-ub", "512", "-npp", str(self.context), "-ntg", str(self.tokens), "-npl", str(self.streams),
                "-ctk", "f16", "-ctv", "f16", "--output-format", "jsonl"]

    parse = staticmethod(parse_batched_bench)


class LlamaCpp:
    """The programs in one folder. The best settings of a workload on a file are looked for once."""

    def __init__(self, folder, threads):
        self.folder, self.threads, self.best, self.commands = folder, threads, {}, []

    def instructions(self, model):
        """What the programs were built for and found, in their own words; None where they do not say."""
        command = [os.path.join(self.folder, "llama-completion"), "-m", model, "-p", "a", "-n", "1", "-no-cnv"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return parse_instructions(done.stdout + done.stderr)

    def _rate(self, model, workload, setting):
        command = workload.command(model, self.threads)
        command = [os.path.join(self.folder, command[0]), *command[1:], *setting]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise processes.Failed(f"{' '.join(command)} exited with {done.returncode}: {done.stderr[-500:]}")
        return workload.parse(done.stdout)

    def tune(self, model, workload):
        """(the best setting, what all of them gave); prints both."""
        key = (model, type(workload).__name__, tuple(sorted(vars(workload).items())))
        if key not in self.best:
            tried = [(self._rate(model, workload, setting), setting) for setting in workload.settings()]
            best = max(tried)[1]
            text = ", ".join(f"{' '.join(setting)}: {rate:.1f}" for rate, setting in tried)
            command = " ".join([*workload.command(model, self.threads), *best])
            print(f"bench: peer: {command} ({text} tokens/s)", file=sys.stderr)
            self.best[key] = best, command
        return self.best[key]

    def rate(self, model, workload):
        return self._rate(model, workload, self.tune(model, workload)[0])

    def described(self, model, workload):
        return self.tune(model, workload)[1]


class Server:
    """llama-server with a slot for each stream; a context manager."""

    def __init__(self, folder, model, threads, streams, room, setting):
        self.streams, self._kept = streams, None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [os.path.join(folder, "llama-server"), "-m", model, "-t", str(threads), "-tb", str(threads),
                        "-np", str(streams), "-c", str(streams * room), "-ctk", "f16", "-ctv", "f16", "--host",
                        "127.0.0.1", "--port", str(self.port), "--no-webui", *setting]

    def __enter__(self):
        self.process = processes.start(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            processes.wait_until(self._healthy, self.process, "llama-server")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        processes.stop(self.process)

    def _healthy(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def generate(self, prompt, tokens):
        """(seconds to the first event of the stream, number of events); the answer has exactly `tokens`."""
        body = json.dumps({"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "stream": True,
                           "cache_prompt": False, "temperature": 0})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        start = time.monotonic()
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        first, last = None, None
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                first = first or time.monotonic() - start
                last = json.loads(line[len(b"data: "):])
        connection.close()
        if last is None or last.get("tokens_predicted") != tokens:
            raise processes.Failed(f"llama-server answered {last}, not {tokens} tokens")
        return first

    vocabulary = 49152  # of the model that all rows run
    PLAIN = 1000        # a token whose text is whole characters

    def next_logprobs(self, prefix, count):
        """Log probability by token of the `count` likeliest ones after `prefix`, which the server remembers. It keeps
        them to itself where the token that it samples is a part of a character, so it is made to sample another one;
        the probabilities are those before that."""
        body = json.dumps({"prompt": prefix, "n_predict": 1, "n_probs": count, "cache_prompt": True, "temperature": 0,
                           "ignore_eos": False, "logit_bias": [[self.PLAIN, 1000.0]]})
        if self._kept is None:
            self._kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        self._kept.request("POST", "/completion", body, {"Content-Type": "application/json"})
        answer = json.loads(self._kept.getresponse().read())
        try:
            return {top["id"]: top["logprob"] for top in answer["completion_probabilities"][0]["top_logprobs"]}
        except (KeyError, IndexError):
            raise processes.Failed(f"llama-server answered {str(answer)[:300]}") from None

    def load(self, requests, prompt_tokens, tokens):
        """A closed loop of all streams: (tokens a second, times to first token)."""
        prompts = [[1000 + (i * 7919 + t * 104729) % 40000 for t in range(prompt_tokens)] for i in range(requests)]
        firsts, errors, lock = [], [], threading.Lock()

        def work():
            while True:
                with lock:
                    if not prompts or errors:
                        return
                    prompt = prompts.pop()
                try:
                    first = self.generate(prompt, tokens)
                except (OSError, ValueError, processes.Failed) as error:
                    errors.append(error)
                    return
                firsts.append(first)

        threads = [threading.Thread(target=work) for _ in range(self.streams)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise processes.Failed(f"llama-server: {errors[0]}")
        return requests * tokens / (time.monotonic() - start), firsts
