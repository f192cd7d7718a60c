"""The model's file in each format. The Q4_1 file is fetched; llama-quantize makes the others of it, once."""
import os
import subprocess
import sys

import processes


def folder():
    cache = os.environ.get("BATON_CACHE") or os.path.join(os.environ.get("HOME", "/root"), ".cache/baton")
    return os.path.join(cache, "models")


def commands(name, quantize, q4_1):
    """[(file, command that makes it of the files before it)], the wanted one last. Nothing but F16 is made of the
    Q4_1 file directly: F16 holds its numbers as exactly as a half can."""
    stem = os.path.join(folder(), "SmolLM2-135M-Instruct.")
    f16 = stem + "F16.gguf"
    steps = [(f16, [quantize, "--allow-requantize", q4_1, f16 + ".part", "F16"])]
    if name != "f16":
        file = stem + name.upper() + ".gguf"
        steps.append((file, [quantize, "--allow-requantize", f16, file + ".part", name.upper()]))
    return steps


def path_of(name, llama_cpp):
    """The file of format `name` (q4_1, q4_0, q8_0, f16, bf16), made if need be."""
    q4_1 = os.environ["BATON_MODEL"]
    if name == "q4_1":
        return q4_1
    quantize = os.path.join(llama_cpp or "", "llama-quantize")
    os.makedirs(folder(), exist_ok=True)
    steps = commands(name, quantize, q4_1)
    if os.path.exists(steps[-1][0]):
        return steps[-1][0]
    for file, command in steps:
        if os.path.exists(file):
            continue
        if not llama_cpp:
            raise processes.Failed(f"{os.path.basename(file)} is made by llama-quantize: needs --llama-cpp")
        print("bench: $ " + " ".join(command), file=sys.stderr)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise processes.Failed(f"llama-quantize exited with {done.returncode}: {done.stderr[-500:]}")
        os.rename(file + ".part", file)
    return steps[-1][0]
