"""Judge the whole corpus and print attack × verdict: `python -m tests.hostile`.

Exits with 1 when a verdict is not the one that a file must get: when something hostile was accepted, or an honest
control was not.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from harness.isolation.levels import ASKED, choose_isolation
from tests.helpers import ROOT
from tests.hostile import corpus


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--device", action="append", choices=("cpu", "emulator", "cuda"),
                        help="may be given again (default: cpu, and cuda or the emulator)")  # fmt: skip
    parser.add_argument("-k", dest="pattern", default="", metavar="NAME", help="only files whose name has this")
    parser.add_argument("--isolation", choices=ASKED, default="auto")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs of eval.py at a time")
    parser.add_argument("--timed-jobs", type=int, default=1, metavar="N",
                        help="the same where calls are timed; their times are no results")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON, anew after each run")
    parser.add_argument("--continue", dest="continues", action="store_true",
                        help="leave out files, if unchanged, that FILE has the right verdict on")  # fmt: skip
    return parser


def main() -> int:
    options = parser().parse_args()
    table = Table(options.json, continues=options.continues)
    for device in options.device or devices():
        level = choose_isolation(options.isolation, device).level
        isolation = ["--isolation", options.isolation]
        refused = []
        left_out = table.judged(device)
        for found, run in corpus.judge_all(
            device, level, options.pattern, isolation, left_out, jobs=options.jobs, timed_jobs=options.timed_jobs
        ):
            print(run.stderr, end="", file=sys.stderr)
            table.environment.setdefault(device, run.results.get("environment", {"error": run.stderr}))
            table.add(found)  # with what is judged again: a run that is cut off must not leave it out
            refused += [outcome for outcome in found if not outcome.right]
        first = {o.entry: o.verdict if o.failed_otherwise else "" for o in refused}
        for outcome in corpus.judge_again(refused, *isolation):
            table.add([outcome], first[outcome.entry])
    if table.has_earlier:
        table.write()  # also where nothing was left to judge
    outcomes = [outcome for outcome, _ in table.outcomes.values()]
    wrong = [o for o in outcomes if not o.right]
    accepted = [o.entry.name for o in outcomes if o.verdict == "accepted" and not o.entry.is_control]
    print(f"{len(outcomes)} judged, {len(wrong)} got another verdict than they must; "
          f"hostile and accepted: {', '.join(accepted) or 'none'}")  # fmt: skip
    return 1 if wrong or not (outcomes or table.has_earlier) else 0


class Table:
    """What was judged so far, on standard output and in a file."""

    def __init__(self, path: Path | None, *, continues: bool = False):
        self._path = path
        words = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
        self._command = shlex.join(["python", "-m", "tests.hostile", *words])
        self.environment: dict[str, dict] = {}
        self.outcomes: dict[tuple[corpus.Entry, str], tuple[corpus.Outcome, str]] = {}
        """The latest of each file on each device, and what it got before it was judged again."""
        self._before: list[dict] = []
        if continues and path and path.exists():
            self._before = right_in(path)
            earlier = json.loads(path.read_text())["environment"]
            self.environment = {device: known for device, known in earlier.items() if self.judged(device)}

    @property
    def has_earlier(self) -> bool:
        """Whether verdicts from before stand in it."""
        return bool(self._before)

    def judged(self, device: str) -> set[str]:
        """Names of files whose verdicts are from before."""
        return {f"{row['family']}/{row['name']}" for row in self._before if row["device"] == device}

    def add(self, outcomes: list[corpus.Outcome], first: str = "") -> None:
        """Print outcomes and write the file anew; `first` is what a file got before it was judged again, alone."""
        _print(outcomes)
        self.outcomes |= {(outcome.entry, outcome.device): (outcome, first) for outcome in outcomes}
        self.write()

    def write(self) -> None:
        if self._path:
            rows = self._before + [_row(*pair) for pair in self.outcomes.values()]
            rows.sort(key=lambda row: (row["device"], row["family"], row["name"]))
            written(self._path, {"environment": self.environment, "command": self._command, "outcomes": rows})


def right_in(path: Path) -> list[dict]:
    """The rows of a table with the right verdict on a file that is what it was."""
    now = {entry.name: entry.sha256 for entry in corpus.entries()}
    rows = json.loads(path.read_text())["outcomes"]
    return [row for row in rows if row["right"] and row["sha256"] == now.get(f"{row['family']}/{row['name']}")]


def written(path: Path, content: dict) -> None:
    """Write `content` to `path` as JSON."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def devices() -> list[str]:
    process = subprocess.run([sys.executable, "eval.py", "env", "--json"], cwd=ROOT, capture_output=True, text=True)
    return ["cpu", "cuda" if json.loads(process.stdout).get("gpu") else "emulator"]


def _row(outcome: corpus.Outcome, first: str) -> dict:
    entry = outcome.entry
    return {
        "family": entry.path.parent.name, "name": entry.path.stem, "sha256": entry.sha256, "device": outcome.device,
        "strategy": entry.strategy, "surface": entry.surface, "must_get": list(entry.allowed), "got": outcome.verdict,
        "right": outcome.right, "judged_before": first, "message": outcome.message,
    }  # fmt: skip


def _print(outcomes: list[corpus.Outcome]) -> None:
    for outcome in outcomes:
        mark = "ok   " if outcome.right else "WRONG"
        print(f"{mark} {outcome.device:9s} {outcome.entry.name:50s} {outcome.verdict:32s} {outcome.entry.strategy}")
        if not outcome.right:
            print(f"      must get {' or '.join(outcome.entry.allowed)}; {outcome.message[:600]}")


if __name__ == "__main__":
    sys.exit(main())
