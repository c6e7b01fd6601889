#!/usr/bin/env python3
"""What `--cluster` costs the process that drives it: ten thousand submissions that are judged at once.

    python benchmarks/cluster_simulation.py [--count N] [--actors A] [--cases C] [--json FILE]

Starts a Ray of two nodes on this machine, and sends N submissions through harness.cluster to A actors that hold a
stand-in for what judges: it says at once that all is right, with C cases. What is measured is all else: sources that
are read and sent, results that come back and are kept in a database. Prints submissions a second, how many were under
way at most, and this process's memory in the first and the last tenth.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common import ROOT, save

from harness import cluster
from harness.cluster.wire import About, encode
from harness.events import Finished, OnCluster
from harness.plan import Arguments, make_plan
from harness.report.formats import json as results_json
from harness.store import Keeper
from harness.verdict import SCHEMA, Accepted, Case, CasePassed, Results
from harness.version import judge_version

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
SOURCE = (ROOT / "tests" / "hostile" / "form" / "control.py").read_text()


class StandIn:
    """In the place of harness.cluster.seat.Seat: it judges nothing, and answers at once."""

    cases = 0

    def __init__(self, _device, _isolation):
        pass

    def about(self):
        versions = {"judge": judge_version(), "kernelgate": importlib.metadata.version("kernelgate")}
        return encode(About(node="a stand-in", environment=versions | {"python": platform.python_version()}))

    def judge(self, task, source, _problem, _built):
        import hashlib

        from harness.cluster.wire import decode_task  # here: what Ray ships by value holds no decoder

        asked = decode_task(task)
        cases: list[Case] = [
            CasePassed(name=f"case {number}", shape="8×4096", scaled=False, error=1e-6, tolerance=1e-5, error_ratio=0.9)
            for number in range(self.cases)
        ]
        evaluation = Accepted(
            problem="small_layernorm", submission=Path(asked.file).stem, device="cpu", seed=asked.options.seed or 0,
            source_sha256=hashlib.sha256(source).hexdigest(), problem_sha256="0", cases=cases,
        )  # fmt: skip
        return results_json.dumps(Results(schema=SCHEMA, environment={}, evaluations=[evaluation]))

    def close(self):
        pass


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--actors", type=int, default=8)
    parser.add_argument("--cases", type=int, default=47, help="as many as LayerNorm has")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


@contextlib.contextmanager
def local_ray(actors):
    """The address of a cluster of a head and two nodes, all of them on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    store = 80 << 20
    head = dict(object_store_memory=store, num_cpus=0, include_dashboard=False)
    ray = Cluster(initialize_head=True, head_node_args=head)
    try:
        for half in (actors // 2, actors - actors // 2):
            ray.add_node(num_cpus=half, object_store_memory=store)
        yield ray.address
    finally:
        for node in [*ray.worker_nodes, ray.head_node]:
            ray.remove_node(node, allow_graceful=False)


class Seen:
    """As the results come: the largest memory of this process in each tenth, and how many were under way at most."""

    def __init__(self, count):
        self.mib = [0] * 10
        self.longest = 0
        self._count = count
        self._process = psutil.Process()
        self._came = 0

    def __call__(self, event):
        if isinstance(event, OnCluster):
            self.longest = max(self.longest, event.under_way)
        elif isinstance(event, Finished):
            tenth = 10 * self._came // self._count
            self.mib[tenth] = max(self.mib[tenth], self._process.memory_info().rss >> 20)
            self._came += 1


def write(folder, count):
    """So many submissions, each another one."""
    for number in range(count):
        (folder / f"submission_{number:05}.py").write_text(f"{SOURCE}\n# {number}\n")


def main():
    arguments = parser().parse_args()
    StandIn.cases = arguments.cases
    seen = Seen(arguments.count)
    with tempfile.TemporaryDirectory() as folder, local_ray(arguments.actors) as address:
        write(Path(folder), arguments.count)
        asked = Arguments(paths=(Path(folder),), problem=str(PROBLEM), device="cpu", timing=False, cluster=address)
        plan = make_plan(asked)
        keeper = Keeper(Path(folder) / "results.db", plan, seen)
        began_s = time.perf_counter()
        results = cluster.run(plan, asked, keeper, StandIn)
        seconds = time.perf_counter() - began_s
        end_mib = psutil.Process().memory_info().rss >> 20
        kept_mib = (Path(folder) / "results.db").stat().st_size >> 20
    assert not keeper.failure, keeper.failure
    right = sum(isinstance(evaluation, Accepted) for evaluation in results.evaluations)
    measured = {
        "count": arguments.count, "actors": arguments.actors, "cases": arguments.cases, "right": right,
        "seconds": seconds, "longest_queue": seen.longest, "memory_mib_of_tenths": seen.mib,
        "memory_mib_at_end": end_mib, "database_mib": kept_mib,
    }  # fmt: skip
    save(arguments.json, measured)
    print(f"{right} of {arguments.count} in {seconds:.0f} s, {arguments.count / seconds:.0f} a second")
    print(f"at most {seen.longest} under way at {arguments.actors} actors")
    print(f"memory of this process in each tenth: {', '.join(map(str, seen.mib))} MiB, with all results {end_mib} MiB")
    print(f"database {kept_mib} MiB")
    return 0 if right == arguments.count else 1


if __name__ == "__main__":
    sys.exit(main())
