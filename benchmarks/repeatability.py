#!/usr/bin/env python3
"""How much the result of evaluating one submission differs from run to run.

    python benchmarks/repeatability.py [SUBMISSION] [--runs N] [--json FILE] [eval.py's options]

Runs eval.py N times in processes of their own and prints, for each timed case, the median of the runs' times,
their spread (largest less smallest over median), and the same of the speedup over eager. The file is written anew
after each run.
"""

import argparse
import statistics
from pathlib import Path

from common import ROOT, evaluate, of_one_problem, save, the_only_one

DEFAULT = ROOT / "submissions" / "layernorm" / "rung4_vectorised_registers.py"


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def one_run(submission, options):
    """{case: (median_us, speedup over eager)} of one run; the geometric mean under ''."""
    evaluation = the_only_one(evaluate(submission, "--against", "eager", *of_one_problem(submission, options)))
    timings = {case["name"]: case["timing"] for case in evaluation["cases"] if case.get("timing")}
    times = {name: (t["median_us"], t["baselines"]["eager"]["speedup"]["ratio"]) for name, t in timings.items()}
    return times | {"": (None, evaluation["geomean_speedup"])}


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def summary(submission, runs):
    cases = {}
    for name in runs[0]:
        times_us, speedups = zip(*(run[name] for run in runs), strict=True)
        cases[name or "geometric mean"] = {"speedups": speedups, "speedup_spread": spread(speedups)}
        if name:
            cases[name] |= {"median_us": times_us, "spread": spread(times_us)}
    return {"submission": submission.stem, "runs": len(runs), "cases": cases}


def main():
    arguments, options = parser().parse_known_args()
    runs = []
    for _ in range(arguments.runs):
        runs.append(one_run(arguments.submission, options))
        measured = summary(arguments.submission, runs)
        save(arguments.json, measured)
    for name, entry in measured["cases"].items():
        over = f"over eager {statistics.median(entry['speedups']):.3f}, spread {entry['speedup_spread']:.2%}"
        if "spread" in entry:
            over = f"{statistics.median(entry['median_us']):9.2f} us, spread {entry['spread']:.2%}; {over}"
        print(f"{name:16s} {over}")


if __name__ == "__main__":
    main()
