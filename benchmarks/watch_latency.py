#!/usr/bin/env python3
"""How long `eval.py watch` takes from a save to its verdict.

    python benchmarks/watch_latency.py [SUBMISSION] [--saves N] [--pause S] [--json FILE] [eval.py watch's options]

Starts `eval.py watch` on a copy of the submission, and saves that N times with another comment, which is built anew
each time. Prints the seconds from each save to the first line of its verdict, and the build's within, as that line says
them. Between a verdict and the next save lie S seconds, in which a person would edit and the next run loads.
"""

import argparse
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT

DEFAULT = ROOT / "submissions" / "layernorm" / "rung1_block_per_row.py"
VERDICT = re.compile(r"(ACCEPTED|REJECTED|ERROR|NOT JUDGED)  ")
BUILD = re.compile(r"of which the build (\d+\.\d) s")


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--pause", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


@contextlib.contextmanager
def watching(path, words):
    """`eval.py watch`, ended at the end."""
    command = [sys.executable, str(ROOT / "eval.py"), "watch", str(path), *words, "--no-store", "--color", "never"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def verdict(process):
    """The first line of the next verdict."""
    for line in process.stdout:
        if VERDICT.match(line):
            return line.rstrip()
    sys.exit(f"eval.py watch ended with {process.wait()} before its verdict.")


def measure(path, process, number, pause_s):
    """One save: the seconds to its verdict and those of its build, by a line that is printed, too."""
    time.sleep(pause_s)
    text = path.read_text()
    saved_s = time.perf_counter()
    path.write_text(f"{text}\n# save {number} at {time.time()}\n")
    line = verdict(process)
    seconds = time.perf_counter() - saved_s
    build = BUILD.search(line)
    print(f"{seconds:5.1f} s  {line}", flush=True)
    return {"seconds": seconds, "build_seconds": float(build[1]) if build else 0.0}


def main():
    arguments, options = parser().parse_known_args()
    if "--problem" not in options:
        options += ["--problem", arguments.submission.resolve().parent.name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / arguments.submission.name
        path.write_text(arguments.submission.read_text())
        with watching(path, options) as process:
            print(f"first    {verdict(process)}", flush=True)
            saves = [measure(path, process, number, arguments.pause) for number in range(arguments.saves)]
    medians = {key: statistics.median(save[key] for save in saves) for key in ("seconds", "build_seconds")}
    print(f"median {medians['seconds']:.1f} s, of which the build {medians['build_seconds']:.1f} s")
    if arguments.json:
        measured = {"submission": arguments.submission.name, "options": options, "saves": saves, "medians": medians}
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
