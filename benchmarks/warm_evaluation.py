#!/usr/bin/env python3
"""How long a second, warm evaluation of one submission takes, process start included.

    python benchmarks/warm_evaluation.py [SUBMISSION] [eval.py's options]

Runs eval.py once to fill the caches and then RUNS times, and prints the seconds of each run and their
median; on a GPU with timing and, beside it, with --quick against eager alone, on the emulator the verdict.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 3
ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"


def seconds(arguments):
    """Wall time of one run of eval.py; stops when the run fails."""
    started = time.perf_counter()
    process = subprocess.run([sys.executable, str(ROOT / "eval.py"), *arguments, "-q"], capture_output=True, text=True)
    elapsed = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"eval.py ended with {process.returncode}: {process.stdout}{process.stderr}")
    return elapsed


def report(label, arguments):
    seconds(arguments)
    runs = [seconds(arguments) for _ in range(RUNS)]
    print(f"{label:40s} median {statistics.median(runs):5.1f} s   runs {', '.join(f'{r:.1f}' for r in runs)}")


def main():
    arguments = sys.argv[1:] or [str(DEFAULT)]
    report("timed against eager and torch.compile", arguments)
    report("the same with --quick", [*arguments, "--quick"])
    report("--quick --against eager", [*arguments, "--quick", "--against", "eager"])
    report("the verdict alone (--no-timing)", [*arguments, "--no-timing"])


if __name__ == "__main__":
    main()
