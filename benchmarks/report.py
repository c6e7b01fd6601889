#!/usr/bin/env python3
"""The report of an evaluation that has been run, as eval.py prints it, from its JSON.

python benchmarks/report.py results/h200/layernorm.json speed_of_light
"""

import argparse
import sys
from pathlib import Path

import common  # noqa: F401  makes the harness importable

from harness.report.formats import json, terminal
from harness.report.view import View
from harness.verdict import Results


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="what eval.py --json wrote")
    parser.add_argument("submission", help="the name of one of its submissions")
    return parser


def main():
    options = parser().parse_args()
    results = json.load(options.results)
    chosen = [e for e in results.evaluations if e.submission == options.submission]
    if not chosen:
        sys.exit(f"{options.results} has {', '.join(e.submission for e in results.evaluations)}.")
    used = {device: level for device, level in results.environment.get("isolation", {}).items()
            if device in {e.device for e in chosen}}  # fmt: skip
    environment = results.environment | {"isolation": used}
    shown = Results(schema=results.schema, environment=environment, evaluations=chosen)
    sys.stdout.write(terminal.render(shown, View()))


if __name__ == "__main__":
    main()
