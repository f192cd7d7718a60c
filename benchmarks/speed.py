"""./bench speed: all rows, which of them are wanted, and running them."""
import fnmatch
import sys
import time

import clusters
import exact_rows
import figures
import front_end
import llama_cpp
import models
import operation_rows
import processes
import serving
import serving_rows
import step_bench
import step_rows


class Run:
    """What the rows of one run share."""

    def __init__(self, rounds, ceilings, llama_folder=None, openvino=None, backend="cpu"):
        self.rounds, self.openvino, self.backend = rounds, openvino, backend
        self.ceilings = figures.ceilings_of(backend, ceilings)
        self.threads = processes.threads()
        self.llama_folder = llama_folder
        self.llama = llama_cpp.LlamaCpp(llama_folder, self.threads) if llama_folder else None
        self._bench, self._bench_model = None, None

    def model(self, name):
        return models.path_of(name, self.llama_folder)

    def step_bench(self, name):
        """The engine on this format's file. One is loaded at a time."""
        if self._bench_model != name:
            self.close()
            self._bench = self.new_step_bench(name).__enter__()
            self._bench_model = name
        return self._bench

    def new_step_bench(self, name, *flags):
        """Another one, for who wants several, or flags; a context manager."""
        return step_bench.StepBench(self.model(name), self.threads, f"--backend={self.backend}", *flags)

    def cluster(self, name, *flags):
        """`baton up` on this format's file; a context manager."""
        return clusters.Cluster(self.model(name), "--backend", self.backend, *flags)

    def program_rows(self, program, *flags):
        """The rows of a program that has the flag --backend."""
        return serving.program_rows([program, f"--backend={self.backend}", *flags])

    def close(self):
        if self._bench is not None:
            self._bench.__exit__(None, None, None)
        self._bench, self._bench_model = None, None


def all_rows():
    for model in ("q4_1", "q4_0", "q8_0", "f16"):
        yield from step_rows.bounded_rows(model)
    yield from step_rows.further_rows()
    yield from (operation_rows.Operations(model) for model in operation_rows.MODELS)
    yield step_rows.SharedCore()
    yield operation_rows.FreeOrder()
    yield front_end.FrontEnd()
    yield from serving_rows.rows()
    yield exact_rows.Exactness()


def chosen(patterns, rows):
    """Those of which a name matches one of `patterns` (all without any), and what matches nothing."""
    rows = list(rows)
    if not patterns:
        return rows, []
    unknown = [p for p in patterns if not any(_meets(n, p) for row in rows for n in row.names)]
    return [r for r in rows if any(_meets(n, p) for n in r.names for p in patterns)], unknown


def _meets(name, pattern):
    """Either side may stand for several names."""
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(pattern, name)


def measure(rows, run):
    """The JSON rows. One that cannot be measured says why and the next goes on."""
    measured = []
    for row in rows:
        print(f"bench: {', '.join(row.names)}", file=sys.stderr)
        begin = time.monotonic()
        try:
            measured += row.run(run)
        except processes.FAILURES as failed:
            print(f"bench: {', '.join(row.names)}: {failed}", file=sys.stderr)
            measured += row.failed(str(failed))
            run.close()
        print(f"bench: took {time.monotonic() - begin:.0f} s", file=sys.stderr)
    run.close()
    return measured
