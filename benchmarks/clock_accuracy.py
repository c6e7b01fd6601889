#!/usr/bin/env python3
"""The judge's clock beside CUDA's events: outer time of a call against the device's own, for honest kernels.

    python benchmarks/clock_accuracy.py [--json FILE] [SUBMISSION…] [eval.py's options]

Evaluates the submissions (default: the LayerNorm ladder) with --device-time and prints, for each timed case and
each implementation, both times and their difference. Events come from replays of a CUDA graph, where the calls
can be captured. A launch-bound call is longer than its kernel, and rightly so; it is shown and not counted.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LADDER = [ROOT / "submissions" / "layernorm" / f"{name}.py" for name in
          ("rung3_warp_shuffle", "rung4_vectorised_registers", "rung5_split_rows", "speed_of_light")]  # fmt: skip

LONG_US = 50.0
LAUNCH_BOUND_SHARE = 0.9
ALLOWED_SHARE = 0.02
ALLOWED_US = 1.0


def evaluate(submissions, options):
    command = [sys.executable, str(ROOT / "eval.py"), *map(str, submissions), "--device-time", "--json", "-", *options]
    process = subprocess.run(command, capture_output=True, text=True)
    if not process.stdout.startswith("{"):
        sys.exit(f"eval.py ended with {process.returncode}: {process.stderr}")
    return json.loads(process.stdout)


def rows(results):
    """(submission, case, implementation, its times, launch-bound) of everything that was timed."""
    for evaluation in results["evaluations"]:
        for case in evaluation["cases"]:
            if timing := case.get("timing"):
                name = evaluation["submission"]
                for implementation, times in {name: timing, **timing["baselines"]}.items():
                    launch_bound = times["issue_us"] >= LAUNCH_BOUND_SHARE * times["median_us"]
                    yield name, case["name"], implementation, times, launch_bound


def verdict(outer_us, device_us):
    """How far apart two times are, and whether that is more than is allowed."""
    difference = outer_us - device_us
    if device_us > LONG_US:
        return f"{difference / device_us:+7.2%}", abs(difference) > ALLOWED_SHARE * device_us
    return f"{difference:+6.2f} us", abs(difference) > ALLOWED_US


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submissions", nargs="*", type=Path)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    arguments, options = parser.parse_known_args()
    results = evaluate(arguments.submissions or LADDER, options)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    counted = outside = 0
    for submission, case, implementation, times, launch_bound in rows(results):
        device = times["device"]
        if device is None:
            continue
        shown, far = verdict(times["median_us"], device["call_us"])
        counts = device["method"] == "graph" and not launch_bound
        counted += counts
        outside += counts and far
        mark = "launch-bound" if launch_bound else "outside" if far else ""
        print(f"{submission:22s} {case:14s} {implementation:22s} outer {times['median_us']:9.2f} us   "
              f"{device['method']} {device['call_us']:9.2f} us   {shown}  {mark}")  # fmt: skip
    print(f"{counted} compared, {outside} further apart than {ALLOWED_SHARE:.0%} (over {LONG_US:g} us) "
          f"or {ALLOWED_US:g} us (below)")  # fmt: skip


if __name__ == "__main__":
    main()
