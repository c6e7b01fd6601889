#!/usr/bin/env python3
"""The judge's clock beside CUDA's events: outer time of a call against the device's own, for honest kernels.

    python benchmarks/clock_accuracy.py [--json FILE] [SUBMISSION…] [eval.py's options]
    python benchmarks/clock_accuracy.py --results FILE… [--json FILE]

Evaluates the submissions (default: some of the LayerNorm ladder) with --device-time, or reads results that were made
with it, and prints for each timed case and each implementation the times and their differences.

Events are around the same calls launched one by one and, where they can be captured, around a CUDA graph of each, and
around one graph of all. Between two launches there is a gap, which the judge times as the device does; one graph of all
has none. A launch-bound call takes longer than its kernel. It is shown and not counted.
"""

import argparse
import json
from pathlib import Path

from common import ROOT, evaluate, save

LADDER = [ROOT / "submissions" / "layernorm" / f"{name}.py" for name in
          ("rung4_vectorised_registers", "rung5_split_rows", "speed_of_light")]  # fmt: skip

LONG_US = 50.0
LAUNCH_BOUND_SHARE = 0.9
ALLOWED_SHARE = 0.02
ALLOWED_US = 1.0

# What events were around, and the end of its keys in a row.
WAYS = (("calls launched one by one", "_queued"), ("a graph of each call", "_graphs"), ("one graph of all calls", ""))


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submissions", nargs="*", type=Path)
    parser.add_argument("--results", nargs="+", type=Path, default=[], help="results of eval.py --device-time")
    parser.add_argument("--json", type=Path, help="where to keep the comparison")
    return parser


def rows(results):
    """Both times of everything that has them, and how far apart they are."""
    for evaluation in results["evaluations"]:
        for case in evaluation["cases"]:
            if timing := case.get("timing"):
                name = evaluation["submission"]
                for implementation, times in {name: timing, **timing["baselines"]}.items():
                    if times["device"]:
                        yield row(evaluation, case["name"], implementation, times)


def row(evaluation, case, implementation, times):
    launch_bound = times["issue_us"] >= LAUNCH_BOUND_SHARE * times["median_us"]
    outer_us, device_us, method = times["median_us"], times["device"]["call_us"], times["device"]["method"]
    queued_us = times["device"].get("queued_us") or (device_us if method == "queue" else None)
    graphs_us = times["device"].get("graphs_us")
    return {
        "problem": evaluation["problem"], "submission": evaluation["submission"], "case": case,
        "implementation": implementation, "outer_us": outer_us, "device_us": device_us,
        "method": method, "queued_us": queued_us, "graphs_us": graphs_us, "launches": times["device"].get("launches"),
        "calls_per_round": times["calls_per_round"], "launch_bound": launch_bound, "long": device_us > LONG_US,
        "counted": method == "graph" and not launch_bound, "within": within(outer_us, device_us),
        "counted_queued": queued_us is not None and not launch_bound,
        "within_queued": queued_us is not None and within(outer_us, queued_us),
        "counted_graphs": graphs_us is not None and not launch_bound,
        "within_graphs": graphs_us is not None and within(outer_us, graphs_us),
    }  # fmt: skip


def within(outer_us, device_us):
    allowed_us = ALLOWED_SHARE * device_us if device_us > LONG_US else ALLOWED_US
    return abs(outer_us - device_us) <= allowed_us


def line(row):
    graph = beside(row, "graph", row["device_us"] if row["method"] == "graph" else None, row["within"])
    graphs = beside(row, "graphs", row["graphs_us"], row["within_graphs"])
    queued = beside(row, "queued", row["queued_us"], row["within_queued"])
    launches = f"{row['launches']:g} launches" if row["launches"] else ""
    timed = f"{row['submission']:22s} {row['case']:14s} {row['implementation']:22s} outer {row['outer_us']:9.2f} us"
    bound = "launch-bound" if row["launch_bound"] else ""
    return f"{timed}   {queued}   {graphs}   {graph}   {bound} {launches}".rstrip()


def beside(row, method, device_us, is_within):
    """A device's time and how far the outer one is from it."""
    if device_us is None:
        return f"{method} {'-':>9s}{'':22s}"
    difference = row["outer_us"] - device_us
    shown = f"{difference / device_us:+7.2%}   " if row["long"] else f"{difference:+7.2f} us"
    return f"{method} {device_us:9.2f} us {shown} {'' if is_within or row['launch_bound'] else 'outside':7s}"


def main():
    arguments, options = parser().parse_known_args()
    if arguments.results:
        read = [json.loads(path.read_text()) for path in arguments.results]
    else:
        read = [evaluate(*(arguments.submissions or LADDER), "--device-time", *options)]
    compared = [found for results in read for found in rows(results)]
    environment = {**read[0]["environment"], "compared": [path.name for path in arguments.results]}
    allowed = {"long_us": LONG_US, "share": ALLOWED_SHARE, "us": ALLOWED_US}
    save(arguments.json, {"environment": environment, "allowed": allowed, "rows": compared})
    for found in compared:
        print(line(found))
    for what, kind in WAYS:
        counted = [found for found in compared if found[f"counted{kind}"]]
        print(f"{sum(found[f'within{kind}'] for found in counted)} of {len(counted)} within {ALLOWED_SHARE:.0%} "
              f"(over {LONG_US:g} us) or {ALLOWED_US:g} us (below) of {what}")  # fmt: skip


if __name__ == "__main__":
    main()
