#!/usr/bin/env python3
"""An A/A run: a submission against a copy of itself, which must show a speedup of 1.

    python benchmarks/same_twice.py [SUBMISSION] [--json FILE] [eval.py's options]

Prints each timed case's ratio with its 95% interval, and which of them are further than 1% from 1.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from common import ROOT, evaluate, of_one_problem, save, the_only_one

DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"

# Below this a call is launch and Python, whose noise is not the clock's.
LONG_US = 50


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    return parser


def against_a_copy(submission, options):
    """The results of eval.py with a copy of `submission` as the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"{submission.stem}_copy.py"
        shutil.copy(submission, copy)
        return evaluate(submission, "--against", copy, *of_one_problem(submission, options))


def show(name, timing):
    """One line for what was timed with the copy."""
    if timing and timing["baselines"]:
        ((_, baseline),) = timing["baselines"].items()
        ratio, (low, high) = baseline["speedup"]["ratio"], baseline["speedup"]["interval"]
        far = "  further than 1% from 1" if timing["median_us"] > LONG_US and abs(ratio - 1) > 0.01 else ""
        print(f"{name:26s} {timing['median_us']:9.1f} us   {ratio:.4f} [{low:.4f}, {high:.4f}]{far}")


def main():
    arguments, options = parser().parse_known_args()
    results = against_a_copy(arguments.submission, options)
    save(arguments.json, results)
    evaluation = the_only_one(results)
    for note in evaluation["notes"]:
        print(note)
    for case in evaluation["cases"]:
        if timing := case["timing"]:
            show(case["name"], timing)
            show(f"{case['name']}, captured", timing["captured"])
    if evaluation["geomean_speedup_over_best"] is not None:
        ratio, (low, high) = evaluation["geomean_speedup_over_best"], evaluation["geomean_over_best_interval"]
        print(f"geometric mean                            {ratio:.4f} [{low:.4f}, {high:.4f}]")


if __name__ == "__main__":
    main()
