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
        measured = serving.program_rows(["bin/backend-bench", f"--model={run.model(self.model)}",
                                         f"--threads={run.threads}", f"--rounds={run.rounds}"])
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


def claim_rows(run):
    """Attention with an online softmax on one thread, beside a matrix of scores; fused layers beside unfused ones."""
    measured = {one["name"]: one for one in serving.program_rows(
        ["bin/backend-bench", "--claims", f"--model={run.model('q4_1')}", f"--threads={run.threads}",
         f"--rounds={run.rounds}"])}

    def beside(name, key, unit, ours, peer, theirs):
        values = [one if isinstance(one, list) else [one] for one in (measured[ours][key], measured[theirs][key])]
        return figures.pair_row(name, values[0], unit, peer, values[1], larger_is_better=False)

    rows = serving.program_rows(["bin/layer-bench", "--suite=fused", f"--threads={run.threads}"])
    for n in (512, 2048):
        peer = "all scores of a key head in memory"
        rows.append(beside(f"claim_flash_time_{n}", "seconds", "s, a layer", f"flash_{n}", peer, f"materialised_{n}"))
        rows.append(beside(f"claim_flash_memory_{n}", "score_bytes", "bytes of scores", f"flash_{n}", peer,
                           f"materialised_{n}"))
    return rows
