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


def fusion_rows(run):
    """Residual and norm inside the product before them, against one operation after the other."""
    measured = {one["name"]: one["seconds"] for one in serving.program_rows(
        ["bin/backend-bench", f"--model={run.model('q4_1')}", f"--threads={run.threads}", f"--rounds={run.rounds}"])}
    return [figures.pair_row(f"claim_fused_{rows}", measured[f"fused_{rows}"], "s",
                             "product, then residual and norm", measured[f"unfused_{rows}"], larger_is_better=False)
            for rows in (1, 64)]
