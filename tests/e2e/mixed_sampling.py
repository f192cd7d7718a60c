"""Random mixtures of every field that acts on logits, ends, log probabilities or the number of choices, as flags
of `baton generate` or fields of api.generation, and what must be equal in two answers to one request."""

# All that a request decides; timings, workers and what was cached may differ. Missing: not asked for.
FIELDS = ("index", "token_ids", "text", "finish_reason", "prompt_token_ids", "logprobs", "prompt_logprobs")
COUNTS = ("prompt_tokens", "completion_tokens")  # of usage


def mixed_flags(numbers, vocab):
    """Some of the fields each, so that every one meets every other. `numbers`: random.Random."""
    def one_in(n):
        return numbers.randrange(n) == 0

    flags = []
    if one_in(2):
        flags += ["--temperature", f"{numbers.uniform(0.2, 1.5):.3f}", "--seed", str(numbers.getrandbits(32))]
        if one_in(2):
            flags += ["--top-k", str(numbers.randint(1, 100))]
        if one_in(2):
            flags += ["--top-p", f"{numbers.uniform(0.3, 1):.3f}"]
        if one_in(2):
            flags += ["--min-p", f"{numbers.uniform(0, 0.2):.3f}"]
    for name, least, most in (("presence", -2, 2), ("frequency", -2, 2), ("repetition", 0.5, 2)):
        if one_in(2):
            flags += [f"--{name}-penalty", f"{numbers.uniform(least, most):.3f}"]
    if one_in(2):
        ids = numbers.sample(range(vocab), numbers.randint(1, 40))
        flags += ["--logit-bias", ",".join(f"{i}={numbers.uniform(-20, 20):.2f}" for i in ids)]
    if one_in(2):
        flags += ["--logprobs", str(numbers.randint(0, 20))]
    if one_in(2):
        flags += ["--prompt-logprobs", str(numbers.randint(0, 20))]
    if one_in(2):
        flags += ["--ignore-eos"]
    if one_in(2):
        flags += ["--include-stop"]
    if one_in(2):
        flags += ["--stop", numbers.choice(["e", "\n", " the", "."])]
    for _ in range(numbers.randint(0, 3)):
        flags += ["--stop-id", str(numbers.randrange(vocab))]
    if one_in(4):
        n = numbers.choice([2, 3, 4, 8])
        flags += ["--n", str(n)]
        if one_in(4):
            flags += ["--best-of", str(n + 2)]
    return flags + ["--min-tokens", "2"]  # the first token is not the last: there is a hand-over


def mixed_fields(numbers, vocab):
    """The same for api.generation, each a quarter of the time, but no number of choices."""
    fields = {"ignore_eos": numbers.random() < 0.7}
    if numbers.random() < 0.6:
        fields |= {"temperature": numbers.uniform(0.2, 1.5), "seed": numbers.getrandbits(60)}
    for name, draw in (("top_k", lambda: numbers.randint(1, 100)), ("top_p", lambda: numbers.uniform(0.3, 1)),
                       ("min_p", lambda: numbers.uniform(0, 0.2)),
                       ("presence_penalty", lambda: numbers.uniform(-2, 2)),
                       ("frequency_penalty", lambda: numbers.uniform(-2, 2)),
                       ("repetition_penalty", lambda: numbers.uniform(0.5, 2)),
                       ("stop_token_ids", lambda: [numbers.randrange(vocab)]),
                       ("stop_strings", lambda: [numbers.choice("e.\n ")]),
                       ("include_stop", lambda: True),
                       ("logit_bias", lambda: {numbers.randrange(vocab): numbers.uniform(-20, 20)}),
                       ("logprobs", lambda: numbers.randint(0, 20)),
                       ("prompt_logprobs", lambda: numbers.randint(0, 20))):
        if numbers.random() < 0.25:
            fields[name] = draw()
    # A greedy answer must not depend on the seed that the router draws, but names it.
    fields.setdefault("seed", 1)
    return fields


def differences(answers, expected):
    """The names of the fields that differ, choice by choice."""
    if len(answers) != len(expected):
        return [f"{len(answers)} choices, not {len(expected)}"]
    return [name for answer, right in zip(answers, expected) for name in (*FIELDS, *COUNTS)
            if _value(answer, name) != _value(right, name)]


def _value(answer, name):
    return answer.get("usage", {}).get(name) if name in COUNTS else answer.get(name)
