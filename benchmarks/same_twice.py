#!/usr/bin/env python3
"""An A/A run: a submission against a copy of itself, which must show a speedup of 1.

    python benchmarks/same_twice.py [SUBMISSION] [-k CASE] [--device D] [--effort E] [--json FILE]

Prints each timed case's ratio with its 95% interval, and which of them are further than 1% from 1. Timed as the gate
decides, up to 20 s a case, called and captured: rounds of the same code differ by some 4% on an H100.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import get_args

from common import ROOT, save, the_only_one

from harness.settings import Effort

DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"

# Below this a call is launch and Python, whose noise is not the clock's.
LONG_US = 50


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("-k", dest="select", default="", help="only cases whose name has this")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="where calls are timed")
    parser.add_argument("--effort", choices=get_args(Effort), default="decisive", help="how long is timed")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    return parser


def against_a_copy(asked):
    """The results with a copy of the submission as the baseline, as reports write them."""
    from harness import process
    from harness.environment import describe
    from harness.plan import Arguments, make_plan
    from harness.report.formats import json as results_json
    from harness.run import run
    from harness.storage import cache

    process.prepare()
    submission = asked.submission.resolve()
    with tempfile.TemporaryDirectory() as folder, cache.in_use():
        copy = Path(folder) / f"{submission.stem}_copy.py"
        shutil.copy(submission, copy)
        arguments = Arguments(
            paths=(submission,), problem=submission.parent.name, device=asked.device, select=asked.select,
            against=str(copy), effort=asked.effort,
        )  # fmt: skip
        results = json.loads(results_json.dumps(run(make_plan(arguments))))
    return results | {"environment": describe() | results["environment"]}


def show(name, timing):
    """One line for what was timed with the copy."""
    if timing and timing["baselines"]:
        ((_, baseline),) = timing["baselines"].items()
        ratio, (low, high) = baseline["speedup"]["ratio"], baseline["speedup"]["interval"]
        far = "  further than 1% from 1" if timing["median_us"] > LONG_US and abs(ratio - 1) > 0.01 else ""
        print(f"{name:26s} {timing['median_us']:9.1f} us   {ratio:.4f} [{low:.4f}, {high:.4f}]{far}")


def main():
    asked = parser().parse_args()
    results = against_a_copy(asked)
    save(asked.json, results)
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
