"""./bench claims: each of the ideas that Baton is built on beside what it replaces, on the same engine in the same run.
The losing side exists here alone."""
import contextlib
import os
import random
import statistics

import figures
import operation_rows
import processes
import serving
import step_bench

SLOTS = 16       # sequences at a time
REQUESTS = 48
PROMPT = 32
OUTPUTS = (8, 128)  # tokens, uniformly
LOAD = 0.7       # of what request-level batching bears


def requests(seed, rate=None):
    """Sequences of uniform lengths, all at once or arriving at `rate` a second on average."""
    draw = random.Random(seed)
    arrival, sequences = 0.0, []
    for _ in range(REQUESTS):
        if rate is not None:
            arrival += draw.expovariate(rate)
        sequences.append({"prompt": PROMPT, "max_tokens": draw.randint(*OUTPUTS), "arrival": arrival})
    return sequences


def request_level(sequences):
    return {"sequences": sequences, "group": SLOTS, "max_running": SLOTS}


def iteration_level(sequences):
    return {"sequences": sequences, "max_running": SLOTS}


def throughput(request, answer):
    return sum(one["max_tokens"] for one in request["sequences"]) / answer["steps"][-1][0]


def latency(request, answer, token):
    """The median time from a request's arrival to its first token (0) or its last (1)."""
    return statistics.median(times[token] - one["arrival"]
                             for one, times in zip(request["sequences"], answer["sequences"]))


class Batching:
    """Sequences that join and leave at every step, against batches that form when the one before has ended."""

    names = ("claim_batching_throughput", "claim_batching_first_token", "claim_batching_latency")
    PEER = "request-level batching"

    def run(self, run):
        bench = run.step_bench("q4_1")
        bench.run(iteration_level(requests(0)))
        ours, theirs = [], []
        for turn in range(run.rounds):
            for make, into in ((iteration_level, ours), (request_level, theirs)):
                request = make(requests(turn))
                into.append(throughput(request, bench.run(request)))
        rate = LOAD * statistics.median(theirs) / statistics.mean(OUTPUTS)
        fast, slow = [], []
        for turn in range(run.rounds):
            for make, into in ((iteration_level, fast), (request_level, slow)):
                request = make(requests(turn, rate))
                answer = bench.run(request)
                into.append([latency(request, answer, token) for token in (0, 1)])
        rows = [figures.pair_row(self.names[0], ours, "tokens/s", self.PEER, theirs)]
        for token in (0, 1):
            rows.append(figures.pair_row(self.names[1 + token], [one[token] for one in fast], "s", self.PEER,
                                         [one[token] for one in slow], larger_is_better=False)
                        | {"requests_per_s": rate})
        return rows


class Sharing:
    """n samples of one prompt that share its blocks, against n requests."""

    names = ("claim_sharing_blocks", "claim_sharing_time")
    N, PROMPT, TOKENS = 8, 512, 32

    def run(self, run):
        bench = run.step_bench("q4_1")
        shared = {"sequences": [{"prompt": self.PROMPT, "choices": self.N, "max_tokens": self.TOKENS}]}
        apart = {"sequences": [{"prompt": self.PROMPT, "count": self.N, "max_tokens": self.TOKENS}]}
        blocks, seconds = ([], []), ([], [])
        for _ in range(run.rounds):
            for side, request in enumerate((shared, apart)):
                answer = bench.run(request)
                blocks[side].append(answer["most_blocks"])
                seconds[side].append(answer["steps"][-1][0])
        peer = f"{self.N} requests with the same prompt"
        return [figures.pair_row(self.names[0], blocks[0], "KV blocks", peer, blocks[1], larger_is_better=False),
                figures.pair_row(self.names[1], seconds[0], "s", peer, seconds[1], larger_is_better=False)]


class Reservation:
    """Blocks that are taken as sequences grow, against one contiguous piece of memory."""

    names = ("claim_paged_sequences", "claim_paged_memory_used")

    def run(self, _run):
        lengths = os.path.join(os.environ.get("BATON_SHARED", ""), "traces/sharegpt_lengths.csv")
        rows = serving.program_rows(["bin/reservation-bench", f"--lengths={lengths}"])
        paged = next(row for row in rows if row["policy"] == "paged")
        measured = []
        for row in rows:
            if row is paged or row["policy"] == "contiguous_known_length":  # nobody knows it
                continue
            for name, key, unit in zip(self.names, ("running", "used"), ("sequences that fit", "share of KV memory")):
                measured.append(figures.pair_row(f"{name}_vs_{row['policy']}", [paged[key]], unit,
                                                 row["policy"].replace("_", " "), [row[key]]))
        return measured


class Quantisation:
    """4- and 8-bit weights against halves that hold the same numbers."""

    names = ("claim_quantised_bytes", "claim_quantised_decode", "claim_quantised_perplexity")
    PEER = "F16, of which each file is made (the Q4_1 file's own numbers)"
    DECODE = step_bench.Decode(1, 1, 64)
    WINDOW = 512

    def run(self, run):
        rows, formats = [], ("f16", "q8_0", "q4_1", "q4_0")
        size = {name: os.path.getsize(run.model(name)) / 1e6 for name in formats}
        rate = self._rates(run, formats)
        perplexity = {name: self._perplexity(run, name) for name in formats}
        for name in formats[1:]:
            for row, unit, values, larger in ((self.names[0], "MB", size, False),
                                              (self.names[1], "tokens/s", rate, True),
                                              (self.names[2], "perplexity", perplexity, False)):
                ours, theirs = ([v] if isinstance(v, float) else v for v in (values[name], values["f16"]))
                rows.append(figures.pair_row(f"{row}_{name}", ours, unit, self.PEER, theirs, larger_is_better=larger))
        return rows

    def _rates(self, run, formats):
        """By format, in turns."""
        with contextlib.ExitStack() as stack:
            benches = {name: stack.enter_context(run.new_step_bench(name, "--positions=1024")) for name in formats}
            for bench in benches.values():
                bench.run(self.DECODE.request())
            rates = {name: [] for name in formats}
            for _ in range(run.rounds):
                for name, bench in benches.items():
                    rates[name].append(self.DECODE.measured(bench.run(self.DECODE.request()))[0])
            return rates

    def _perplexity(self, run, name):
        """Of the shorter text."""
        oracles = os.path.join(os.environ.get("BATON_SHARED", ""), "oracles/models")
        rows = run.program_rows("bin/exactness", f"--model={run.model(name)}", f"--oracles={oracles}",
                                f"--threads={run.threads}", "--figures=perplexity")
        return min((row for row in rows if row["window"] == self.WINDOW), key=lambda row: len(row["tokens"]))["value"]


class Operations:
    """Fused layers and FlashAttention."""

    names = ("claim_fused", "claim_flash")

    def run(self, run):
        return operation_rows.claim_rows(run)


def measure(run):
    rows = []
    for claim in (Batching(), Sharing(), Reservation(), Quantisation(), Operations()):
        try:
            rows += claim.run(run)
        except processes.FAILURES as failed:
            rows += [figures.failed_row(name, str(failed)) | {"pass": False} for name in claim.names]
    run.close()
    return rows
