#!/usr/bin/env python3
"""What each call of the Python API takes, beside eval.py and the time that torch takes to load.

    python benchmarks/api_costs.py [SUBMISSION] [--device D] [--case K] [--runs N] [--json FILE]

All builds are there before anything is measured. The file is written anew after each way.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT, save, seconds_of

from harness import Pool, evaluate

DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--device", choices=["cuda", "cpu", "emulator"])
    parser.add_argument("--case", default="", metavar="K", help="only cases whose name has this, as eval.py's -k")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def timed(function):
    """Seconds of a call, and what it gave."""
    started = time.perf_counter()
    given = function()
    return time.perf_counter() - started, given


def required(result):
    """A result's evaluation; ends this process where it is not accepted."""
    evaluation = result.evaluation
    if result.status != "accepted":
        sys.exit(f"{result.source} was not accepted: {evaluation.reason}: {evaluation.message}")
    return evaluation


def program(*words):
    """Seconds of a program that must succeed."""
    seconds, process = timed(lambda: subprocess.run([sys.executable, *words], capture_output=True, text=True))
    if process.returncode:
        sys.exit(f"{' '.join(words)} ended with {process.returncode}: {process.stdout}{process.stderr}")
    return seconds


def load(device):
    return program("-c", "import torch" + ("; torch.zeros(1, device='cuda')" if device == "cuda" else ""))


def eval_py(path, options):
    words = ["--problem", options["problem"], "--device", options["device"], "--no-timing", "--no-store"]
    words += ["-k", options["select"]] if options["select"] else []
    return program(str(ROOT / "eval.py"), str(path), *words)


def first_of_a_pool(path, options):
    """Seconds from making a pool to its first result."""
    started = time.perf_counter()
    with Pool(1, timing=False, **options) as pool:
        required(pool.run([path])[0])
        return time.perf_counter() - started


def further(pool, path, **options):
    seconds, (result,) = timed(lambda: pool.run([path], **options))
    required(result)
    return seconds


def after_an_end(pool, path):
    """Seconds of a result whose process has to load first: the one before it went beyond its limit."""
    pool.run([path], limit_s=0.01)
    return further(pool, path, timing=False)


def ways(path, device, options, runs):
    """What is measured, with the seconds of each run. Only a few runs where times are taken."""
    yield "torch loads", [load(device) for _ in range(runs)]
    yield "`eval.py FILE --no-timing`", [eval_py(path, options) for _ in range(runs)]
    yield (
        "`evaluate(FILE, timing=False)`",
        [timed(lambda: required(evaluate(path, timing=False, **options)))[0] for _ in range(runs)],
    )
    yield "`Pool()`, and its first result", [first_of_a_pool(path, options) for _ in range(runs)]
    with Pool(1, **options) as pool:
        further(pool, path, timing=False)
        yield "each further result, `timing=False`", [further(pool, path, timing=False) for _ in range(2 * runs)]
        yield "the result after one that was ended", [after_an_end(pool, path) for _ in range(runs)]
        yield (
            "stopped before its verdict",
            [
                timed(lambda: pool.run([path], on_stage=lambda _index, stage: stage != "verdict"))[0]
                for _ in range(runs)
            ],
        )
        if device != "emulator":
            yield 'each further result, `effort="quick"`', [further(pool, path, effort="quick") for _ in range(runs)]


def main():
    arguments = parser().parse_args()
    path = arguments.submission.resolve()
    options = dict(problem=path.parent.name, select=arguments.case)
    first = required(evaluate(path, timing=False, device=arguments.device, **options))
    options["device"] = first.device
    measured = {"submission": first.submission, "device": first.device, "cases": len(first.cases), "ways": {}}
    for label, runs in ways(path, first.device, options, arguments.runs):
        measured["ways"][label] = {"seconds": runs, "median_s": statistics.median(runs)}
        save(arguments.json, measured)
        print(f"{label:40s} median {statistics.median(runs):6.2f} s   runs {seconds_of(runs)}", flush=True)


if __name__ == "__main__":
    main()
