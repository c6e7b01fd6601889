#!/usr/bin/env python3
"""How much the result of evaluating one submission differs from run to run.

    python benchmarks/repeatability.py [SUBMISSION] [--runs N] [--json FILE] [eval.py's options]

Runs eval.py N times in processes of their own and prints, for each timed case, the median of the runs' times,
their spread (largest less smallest over median), and the same of the speedup over eager.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / "submissions" / "layernorm" / "rung4_vectorised_registers.py"


def evaluate(submission, options):
    """{case: (median_us, speedup over eager)} of one run; the geometric mean under ''."""
    command = [sys.executable, str(ROOT / "eval.py"), str(submission), "--against", "eager", "--json", "-", *options]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"eval.py ended with {process.returncode}: {process.stdout[:2000]}{process.stderr}")
    (evaluation,) = json.loads(process.stdout)["evaluations"]
    timings = {case["name"]: case["timing"] for case in evaluation["cases"] if case.get("timing")}
    times = {name: (t["median_us"], t["baselines"]["eager"]["speedup"]["ratio"]) for name, t in timings.items()}
    return times | {"": (None, evaluation["geomean_speedup"])}


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    arguments, options = parser.parse_known_args()
    runs = [evaluate(arguments.submission, options) for _ in range(arguments.runs)]
    summary = {"submission": arguments.submission.stem, "runs": len(runs), "cases": {}}
    for name in runs[0]:
        times_us, speedups = zip(*(run[name] for run in runs), strict=True)
        entry = {"speedups": speedups, "speedup_spread": spread(speedups)}
        if name:
            entry |= {"median_us": times_us, "spread": spread(times_us)}
            print(f"{name:16s} {statistics.median(times_us):9.2f} us, spread {entry['spread']:.2%}; "
                  f"over eager {statistics.median(speedups):.3f}, spread {entry['speedup_spread']:.2%}")  # fmt: skip
        else:
            print(f"geometric mean over eager {statistics.median(speedups):.3f}, spread {entry['speedup_spread']:.2%}")
        summary["cases"][name or "geometric mean"] = entry
    if arguments.json:
        arguments.json.write_text(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
