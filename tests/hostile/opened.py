"""Judge each file of the corpus with what it attacks open: `python -m tests.hostile.opened`.

All must be accepted then. Otherwise something else refuses a file, and nothing is known of what it is here to test.
Exits with 1 when one is not. tests/test_hostile.py does the same for the files that need no times.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what they got as JSON, anew after each device")
    return parser


def main() -> int:
    options = parser().parse_args()
    environment: dict[str, dict] = {}
    outcomes: list[corpus.Outcome] = []
    for device in options.device or devices():
        level = choose_isolation("auto", device).level
        chosen = [e for e in corpus.entries() if e.opens and e.runs_on(device, level) and options.pattern in e.name]
        if device == "emulator":  # which gives no times
            chosen = [entry for entry in chosen if "timing" not in entry.needs]
        found, environment[device] = judge(chosen, device)
        outcomes += found
        if options.json:
            rows = [_row(outcome) for outcome in outcomes]
            command = shlex.join(["python", "-m", "tests.hostile.opened", *sys.argv[1:]])
            written(options.json, {"environment": environment, "command": command, "outcomes": rows})
    refused = [outcome for outcome in outcomes if outcome.verdict != "accepted"]
    print(f"{len(outcomes)} judged with what they attack open, {len(outcomes) - len(refused)} accepted")
    return 1 if refused or not outcomes else 0


def judge(chosen: list[corpus.Entry], device: str) -> tuple[list[corpus.Outcome], dict]:
    """What each got, those that are not accepted a few times: on a busy machine a time may be lost. And the machine."""
    latest: dict[corpus.Entry, corpus.Outcome] = {}
    environment: dict = {}
    for _ in range(PATIENCE):
        left = [entry for entry in chosen if entry not in latest or latest[entry].verdict != "accepted"]
        if not left:
            break
        with tempfile.TemporaryDirectory() as folder:
            found, runs = corpus.judge_opened(left, device, Path(folder))
        latest |= {outcome.entry: outcome for outcome in found}
        environment = environment or next((run.results["environment"] for run in runs if run.results), {})
    for outcome in latest.values():
        mark = "ok   " if outcome.verdict == "accepted" else "SHUT "
        print(f"{mark} {device:9s} {outcome.entry.name:50s} {outcome.verdict:32s} {_text(outcome.entry)}", flush=True)
        if outcome.verdict != "accepted":
            print(f"      {outcome.message[:400]}", flush=True)
    return list(latest.values()), environment


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
