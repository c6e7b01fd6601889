#!/usr/bin/env python3
"""How long the store takes with 100,000 evaluations: an evaluation's write, and the leaderboard.

    python benchmarks/store_speed.py [--evaluations N] [--results FILE]

The evaluations are copies of one that eval.py wrote, samples included, of 50,000 sources with drawn speedups. Each
write opens the database and commits, as a run does.
"""

import argparse
import hashlib
import random
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from common import ROOT

from harness.report.formats import json
from harness.store import boards, open_store

SOURCES = 50_000
WRITES = 200
# Of a transaction while the database is filled.
BLOCK = 1000


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=100_000, metavar="N")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "h200" / "layernorm.json")
    return parser


def copies(evaluation, count, drawn):
    """`count` evaluations like this one, each of a drawn source with a drawn speedup and seed."""
    for _ in range(count):
        speedup, source = drawn.uniform(0.5, 3.0), drawn.randrange(SOURCES)
        yield msgspec.structs.replace(
            evaluation,
            submission=f"kernel_{source}",
            source_sha256=hashlib.sha256(str(source).encode()).hexdigest(),
            seed=drawn.getrandbits(60),
            geomean_speedup=speedup,
            geomean_interval=(speedup * 0.99, speedup * 1.01),
        )


def main():
    options, drawn = parser().parse_args(), random.Random(1)
    results = json.load(options.results)
    evaluation = next(e for e in results.evaluations if e.geomean_speedup is not None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        with open_store(path) as store:
            for begun in range(0, options.evaluations, BLOCK):
                count = min(BLOCK, options.evaluations - begun)
                store.add(list(copies(evaluation, count, drawn)), results.environment, {})
        writes_ms = [1e3 * timed(lambda e=e: write(path, e, results.environment))
                     for e in copies(evaluation, WRITES, drawn)]  # fmt: skip
        with open_store(path) as store:
            board_s = [timed(lambda: boards(store, limit=40)) for _ in range(5)]
        size_mib = path.stat().st_size / 2**20
    print(f"{options.evaluations:,} evaluations, {size_mib:,.0f} MiB")
    print(f"a write     median {np.median(writes_ms):.1f} ms, 95% of them within {np.quantile(writes_ms, 0.95):.1f} ms")
    print(f"the boards  median {np.median(board_s):.2f} s of {len(board_s)}, longest {max(board_s):.2f} s")


def write(path, evaluation, environment):
    with open_store(path) as store:
        store.add([evaluation], environment, {evaluation.source_sha256: b"x" * 5000})


def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
