"""The speed rows of what gRPC and everything else beside the model takes of a worker's steps."""
import figures
import processes
import step_bench

STREAMS, PROMPT, OUTPUT = 16, 16, 256
SHARE_BOUND = 0.03
COMPUTING = ("cpu-pool", "model-runner")  # threads of a worker that run steps


def share(before, after, step_seconds, cores):
    """Processor time between two looks at a process's threads, those that run steps left out, over what its cores had
    to give while steps ran."""
    spent = sum(seconds - before.get(name, 0) for name, seconds in after.items() if name not in COMPUTING)
    return spent / (step_seconds * cores)


class FrontEnd:
    """16 streams that are answered over gRPC, beside the same steps without gRPC, router and client."""

    names = ("front_end_share_16", "front_end_router_share_16", "front_end_token_gap_16")

    def run(self, run):
        bench, workload = run.step_bench("q4_1"), step_bench.Decode(STREAMS, PROMPT, OUTPUT)
        bench.run(workload.request())
        measured = []
        with run.cluster("q4_1", "--prefill-workers", "0", "--threads", str(run.threads)) as cluster:
            self._load(cluster)
            for _ in range(run.rounds):
                worker, router, gap = self._turn(cluster, run.threads)
                step = figures.median_step([end for end, _ in bench.run(workload.request())["steps"]])[0]
                measured.append((worker, router, gap, step))
        workers, routers, gaps, steps = zip(*measured)
        unit = "of what the cores give while steps run"
        return [self._judged(figures.pair_row(self.names[0], workers, unit)),
                figures.pair_row(self.names[1], routers, unit),
                figures.pair_row(self.names[2], gaps, "s", "the same steps without gRPC", steps,
                                 larger_is_better=False)]

    @staticmethod
    def _load(cluster):
        return cluster.bench("--concurrency", STREAMS, "--requests", STREAMS, "--prompt-tokens", PROMPT,
                             "--output-tokens", OUTPUT)

    def _turn(self, cluster, cores):
        """(the worker's share, the router's, the median gap between tokens)"""
        pids = [cluster.info[role][0]["pid"] for role in ("workers", "routers")]
        before = [processes.thread_seconds(pid) for pid in pids]
        stepped = cluster.metric("baton_step_seconds_sum", "workers")
        report = self._load(cluster)
        stepped = cluster.metric("baton_step_seconds_sum", "workers") - stepped
        after = [processes.thread_seconds(pid) for pid in pids]
        return (*(share(a, b, stepped, cores) for a, b in zip(before, after)), report["itl_s"]["p50"])

    @staticmethod
    def _judged(row):
        return row | {"bound": SHARE_BOUND, "pass": row["value"] < SHARE_BOUND}

    def failed(self, note):
        return [figures.failed_row(name, note, SHARE_BOUND if name == self.names[0] else None) for name in self.names]
