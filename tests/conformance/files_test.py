#!/usr/bin/env python3
"""Damaged model files (entries SEC-01 to 05), as every program that reads one meets them. What stays up meanwhile is a
cluster that serves a good file: a model is loaded by a process of its own, when it starts, and never later."""
import os
import subprocess
import threading

from service import ServiceTest
from cluster import PATIENCE_S, main, program
from gguf_file import ARRAY, FLOAT32, STRING, UINT32, UINT64, GgufFile, encoded, string

# Of a whole process that refuses a file, its libraries included.
MOST_MEMORY_KB = 64 << 10
PROGRAMS = (("baton-decode-worker",), ("baton-prefill-worker",), ("baton-router", "--decode-workers", "127.0.0.1:1"))
EXTREMES = (0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 56, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1)



def u32(value):
    return encoded(UINT32, value)


def u64(value):
    return encoded(UINT64, value)


class DamagedFiles(ServiceTest):
    def load(self, content, commands=PROGRAMS):
        """The errors of each program; it must end by itself with 1, one line that names the file, and little memory."""
        path = os.path.join(self.directory, "bad.gguf")
        with open(path, "wb") as file:
            file.write(content)
        errors = []
        for name, *flags in commands:
            process = subprocess.Popen([program(name), *flags, "--model", path, "--backend=reference", "--threads=1"]
                                       if name != "baton-router" else [program(name), *flags, "--model", path],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            served = threading.Timer(PATIENCE_S, process.kill)  # what has not refused by then does not
            served.start()
            text = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            process.stderr.close()
            served.cancel()
            self.assertEqual(process.returncode, 1, (name, text))
            lines = [line for line in text.splitlines() if line.startswith(name + ": ")]
            self.assertEqual(len(lines), 1, text)
            self.assertIn("bad.gguf", lines[0])
            self.assertLess(usage.ru_maxrss, MOST_MEMORY_KB)
            errors.append(lines[0])
        return errors

    def good(self):
        return GgufFile(self.model)

    # SEC-01
    def test_a_file_that_ends_anywhere_is_refused(self):
        whole = self.good().encoded()
        lengths = {*range(30), *range(30, len(whole), len(whole) // 24), len(whole) - 1}
        for length in sorted(lengths):
            with self.subTest(length=length):
                # The router needs no tensors, so it may serve a file that is cut off behind its keys.
                self.load(whole[:length], PROGRAMS[:1] if length > 2000 else PROGRAMS)

    # SEC-02
    def test_zero_dimensions_empty_and_repeated_names_are_refused(self):
        for change in ("dims[0]", "dims[1]", "rank 0", "tensor name", "tensor twice"):
            file = self.good()
            tensor = next(one for one in file.tensors if len(one.dims) == 2)
            if change.startswith("dims"):
                tensor.dims[int(change[5])] = 0
            elif change == "rank 0":
                tensor.dims = []
            else:
                tensor.name = "" if change == "tensor name" else file.tensors[-1].name
            with self.subTest(change=change):
                self.load(file.encoded())
        file = self.good()
        keys = [(name, *value) for name, value in file.keys.items()]
        for extra in (("", UINT32, encoded(UINT32, 1)), keys[0], keys[-1]):
            with self.subTest(key=extra[0]):
                self.load(file.encoded(keys=keys + [extra]))
        # Seventy-three bytes: one tensor with a dimension of 0 and nothing else.
        self.load(b"GGUF" + u32(3) + u64(1) + u64(0) + string("t") + u32(2) +
                  u64(0) + u64(1) + u32(0) + u64(0))

    # SEC-03
    def test_counts_beyond_the_file_are_refused_without_memory_for_them(self):
        file = self.good()
        for count in EXTREMES[2:]:
            with self.subTest(count=count):
                self.load(file.encoded(tensor_count=count)[:1024])
                self.load(file.encoded(key_count=count)[:1024])
                self.load(file.encoded(tensor_count=count, key_count=count)[:1024])
                self.load(b"GGUF" + u32(3) + u64(count) + u64(count) + bytes(1000))

    # SEC-04
    def test_extreme_lengths_ranks_and_types_are_refused(self):
        only_worker = PROGRAMS[:1]
        for extreme in EXTREMES:
            file = self.good()
            keys = [(name, *value) for name, value in file.keys.items()]
            huge = [("x", STRING, u64(extreme)), ("x", ARRAY, u32(STRING) + u64(extreme)),
                    ("x", ARRAY, u32(UINT32) + u64(extreme)),
                    ("x", ARRAY, u32(ARRAY) + u64(extreme)),
                    ("x", extreme & 0xffffffff | 13, b"")]
            for entry in huge if extreme > 1 else huge[4:]:
                with self.subTest(extreme=extreme, key=entry[1]):
                    self.load(file.encoded(keys=[entry] + keys, key_count=len(keys) + 1))
            for change in ("rank", "type", "dims", "offset"):
                file = self.good()
                tensor = file.tensors[1]
                if change == "rank" and extreme >= 5:
                    tensor.dims = [1] * min(extreme, 100)
                elif change == "type" and extreme > 1:
                    tensor.kind = extreme & 0xffffffff | 64
                elif change == "dims" and extreme != len(tensor.dims):
                    tensor.dims[0] = extreme
                elif change == "offset" and extreme > 1:
                    tensor.offset = extreme
                else:
                    continue
                with self.subTest(extreme=extreme, change=change):
                    self.load(file.encoded(), only_worker)

    # SEC-05
    def test_missing_zero_and_absurd_sizes_are_refused_by_key(self):
        sizes = ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
                 "attention.head_count_kv")
        for name in sizes:
            key = "llama." + name
            for value in (None, 0, 2 ** 31 - 1, 2 ** 32 - 1):
                if name == "context_length" and value not in (None, 0):
                    continue
                if value is None and name == "attention.head_count_kv":
                    continue  # defaults to head_count
                file = self.good()
                file.remove(key)
                if value is not None:
                    file.set(key, UINT32, value)
                commands = PROGRAMS if name == "context_length" else PROGRAMS[:2]
                with self.subTest(key=key, value=value):
                    for line in self.load(file.encoded(), commands):
                        # What disagrees with a tensor may be named by the tensor.
                        if value in (None, 0):
                            self.assertIn(key, line)
        for key, value in (("llama.attention.layer_norm_rms_epsilon", -1.0), ("llama.rope.freq_base", 0.0),
                           ("llama.rope.freq_base", float("nan"))):
            file = self.good()
            file.set(key, FLOAT32, value)
            with self.subTest(key=key, value=value):
                self.assertIn(key, self.load(file.encoded(), PROGRAMS[:1])[0])
        file = self.good()
        file.tensors = []
        self.load(file.encoded(), PROGRAMS[:2])


if __name__ == "__main__":
    main()
