"""./bench cache: what cached prefixes spare conversations, and how much of the KV memory that is taken holds tokens."""
import concurrent.futures
import functools
import os
import random
import statistics

import figures
import processes
import serving

CONVERSATIONS, TURNS = 4, 10
FIRST_TOKENS, NEW_TOKENS, ANSWER_TOKENS = 300, 60, 40
TTFT_BOUND = BYTES_BOUND = 3.0
WASTE_BOUND = 0.96
PEER = "the same with --prefix-cache off"
CLUSTER = ("--prefill-workers", "2", "--decode-workers", "2", "--context", "2048",
           "--kv-blocks", "1024")  # 380 MB in each of eight workers


class Conversation:
    """Prompts that grow: everything so far, the last answer and what the user adds. Random tokens by `seed`."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.prompt = self._said(FIRST_TOKENS)

    def answered(self, tokens):
        self.prompt = self.prompt + tokens + self._said(NEW_TOKENS)

    def _said(self, count):
        return [self.draw.randrange(1000, 49000) for _ in range(count)]


def ask(cluster, prompt):
    """(tokens, seconds to the first of them)"""
    answer = cluster.generate(prompt, "--max-tokens", str(ANSWER_TOKENS))
    return answer["token_ids"], answer["timings"]["time_to_first_token"]


class Round:
    """All conversations turn by turn, each turn on one cluster after the other, `at_once` requests at a time."""

    def __init__(self, seed, at_once, clusters):
        self.conversations = [Conversation(f"{seed}/{at_once}/{i}") for i in range(CONVERSATIONS)]
        self.at_once = at_once
        self.clusters = clusters
        self.seconds = [[] for _ in clusters]  # of turns 2 and later
        self.bytes = [[] for _ in clusters]    # what was handed off by then, before and after those turns

    def run(self):
        self._turn()
        self.seconds = [[] for _ in self.clusters]
        self._note_bytes()
        for _ in range(TURNS - 1):
            self._turn()
        self._note_bytes()
        return self

    def medians(self):
        return [statistics.median(seconds) for seconds in self.seconds]

    def shipped(self):
        return [after - before for before, after in self.bytes]

    def _turn(self):
        prompts = [conversation.prompt for conversation in self.conversations]
        answers = []
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as clients:
            for cluster, seconds in zip(self.clusters, self.seconds):
                tokens, took = zip(*clients.map(functools.partial(ask, cluster), prompts))
                answers.append(tokens)
                seconds += took
        for prompt, conversation, *tokens in zip(prompts, self.conversations, *answers):
            if any(other != tokens[0] for other in tokens):
                raise processes.Failed(f"cached prefixes changed the answer to {prompt}: {tokens}")
            conversation.answered(tokens[0])

    def _note_bytes(self):
        for cluster, noted in zip(self.clusters, self.bytes):
            noted.append(cluster.metric_sum("baton_handoff_bytes_total", "workers"))


def conversation_rows(name, rounds):
    """Of rounds on a cluster with the cache and, behind it, one without."""
    with_cache, without = zip(*(one.medians() for one in rounds))
    ttft = figures.pair_row(f"{name}_ttft", with_cache, "s", PEER, without, larger_is_better=False)
    with_cache, without = zip(*(one.shipped() for one in rounds))
    shipped = figures.pair_row(f"{name}_bytes_shipped", with_cache, "bytes", PEER, without,
                               larger_is_better=False)
    return [figures.judge(ttft, TTFT_BOUND), figures.judge(shipped, BYTES_BOUND)]


def waste_row(policies):
    """From the rows of bin/reservation-bench. Workers take blocks as sequences grow."""
    held = {row["policy"]: row["held"] for row in policies}
    live = next(row["live"] for row in policies if row["policy"] == "paged")
    row = {"name": "waste", "value": held["paged"], "unit": "share of the slots of taken blocks that hold tokens",
           "bound": WASTE_BOUND, "pass": held["paged"] >= WASTE_BOUND, "without_reserved_blocks": live,
           "contiguous_whole_context": held["contiguous_whole_context"],
           "contiguous_as_long_as_asked": held["contiguous_as_long_as_asked"],
           "contiguous_known_length": held["contiguous_known_length"]}
    return row


def measure(run):
    with run.cluster("q4_1", *CLUSTER, "--prefix-cache", "on") as cached, \
            run.cluster("q4_1", *CLUSTER, "--prefix-cache", "off") as plain:
        rows = []
        for name, at_once in (("conversation", 1), ("conversation_at_once", CONVERSATIONS)):
            rounds = [Round(seed, at_once, (cached, plain)).run() for seed in range(run.rounds)]
            rows += conversation_rows(name, rounds)
    lengths = os.path.join(os.environ.get("BATON_SHARED", ""), "traces/sharegpt_lengths.csv")
    return [*rows, waste_row(serving.program_rows(["bin/reservation-bench", f"--lengths={lengths}"]))]
