"""The speed rows of single operations, without a peer: GMAC/s and the share of the machine's ceiling."""
import statistics

import figures
import serving

MODELS = ("q4_1", "q8_0", "f16")


class Operations:
    """What bin/backend-bench measures on the file of one format. Attention and sampling do not depend on it."""

    def __init__(self, model):
        self.model = model
        self.names = (f"gemm_*_{model}",) + (("attention_*", "sampling_16_*") if model == "q4_1" else ())

    def run(self, run):
        measured = run.program_rows("bin/backend-bench", f"--model={run.model(self.model)}",
                                    f"--threads={run.threads}", f"--rounds={run.rounds}")
        rows = []
        for one in measured:
            name, seconds = one["name"], one["seconds"]
            if name.startswith("gemm_"):
                rows.append(self._compute_row(f"{name}_{self.model}", one, self.model.upper(), run.ceilings))
            elif self.model == "q4_1" and name.startswith("attention_"):
                rows.append(self._compute_row(name, one, "attention", run.ceilings))
            elif self.model == "q4_1" and name.startswith("sampling_"):
                rows.append(figures.pair_row(name, [s * 1e6 for s in seconds], "us"))
        return rows

    @staticmethod
    def _compute_row(name, one, kind, ceilings):
        row = figures.pair_row(name, [one["macs"] / s * 1e-9 for s in one["seconds"]], "GMAC/s")
        share = figures.compute_share({kind: one["macs"]}, statistics.median(one["seconds"]), ceilings)
        return row if share is None else row | {"compute_share": share}

    def failed(self, note):
        return [figures.failed_row(name, note) for name in self.names]


class FreeOrder:
    """What the invariant costs: Baton's kernels in turns with kernels that sum in any order, with the instructions of
    the same tier. They are bin/free-order-bench's alone."""

    names = ("invariant_*",)
    PEERS = {"linear": "several sums of each output", "attention": "keys cut by threads, several sums of each output"}

    def run(self, run):
        rows = []
        for one in run.program_rows("bin/free-order-bench", f"--threads={run.threads}", f"--rounds={run.rounds}"):
            rates = [[one["macs"] / s * 1e-9 for s in one[key]] for key in ("seconds", "free_seconds")]
            peer = self.PEERS[one["name"].split("_")[0]]
            rows.append(figures.pair_row("invariant_" + one["name"], rates[0], "GMAC/s", peer, rates[1]))
        return rows

    def failed(self, note):
        return [figures.failed_row(name, note) for name in self.names]


def layer_rows(run, suite):
    """What bin/layer-bench prints."""
    tier = [f"--tier={run.backend.removeprefix('cpu-')}"] if run.backend != "cpu" else []
    return serving.program_rows(["bin/layer-bench", f"--suite={suite}", f"--threads={run.threads}", *tier])


def attention_rows(run):
    """Attention alone, at more contexts than the suite speed has."""
    return layer_rows(run, "decode_attention") + layer_rows(run, "prefill_attention")


def claim_rows(run):
    """Attention with an online softmax on one thread, beside a matrix of scores; fused layers beside unfused ones."""
    measured = {one["name"]: one for one in run.program_rows(
        "bin/backend-bench", "--claims", f"--model={run.model('q4_1')}", f"--threads={run.threads}",
        f"--rounds={run.rounds}")}

    def beside(name, key, unit, ours, peer, theirs):
        values = [one if isinstance(one, list) else [one] for one in (measured[ours][key], measured[theirs][key])]
        return figures.pair_row(name, values[0], unit, peer, values[1], larger_is_better=False)

    rows = [{**one, "name": "claim_" + one["name"]} for one in layer_rows(run, "fused")]
    for n in (512, 2048):
        peer = "all scores of a key head in memory"
        rows.append(beside(f"claim_flash_time_{n}", "seconds", "s, a layer", f"flash_{n}", peer, f"materialised_{n}"))
        rows.append(beside(f"claim_flash_memory_{n}", "score_bytes", "bytes of scores", f"flash_{n}", peer,
                           f"materialised_{n}"))
    return rows
