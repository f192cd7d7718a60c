"""Starting and stopping what a benchmark measures."""
import contextlib
import os
import signal
import subprocess
import sys
import time

PATIENCE_S = 120


class Failed(Exception):
    """What a row needs is not there or did not work; the row says so."""


# A program that is missing, one that prints something else than it should, and what says so by itself.
FAILURES = (Failed, OSError, ValueError, LookupError)


def wait_until(ready, process, name, patience_s=PATIENCE_S):
    deadline = time.monotonic() + patience_s
    while not ready():
        if process.poll() is not None:
            raise Failed(f"{name} exited with {process.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise Failed(f"{name} was not ready within {patience_s} s")
        time.sleep(0.05)


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def busy_core(core):
    """A foreign process that never leaves `core`."""
    text = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()  # it is there
            yield
        finally:
            process.kill()


def peak_memory_bytes(pid):
    """Of one process: the largest resident size so far."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def threads():
    """As many as both sides get in all."""
    return len(os.sched_getaffinity(0))
