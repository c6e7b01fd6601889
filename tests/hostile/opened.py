"""Judge each file of the corpus with what it attacks open: `python -m tests.hostile.opened`.

All must be accepted then. Otherwise something else refuses a file, and nothing is known of what it is here to test.
Exits with 1 when one is not. Of the files that need no times, tests/test_hostile_opened.py does the same with one for
each thing that is open, and with those that results/cpu does not have as they are.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path

from harness.isolation.levels import choose_isolation
from tests.helpers import PATIENCE
from tests.hostile import corpus
from tests.hostile.__main__ import devices, written


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.opened", description=__doc__)
    parser.add_argument("--device", action="append", choices=("cpu", "emulator", "cuda"),
                        help="may be given again (default: cpu, and cuda or the emulator)")  # fmt: skip
    parser.add_argument("-k", dest="pattern", default="", metavar="NAME", help="only files whose name has this")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs of eval.py at a time")
    parser.add_argument("--timed-jobs", type=int, default=1, metavar="N", help="the same where calls are timed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what they got as JSON, anew after each run")
    parser.add_argument("--continue", dest="continues", action="store_true",
                        help="leave out files, if unchanged, that are accepted in FILE")  # fmt: skip
    return parser


def main() -> int:
    options = parser().parse_args()
    table = Table(options.json, continues=options.continues)
    for device in options.device or devices():
        level = choose_isolation("auto", device).level
        chosen = [e for e in corpus.entries() if e.opens and e.runs_on(device, level) and options.pattern in e.name]
        if device == "emulator":  # which gives no times
            chosen = [entry for entry in chosen if "timing" not in entry.needs]
        judge(chosen, device, table, jobs=options.jobs, timed_jobs=options.timed_jobs)
    outcomes = list(table.outcomes.values())
    refused = [outcome for outcome in outcomes if outcome.verdict != "accepted"]
    print(f"{len(outcomes)} judged with what they attack open, {len(outcomes) - len(refused)} accepted")
    return 1 if refused or not (outcomes or table.before) else 0


class Table:
    """What was judged so far, on standard output and in a file."""

    def __init__(self, path: Path | None, *, continues: bool) -> None:
        self._path = path
        self._environment: dict[str, dict] = {}
        self.before: dict[tuple[str, str], dict] = {}
        """Rows of an earlier run, by device and name."""
        self.outcomes: dict[tuple[str, str], corpus.Outcome] = {}
        """The latest, by device and name."""
        if continues and path and path.exists():
            self.before = accepted_in(path)
            self._environment = json.loads(path.read_text())["environment"]

    def refused(self, chosen: list[corpus.Entry], device: str) -> list[corpus.Entry]:
        """Those that are not accepted yet."""
        new = [entry for entry in chosen if (device, entry.name) not in self.before]
        outcomes = {entry: self.outcomes.get((device, entry.name)) for entry in new}
        return [entry for entry, outcome in outcomes.items() if not outcome or outcome.verdict != "accepted"]

    def add(self, outcomes: list[corpus.Outcome], device: str, environment: dict | None) -> None:
        """What one run gave, and the machine that it ran on, if it came so far. The file is written anew."""
        for outcome in outcomes:
            self.outcomes[device, outcome.entry.name] = outcome
            _print(outcome)
        if environment:
            self._environment.setdefault(device, environment)
        if self._path:
            rows = self.before | {key: _row(outcome) for key, outcome in self.outcomes.items()}
            command = shlex.join(["python", "-m", "tests.hostile.opened", *sys.argv[1:]])
            written(
                self._path,
                {"environment": self._environment, "command": command, "outcomes": [rows[key] for key in sorted(rows)]},
            )


def accepted_in(path: Path) -> dict[tuple[str, str], dict]:
    """The rows of a table for files that are what they were, by device and name."""
    now = {entry.name: entry for entry in corpus.entries()}
    accepted = {}
    for row in json.loads(path.read_text())["outcomes"]:
        entry = now.get(f"{row['family']}/{row['name']}")
        same = entry and (row["sha256"], row["opened"]) == (entry.sha256, _text(entry))
        if entry and same and row["got"] == "accepted":
            accepted[row["device"], entry.name] = row
    return accepted


def judge(chosen: list[corpus.Entry], device: str, table: Table, *, jobs: int, timed_jobs: int) -> None:
    """Those that are not accepted a few times, one run after another: on a busy machine a time may be lost."""
    for attempt in range(PATIENCE):
        at_once = {} if attempt else {"jobs": jobs, "timed_jobs": timed_jobs}
        with tempfile.TemporaryDirectory() as folder:
            for found, run in corpus.judge_opened(table.refused(chosen, device), device, Path(folder), **at_once):
                table.add(found, device, run.results.get("environment"))


def _print(outcome: corpus.Outcome) -> None:
    accepted = outcome.verdict == "accepted"
    mark, name = "ok   " if accepted else "SHUT ", outcome.entry.name
    print(f"{mark} {outcome.device:9s} {name:50s} {outcome.verdict:32s} {_text(outcome.entry)}", flush=True)
    if not accepted:
        print(f"      {outcome.message[:400]}", flush=True)


def _row(outcome: corpus.Outcome) -> dict:
    entry = outcome.entry
    return {
        "family": entry.path.parent.name, "name": entry.path.stem, "sha256": entry.sha256, "device": outcome.device,
        "opened": _text(entry), "got": outcome.verdict, "message": outcome.message,
    }  # fmt: skip


def _text(entry: corpus.Entry) -> str:
    return entry.opens.text if entry.opens else ""


if __name__ == "__main__":
    sys.exit(main())
