"""The speed rows of the engine's own steps: scheduler, paged KV and sampler, beside llama.cpp's benchmark programs."""
import statistics

import figures
import llama_cpp
import processes
import step_bench

NO_PEER = "no peer: --llama-cpp was not given"


class StepRow:
    """A workload of ours and, in turns with it, one of llama.cpp's."""

    def __init__(self, name, model, ours, theirs=None, bound=None, compute=False, bandwidth=False):
        self.name, self.names, self.model, self.ours, self.theirs = name, (name,), model, ours, theirs
        self.bound, self.compute, self.bandwidth = bound, compute, bandwidth

    def run(self, run):
        bench, path = run.step_bench(self.model), run.model(self.model)
        compare = self.theirs is not None and run.llama is not None
        if compare:
            run.llama.tune(path, self.theirs)
        bench.run(self.ours.request())  # warms caches and pages
        ours, theirs, shares = [], [], []
        for _ in range(run.rounds):
            answer = bench.run(self.ours.request())
            rate, seconds = self.ours.measured(answer)
            ours.append(rate)
            shares.append(step_bench.shares(answer, seconds, run.ceilings))
            if compare:
                theirs.append(run.llama.rate(path, self.theirs))
        peer = run.llama.described(path, self.theirs) if compare else None
        row = figures.pair_row(self.name, ours, "tokens/s", peer, theirs)
        row |= {key: statistics.median(s[key] for s in shares) for key in shares[0] if shares[0][key] is not None}
        if self.bound is not None:
            figures.judge(row, self.bound, self.compute, self.bandwidth)
            if not compare:
                row["note"] = NO_PEER
        return [row]

    def failed(self, note):
        return [figures.failed_row(self.name, note, self.bound)]


class SharedCore:
    """A step beside a foreign busy process on one of the cores, and without it."""

    names = ("shared_core_speed", "shared_core_p99")
    BOUNDS = {"shared_core_speed": 0.4, "shared_core_p99": 1 / 4}
    WORKLOAD = step_bench.Decode(1, 1, 256)

    def run(self, run):
        bench = run.step_bench("q4_1")
        bench.run(self.WORKLOAD.request())
        quiet, busy, medians, p99s = [], [], [], []
        for _ in range(run.rounds):
            quiet.append(self.WORKLOAD.measured(bench.run(self.WORKLOAD.request()))[0])
            with processes.busy_core(0):
                answer = bench.run(self.WORKLOAD.request())
            busy.append(self.WORKLOAD.measured(answer)[0])
            median, p99 = figures.median_step([end for end, _ in answer["steps"]])
            medians.append(median)
            p99s.append(p99)
        speed = figures.pair_row("shared_core_speed", busy, "tokens/s", "the same without the busy process", quiet)
        p99 = figures.pair_row("shared_core_p99", p99s, "s", "the median of the same steps", medians,
                               larger_is_better=False)
        return [figures.judge(row, self.BOUNDS[row["name"]]) for row in (speed, p99)]

    def failed(self, note):
        return [figures.failed_row(name, note, self.BOUNDS[name]) for name in self.names]


class Int8Cache:
    """Decode over an int8 cache of keys and values beside the same over halves."""

    WORKLOADS = {"int8_decode_1024_q4_1": step_bench.Decode(1, 1024, 32),
                 "int8_decode_4096_q4_1": step_bench.Decode(1, 4096, 32),
                 "int8_batch16_512_q4_1": step_bench.Decode(16, 512, 16)}
    names = tuple(WORKLOADS)

    def run(self, run):
        rows = []
        with (run.new_step_bench("q4_1", "--kv_type=int8") as int8,
              run.new_step_bench("q4_1", "--kv_type=f16") as f16):
            for name, workload in self.WORKLOADS.items():
                ours, theirs = [], []
                for turn in range(run.rounds + 1):
                    rates = [workload.measured(bench.run(workload.request()))[0] for bench in (int8, f16)]
                    if turn > 0:  # the first warms caches and pages
                        ours.append(rates[0])
                        theirs.append(rates[1])
                rows.append(figures.pair_row(name, ours, "tokens/s", "keys and values as f16", theirs))
        return rows

    def failed(self, note):
        return [figures.failed_row(name, note) for name in self.names]


class Load:
    """From the start of a process until it can run a step, and the most memory that it ever had."""

    names = ("load_q4_1", "memory_q4_1")

    def run(self, run):
        seconds, memory = [], []
        for _ in range(run.rounds):
            with run.new_step_bench("q4_1", "--positions=1024") as bench:
                seconds.append(bench.ready_s)
                bench.run(step_bench.Prefill(512).request())
                memory.append(bench.peak_memory_bytes() / 2**20)
        return [figures.pair_row("load_q4_1", seconds, "s"),
                figures.pair_row("memory_q4_1", memory, "MiB, 1,024 positions")]

    def failed(self, note):
        return [figures.failed_row(name, note) for name in self.names]


class Mixed:
    """16 streams that go on while a prompt of 512 tokens prefills beside them."""

    names = ("mixed_16_prompt_512_q4_1", "mixed_16_step_p99_q4_1")
    STREAMS, PROMPT = 16, 512

    def run(self, run):
        bench = run.step_bench("q4_1")
        # More tokens than the prompt can take steps: a stream's share of a step is one.
        request = {"sequences": [{"count": self.STREAMS, "prompt": 128, "filled": True, "max_tokens": 256},
                                 {"prompt": self.PROMPT, "max_tokens": 1}], "step_tokens": 512}
        bench.run(request)
        rates, p99s, alone = [], [], []
        for _ in range(run.rounds):
            answer = bench.run(request)
            done = answer["sequences"][-1][0]
            rates.append(self.PROMPT / done)
            p99s.append(figures.median_step([end for end, _ in answer["steps"] if end <= done])[1])
            alone.append(figures.median_step([end for end, _ in answer["steps"] if end >= done])[1])
        return [figures.pair_row(self.names[0], rates, "prompt tokens/s"),
                figures.pair_row(self.names[1], p99s, "s", "the same steps after the prompt", alone,
                                 larger_is_better=False)]

    def failed(self, note):
        return [figures.failed_row(name, note) for name in self.names]


def _decode(name, model, context, tokens, bound=None):
    # Behind no context llama-bench begins at position 0; ours has one token there to begin with.
    return StepRow(name, model, step_bench.Decode(1, max(context, 1), tokens), llama_cpp.Decode(context, tokens),
                   bound, bandwidth=True)


def _batch(name, model, streams, context, tokens, bound=None):
    return StepRow(name, model, step_bench.Decode(streams, context, tokens), llama_cpp.Batch(streams, context, tokens),
                   bound, compute=True, bandwidth=True)


PREFILL = {"q4_1": 5, "q4_0": 2.5, "q8_0": 2, "f16": 1.6}
DECODE_SHORT = {"q4_1": 1.7, "q4_0": 1.7, "q8_0": 1.5, "f16": 1.4}
DECODE_1024 = {"q4_1": 2.7, "q4_0": 2}
BATCH16_SHORT = {"q4_1": 4.5, "q4_0": 2.2}
BATCH16_512 = {"q4_1": 5, "q4_0": 3.5}


def bounded_rows(model):
    """The rows of this format in the table of what speed must reach."""
    if model in PREFILL:
        yield StepRow(f"prefill_512_{model}", model, step_bench.Prefill(512), llama_cpp.Prefill(512), PREFILL[model],
                      compute=True)
        yield _decode(f"decode_short_{model}", model, 0, 128, DECODE_SHORT[model])
    if model in DECODE_1024:
        yield _decode(f"decode_1024_{model}", model, 1024, 32, DECODE_1024[model])
        yield _batch(f"batch16_short_{model}", model, 16, 64, 32, BATCH16_SHORT[model])
        yield _batch(f"batch16_512_{model}", model, 16, 512, 16, BATCH16_512[model])


def further_rows():
    """Without bounds: BF16, and on the Q4_1 file how the figures change with lengths and batch."""
    yield StepRow("prefill_512_bf16", "bf16", step_bench.Prefill(512), llama_cpp.Prefill(512), compute=True)
    yield _decode("decode_short_bf16", "bf16", 0, 128)
    yield StepRow("prefill_512_steps_of_64_q4_1", "q4_1", step_bench.Prefill(512, 64), llama_cpp.Prefill(512))
    for tokens in (128, 2048):
        yield StepRow(f"prefill_{tokens}_q4_1", "q4_1", step_bench.Prefill(tokens), llama_cpp.Prefill(tokens))
    for context in (512, 4096):
        yield _decode(f"decode_{context}_q4_1", "q4_1", context, 32)
    for streams in (1, 2, 4, 8, 32, 64):
        yield _batch(f"batch{streams}_short_q4_1", "q4_1", streams, 64, 32)
    yield StepRow("batch16_short_sampled_q4_1", "q4_1",
                  step_bench.Decode(16, 64, 32, temperature=0.8, top_k=40, top_p=0.95),
                  llama_cpp.Batch(16, 64, 32))
    yield Int8Cache()
    yield Mixed()
    yield Load()
