#!/usr/bin/env python3
"""How long a second, warm evaluation of one submission takes, process start included.

    python benchmarks/warm_evaluation.py [SUBMISSION] [--runs N] [--json FILE] [eval.py's options]

Runs eval.py once to fill the caches and then N times in each of the ways below, and prints the seconds of each run
and their median. Where nothing can be timed, as on the emulator, the verdict is all there is. The file is written
anew after each way. Hosts differ in what Python and torch alone take to start, so a run of each way follows one of the
shortest program that uses the device, and their ratio is printed too.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, evaluate, of_one_problem, save, seconds_of

DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"

TIMED = {
    "--quick, the first timed case against eager": ["--quick"],
    "timed against eager and torch.compile": [],
}
VERDICT = {"the verdict alone, --no-timing": ["--no-timing"]}
SHORTEST = "import torch; torch.zeros(1, device='{device}')"


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def seconds(words):
    """Wall time of one run of eval.py, which keeps what it found; stops when the run fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "eval.py"), *words, "-q", "--db", str(Path(folder) / "results.db")]
        started = time.perf_counter()
        process = subprocess.run(command, capture_output=True, text=True)
        elapsed = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"eval.py ended with {process.returncode}: {process.stdout}{process.stderr}")
    return elapsed


def shortest_s(device):
    """Wall time of a program that imports torch and makes a tensor where the submission runs."""
    words = [sys.executable, "-c", SHORTEST.format(device="cuda" if device == "cuda" else "cpu")]
    started = time.perf_counter()
    subprocess.run(words, check=True)
    return time.perf_counter() - started


def main():
    arguments, options = parser().parse_known_args()
    options = of_one_problem(arguments.submission, options)
    (first,) = evaluate(arguments.submission, *options)["evaluations"]
    cases = first["cases"]
    measured = {
        "submission": first["submission"], "device": first["device"], "cases": len(cases),
        "timed_cases": sum(bool(case["timing"]) for case in cases), "ways": {},
    }  # fmt: skip
    for label, more in {**VERDICT, **(TIMED if measured["timed_cases"] else {})}.items():  # the shortest first
        shortest, runs = [], []
        for _ in range(arguments.runs):
            shortest.append(shortest_s(first["device"]))
            runs.append(seconds([str(arguments.submission), *options, *more]))
        median_s, shortest_median_s = statistics.median(runs), statistics.median(shortest)
        measured["ways"][label] = {
            "seconds": runs, "median_s": median_s, "shortest_s": shortest, "ratio": median_s / shortest_median_s,
        }  # fmt: skip
        save(arguments.json, measured)
        ratio = f"{median_s / shortest_median_s:.2f} times torch and a tensor, {seconds_of(shortest)} s"
        print(f"{label:40s} median {median_s:5.1f} s   runs {seconds_of(runs)}   {ratio}", flush=True)


if __name__ == "__main__":
    main()
