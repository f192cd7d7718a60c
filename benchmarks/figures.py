"""From measured numbers to rows: pairs, shares of the machine's ceilings and the rule by which a row passes. Nothing
here runs anything."""
import statistics

# The instructions that multiply each kind of number; the fastest that the machine has is the ceiling.
INSTRUCTIONS = {
    "Q4_0": ("maddubs", "dpbusd", "dpbusd_512"), "Q4_1": ("maddubs", "dpbusd", "dpbusd_512"),
    "Q8_0": ("pmaddwd", "dpwssd", "dpwssd_512"),  # int16 activations
    "F16": ("fma", "fma_512"), "BF16": ("fma", "fma_512"), "F32": ("fma", "fma_512"),
    "attention": ("fma", "fma_512"),
}
# Of those, what each backend's tier has; the others have all that the machine has. The scalar tier has none.
TIER_LACKS = {"cpu-avx2": ("dpbusd", "dpwssd", "dpbusd_512", "dpwssd_512", "fma_512"),
              "cpu-avxvnni": ("dpbusd_512", "dpwssd_512", "fma_512"),
              "cpu-scalar": sorted({one for names in INSTRUCTIONS.values() for one in names})}
COMPUTE_SHARE = 0.5    # of the multiply-add rate: a row passes
BANDWIDTH_SHARE = 0.8  # of the read bandwidth: a row passes


def median_step(ends):
    """(median, 99th percentile by nearest rank) of the seconds between ascending times."""
    gaps = sorted(later - earlier for earlier, later in zip(ends, ends[1:]))
    return statistics.median(gaps), percentile(gaps, 99)


def percentile(ascending, percent):
    return ascending[-(-len(ascending) * percent // 100) - 1]


def pair_row(name, ours, unit, peer=None, theirs=(), larger_is_better=True):
    """The row of a figure that was measured in turns with a peer's: medians, and the median of the pairwise ratios."""
    row = {"name": name, "value": statistics.median(ours), "unit": unit}
    if theirs:
        ratios = [a / b if larger_is_better else b / a for a, b in zip(ours, theirs, strict=True)]
        row |= {"peer": peer, "peer_value": statistics.median(theirs), "ratio": statistics.median(ratios),
                "ratio_min": min(ratios), "ratio_max": max(ratios)}
    return row


def ceilings_of(backend, ceilings):
    """Without those of instructions that this backend's tier does not have."""
    lacks = {f"{name}_{threads}" for name in TIER_LACKS.get(backend, ()) for threads in ("1_thread", "all_threads")}
    return {name: value for name, value in ceilings.items() if name not in lacks}


def rate_of(kind, ceilings):
    """GMAC/s of all threads for a kind of number, or None where nothing that multiplies it was measured."""
    measured = [ceilings[f"{name}_all_threads"] for name in INSTRUCTIONS.get(kind, ())
                if f"{name}_all_threads" in ceilings]
    return max(measured, default=None)


def compute_share(macs, seconds, ceilings):
    """The time that all multiply-accumulates would take at their ceilings over the time they took; None when the
    machine's ceiling for one of them is unknown."""
    least = 0.0
    for kind, count in macs.items():
        rate = rate_of(kind, ceilings)
        if rate is None:
            return None
        least += count / (rate * 1e9)
    return least / seconds


def bandwidth_share(num_bytes, seconds, ceilings):
    read = ceilings.get("memory_read_all_threads")
    return None if read is None else num_bytes / seconds / (read * 1e9)


def judge(row, bound, by_compute=False, by_bandwidth=False):
    """Adds `bound`, `pass` and what it passed by. A row without its peer does not pass, whatever its shares."""
    row["bound"] = bound
    reasons = []
    if "ratio" in row:
        if row["ratio"] >= bound:
            reasons.append("ratio")
        if by_compute and (row.get("compute_share") or 0) >= COMPUTE_SHARE:
            reasons.append("multiply-add rate")
        if by_bandwidth and (row.get("bandwidth_share") or 0) >= BANDWIDTH_SHARE:
            reasons.append("read bandwidth")
    row["pass"] = bool(reasons)
    if reasons:
        row["passed_by"] = reasons[0]
    return row


def failed_row(name, note, bound=None):
    row = {"name": name, "note": note}
    return row if bound is None else row | {"bound": bound, "pass": False}
