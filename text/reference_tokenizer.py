#!/usr/bin/env python3
"""Prints what PyPI's `tokenizers` makes of generated strings and id lists, with a model's own vocabulary.

usage: reference_tokenizer.py MODEL.gguf SEED STRINGS ID_LISTS
Lines, text in hexadecimal, ids separated by commas:
  ordinary TEXT IDS     encoded without special tokens
  special TEXT IDS      encoded with them
  decoded IDS TEXT      special tokens left out
Among the ordinary ones are runs of 100,000 characters of one class, as many as LONG_RUNS has.
"""
import random
import struct
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

# Numbers of Unicode 17: `tokenizers` itself is of two minds about them (its digit splitter knows
# them, its regular expressions do not).
UNICODE_17_NUMBERS = set(range(0x11DE0, 0x11DEA)) | set(range(0x16FF4, 0x16FF7))
CONTROL, UNKNOWN = 3, 2
LONG_RUNS = ["a", "語", ".", "1", " ", "\n", "ab", "é ", "👍"]


def read_metadata(path):
    with open(path, "rb") as file:
        data = file.read(64 << 20)
    at = 8
    scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def value_of(kind):
        nonlocal at
        if kind == 8:
            length = take("Q")
            at += length
            return data[at - length:at].decode()
        if kind == 9:
            kind, count = take("I"), take("Q")
            return [value_of(kind) for _ in range(count)]
        return take(scalars[kind])

    _, count = take("Q"), take("Q")
    metadata = {}
    for _ in range(count):
        key = value_of(8)
        metadata[key] = value_of(take("I"))
    return metadata


def build(metadata, with_special_tokens):
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = {
        "gpt-2": byte_level,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]),
    }[metadata["tokenizer.ggml.pre"]]
    tokenizer.decoder = decoders.ByteLevel()
    if with_special_tokens:
        types = metadata["tokenizer.ggml.token_type"]
        special = [t for t, kind in zip(tokens, types) if kind in (CONTROL, UNKNOWN)]
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


class Strings:
    def __init__(self, rng, metadata):
        self.rng = rng
        kinds = metadata["tokenizer.ggml.token_type"]
        tokens = metadata["tokenizer.ggml.tokens"]
        self.special = [t for t, kind in zip(tokens, kinds) if kind == CONTROL]
        self.words = "the of and Hello WORLD don't I'll you've naïve Größe señor привет мир ελληνικά 日本語 中文字 한국어 ไทย हिन्दी العربية עברית 🚀 👩‍👩‍👧 🇩🇪 é e\u0301 ﬁ def return x_1 == != -> {} [] () \\n 3.14 1,000 ½ ² Ⅷ ٣ 𝟘 https://a.b/c?d=e".split()
        self.spaces = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u180e", "\u200b", "\v", "\f", "\x1c", ""]
        self.ranges = [(0x20, 0x7F), (0, 0x20), (0x80, 0x250), (0x300, 0x370), (0x400, 0x530), (0x590, 0x780), (0x900, 0xE00), (0x2000, 0x2070), (0x2150, 0x2190), (0x3040, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xFE00, 0x10000), (0x10D40, 0x10D90), (0x11380, 0x113F0), (0x11DE0, 0x11DF0), (0x1F300, 0x1F700), (0x2EBF0, 0x2EE60), (0, 0x110000)]

    def character(self):
        while True:
            code = self.rng.randrange(*self.rng.choice(self.ranges))
            if not 0xD800 <= code < 0xE000 and code not in UNICODE_17_NUMBERS:
                return chr(code)

    def piece(self):
        kind = self.rng.randrange(10)
        if kind < 4:
            return self.rng.choice(self.words)
        if kind < 7:
            return self.rng.choice(self.spaces)
        if kind == 7:
            return self.rng.choice([str(self.rng.randrange(10 ** 6)), "'" + self.rng.choice("stmdrvlSTx"), "." * self.rng.randrange(1, 40)])
        if kind == 8:
            return self.character() * self.rng.choice([1, 1, 1, 2, 3, 30])
        return self.rng.choice(self.special) if self.rng.randrange(4) == 0 else "<|im_"

    def text(self):
        return "".join(self.piece() for _ in range(self.rng.randrange(25)))


def main():
    path, seed, strings, id_lists = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    metadata = read_metadata(path)
    rng = random.Random(seed)
    plain, special = build(metadata, False), build(metadata, True)
    generate = Strings(rng, metadata)
    joined = lambda ids: ",".join(map(str, ids))
    for _ in range(strings):
        text = generate.text()
        print("ordinary", text.encode().hex(), joined(plain.encode(text).ids), sep="\t")
        print("special", text.encode().hex(), joined(special.encode(text).ids), sep="\t")
    for unit in LONG_RUNS:
        text = unit * 100_000
        print("ordinary", text.encode().hex(), joined(plain.encode(text).ids), sep="\t")
    size = len(metadata["tokenizer.ggml.tokens"])
    for _ in range(id_lists):
        ids = [rng.randrange(size) if rng.randrange(3) else rng.randrange(300) for _ in range(rng.randrange(40))]
        print("decoded", joined(ids), special.decode(ids, skip_special_tokens=True).encode().hex(), sep="\t")


main()
