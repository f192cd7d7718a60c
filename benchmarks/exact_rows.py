"""The speed rows that say how exact the answers are, beside llama.cpp's on the same file: same bits in every tier, the
divergence from a float64 forward pass, and perplexity."""
import json
import math
import os

import figures
import llama_cpp
from step_rows import NO_PEER

KL_BOUND = 1 / 1.05
PERPLEXITY_ERROR = 0.001  # as good as the reference
PERPLEXITY_WINDOW = 512   # of the texts on which the two are compared
LISTED = 200              # tokens that the server names at each position; asked again for more when too few


def nine_outcome_kl(top, logsumexp, logprobs):
    """KL(oracle || model) over the oracle's eight listed tokens and all others together; `logprobs` by token."""
    kl, expected_rest, actual_rest = 0.0, 1.0, 1.0
    for token, logit in top:
        log_p, log_q = logit - logsumexp, logprobs[token]
        kl += math.exp(log_p) * (log_p - log_q)
        expected_rest -= math.exp(log_p)
        actual_rest -= math.exp(log_q)
    # The listed numbers are rounded: what is left may come out a hair below zero.
    if expected_rest > 0:
        kl += expected_rest * math.log(expected_rest / max(actual_rest, 1e-12))
    return kl


def log_probability(server, prefix, wanted):
    """Of each of the tokens `wanted` after `prefix`."""
    for count in (LISTED, 25 * LISTED, server.vocabulary):
        found = server.next_logprobs(prefix, count)
        if all(token in found for token in wanted):
            return found
    raise ValueError(f"the server names {len(found)} tokens of {server.vocabulary}")


def peer_kl(server, cases):
    sums = [nine_outcome_kl(step["top"], step["logsumexp"],
                            log_probability(server, case["prompt_tokens"] + case["greedy"][:i],
                                            [token for token, _ in step["top"]]))
            for case in cases for i, step in enumerate(case["steps"])]
    return sum(sums) / len(sums)


def peer_perplexity(server, tokens, window):
    nll = scored = 0
    for begin in range(0, len(tokens), window):
        part = tokens[begin:begin + window]
        for i in range(1, len(part)):
            nll -= log_probability(server, part[:i], [part[i]])[part[i]]
            scored += 1
    return math.exp(nll / scored)


def perplexity_row(ours, theirs):
    """From relative errors of the same texts: the worst one of ours against the peer's worst. One that counts as none
    passes whatever the peer's is."""
    row = figures.pair_row("exact_ppl", [max(ours)], "relative error of perplexity", "llama.cpp, the same texts",
                           [max(theirs)] if theirs else (), larger_is_better=False)
    figures.judge(row, 1.0)
    if theirs and not row["pass"] and row["value"] <= PERPLEXITY_ERROR:
        row |= {"pass": True, "passed_by": "the reference's perplexity"}
    return row


def tier_row(measured):
    """Of the tiers that this processor runs; without AVX2 there is nothing to show."""
    equal = bool(measured) and all(row["equal"] for row in measured)
    row = {"name": "exact_tier", "value": sum(row["rows"] for row in measured),
           "unit": "rows of logits, and the KV cache", "peer": "the scalar tier", "ratio": 1.0 if equal else 0.0,
           "tiers": [row["tier"] for row in measured]}
    return figures.judge(row, 1.0)


class Exactness:
    names = ("exact_tier", "exact_kl", "exact_ppl")
    BOUNDS = {"exact_tier": 1.0, "exact_kl": KL_BOUND, "exact_ppl": 1.0}

    def run(self, run):
        oracles = os.path.join(os.environ.get("BATON_SHARED", ""), "oracles/models")
        measured = {"tier": [], "kl": [], "perplexity": []}
        for row in run.program_rows("bin/exactness", f"--model={run.model('q4_1')}", f"--oracles={oracles}",
                                    f"--threads={run.threads}"):
            measured[row["figure"]].append(row)
        return [tier_row(measured["tier"]), *self._beside_peer(run, oracles, measured)]

    @staticmethod
    def _beside_peer(run, oracles, measured):
        cases = [row for row in measured["perplexity"] if row["window"] == PERPLEXITY_WINDOW]
        errors = [abs(row["value"] / row["reference"] - 1) for row in cases]
        kl, peer_kls, peer_errors = measured["kl"][0]["mean"], [], []
        if run.llama is not None:
            with open(os.path.join(oracles, "smollm2-135m-instruct-q4_1_greedy.json"), encoding="utf-8") as file:
                greedy = json.load(file)["cases"]
            with llama_cpp.Server(run.llama.folder, run.model("q4_1"), run.threads, 1, 2560, ("-fa", "off")) as server:
                peer_kls = [peer_kl(server, greedy)]
                peer_errors = [abs(peer_perplexity(server, row["tokens"], row["window"]) / row["reference"] - 1)
                               for row in cases]
        rows = [figures.judge(figures.pair_row("exact_kl", [kl], "nats", "llama.cpp, the same positions", peer_kls,
                                               larger_is_better=False), KL_BOUND),
                perplexity_row(errors, peer_errors)]
        for row in rows:
            if run.llama is None:
                row["note"] = NO_PEER
        return rows

    def failed(self, note):
        return [figures.failed_row(name, note, self.BOUNDS[name]) for name in self.names]
