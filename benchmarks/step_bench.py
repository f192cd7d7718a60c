"""bin/step-bench: the engine's own steps on one model, and what a workload's answer means."""
import json
import subprocess
import time

import figures
import processes


class StepBench:
    """One process with one model loaded; a context manager. It sleeps while it is not asked."""

    def __init__(self, model, threads, *flags):
        self.command = ["bin/step-bench", f"--model={model}", f"--threads={threads}", *flags]

    def __enter__(self):
        start = time.monotonic()
        self.process = processes.start(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise processes.Failed("Baton cannot load it: " + self.process.communicate()[1].strip()[-300:])
        self.ready, self.ready_s = json.loads(line), time.monotonic() - start
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()

    def run(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise processes.Failed(f"step-bench ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise processes.Failed(answer["error"])
        return answer

    def peak_memory_bytes(self):
        return processes.peak_memory_bytes(self.process.pid)


class Prefill:
    """A prompt of so many tokens, until its first token is sampled."""

    def __init__(self, tokens, step_tokens=512):
        self.tokens, self.step_tokens = tokens, step_tokens

    def request(self):
        return {"sequences": [{"prompt": self.tokens}], "step_tokens": self.step_tokens}

    def measured(self, answer):
        """(tokens a second, seconds)"""
        seconds = answer["steps"][-1][0]
        return self.tokens / seconds, seconds


class Decode:
    """`streams` that sample `tokens` each behind `context` tokens of their own."""

    def __init__(self, streams, context, tokens, **sampling):
        self.streams, self.context, self.tokens, self.sampling = streams, context, tokens, sampling

    def request(self):
        # The first token is there before the first step, so `tokens` are sampled by as many steps.
        return {"sequences": [{"count": self.streams, "prompt": self.context, "filled": True,
                               "max_tokens": self.tokens + 1, **self.sampling}], "step_tokens": 512}

    def measured(self, answer):
        seconds = answer["steps"][-1][0] - answer["steps"][0][0]
        return self.streams * self.tokens / seconds, seconds


def shares(answer, seconds, ceilings):
    """What a run reached of the machine's ceilings."""
    return {"compute_share": figures.compute_share(answer["macs"], seconds, ceilings),
            "bandwidth_share": figures.bandwidth_share(answer["bytes"], seconds, ceilings)}
