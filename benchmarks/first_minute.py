#!/usr/bin/env python3
"""How long the README's first command takes in a clean clone with empty caches, installation apart.

    python benchmarks/first_minute.py [--python PYTHON] [--json FILE] [PATH…]

Clones this repository as it is committed, runs the words of the README that install, and then those that evaluate, with
a cache and a database of their own. Prints the seconds until the first verdict, until all of those that are not timed,
until the last, and until the board stands; paths are evaluated in place of all of submissions/. With --python an
interpreter that has the packages is used, and nothing is installed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, save

COMMAND = re.compile(r"<!-- evaluate command -->\n```sh\n(.*?)\n```", re.DOTALL)
PYTHON = ".venv/bin/python"

# A log names each submission with its verdict when it is judged.
VERDICT = re.compile(r"(\d+) of (\d+): (?:ACCEPTED|REJECTED|ERROR)")
NOT_TIMED = "not timed: "


def the_readmes_words(clone):
    """What installs, and what evaluates."""
    (command,) = COMMAND.findall((clone / "README.md").read_text())
    installing, _, evaluating = command.rpartition(" && ")
    return installing, evaluating


def clone_into(folder):
    clone = folder / "kernelgate"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    return clone


def install(clone, words):
    """Seconds."""
    started_s = time.monotonic()
    process = subprocess.run(["bash", "-c", words], cwd=clone, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"The installation ended with {process.returncode}: {process.stderr[-2000:]}")
    return time.monotonic() - started_s


def evaluate(clone, words, folder):
    """When the verdicts came, and how it ended. What it prints goes through to standard output."""
    own = {"KERNELGATE_CACHE": str(folder / "cache"), "KERNELGATE_DB": str(folder / "results.db")}
    started_s = time.monotonic()
    process = subprocess.Popen(
        words, cwd=clone, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    verdicts_s, untimed_s, submissions = [], [], 1
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if found := VERDICT.match(line):
            verdicts_s.append(time.monotonic() - started_s)
            submissions = int(found[2])
            if NOT_TIMED in line:
                untimed_s.append(verdicts_s[-1])
    code = process.wait()
    ended_s = time.monotonic() - started_s
    verdicts_s = verdicts_s or [ended_s]  # of one alone the report itself is the verdict
    return {
        "submissions": submissions,
        "exit_code": code,
        "first_verdict_s": round(verdicts_s[0], 1),
        "not_timed": len(untimed_s),
        "not_timed_s": round(untimed_s[-1], 1) if untimed_s else None,
        "all_verdicts_s": round(verdicts_s[-1], 1),
        "board_s": round(ended_s, 1),
    }


def summary(found, environment):
    """Lines for people."""
    installed = found["installation_s"]
    return [
        f"installation {'left out' if installed is None else f'{installed:.1f} s'}",
        f"first verdict {found['first_verdict_s']:.1f} s",
        *([f"{found['not_timed']} without times {found['not_timed_s']:.1f} s"] if found["not_timed"] else []),
        f"all {found['submissions']} verdicts {found['all_verdicts_s']:.1f} s",
        f"board {found['board_s']:.1f} s, exit code {found['exit_code']}",
        f"on {environment['gpu'] or 'no GPU'}; {environment['processor']}, {environment['cpus']} processors; "
        f"torch {environment['torch']}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders of the clone")
    parser.add_argument("--python", type=Path, help="an interpreter that has the packages: nothing is installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep what was measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelgate-first-") as name:
        folder = Path(name)
        clone = clone_into(folder)
        installing, evaluating = the_readmes_words(clone)
        seconds = None if options.python else round(install(clone, installing), 1)
        python = str(options.python.absolute() if options.python else clone / PYTHON)
        words = [*evaluating.replace(PYTHON, python).split(), *options.paths]
        found = {"installation_s": seconds, **evaluate(clone, words, folder)}
    from harness.environment import describe

    print("\n".join(summary(found, describe())))
    save(options.json, {"first_minute": found})


if __name__ == "__main__":
    main()
