"""Starting and stopping what a benchmark measures."""
import contextlib
import ctypes
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


def start(command, **pipes):
    """subprocess.Popen of a program that is asked to stop should this one be killed; it reads nothing unless told."""
    return subprocess.Popen(command, preexec_fn=_follow_parent, **{"stdin": subprocess.DEVNULL} | pipes)


def _follow_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


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
    with start([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()  # it is there
            yield
        finally:
            process.kill()


def peak_memory_bytes(pid):
    """Of one process: the largest resident size so far."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def thread_seconds(pid):
    """Processor time so far by the name of a process's threads; those that have ended are forgotten."""
    seconds = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as name, \
                    open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as times:
                name = name.read().strip()
                seconds[name] = seconds.get(name, 0) + int(times.read().split()[0]) * 1e-9
        except OSError:
            continue  # ended meanwhile
    return seconds


def threads():
    """As many as both sides get in all."""
    return len(os.sched_getaffinity(0))
