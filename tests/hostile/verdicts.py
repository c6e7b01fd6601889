"""What the tests of the corpus's verdicts share: judging files in a temporary folder of their own, and what is left."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from harness.isolation.levels import choose_isolation
from tests.helpers import ROOT
from tests.hostile import corpus
from tests.hostile.__main__ import right_in

ENTRIES = corpus.entries()
LEVEL = choose_isolation("auto", "cpu").level


@dataclass(frozen=True)
class Judged:
    """Outcomes by the file's name and the device, and where to look for what they have left."""

    outcomes: dict[tuple[str, str], corpus.Outcome]
    at_first: dict[tuple[str, str], corpus.Outcome]
    """Those that were judged again."""
    folder: Path
    shared_memory_before: set[str]

    def check_verdict(self, entry: corpus.Entry, device: str) -> None:
        """Raises AssertionError when it is not the one that the file names."""
        outcome = self.outcomes[entry.name, device]
        assert outcome.right, f"{outcome.verdict}: {outcome.message}"
        assert "Traceback" not in outcome.message
        assert outcome.message.replace("\n", " ").isprintable()

    def check_nothing_is_left(self) -> None:
        """Raises AssertionError for files, shared memory and processes of what was judged."""
        left = {path.name: _content(path) for path in self.folder.iterdir()}
        assert not left, f"{left}; judged again were {list(self.at_first.values())}"
        assert set(os.listdir("/dev/shm")) - self.shared_memory_before == set()
        lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        assert [line for line in lines if str(self.folder) in line] == []


TABLE = "results/cpu/hostile.json"
STOOD_FOR = f"{TABLE} has its verdict, and another file of its family that attacks the same is judged"


def _judged_in_any_case() -> set[tuple[str, str]]:
    """Names and devices of files whose verdict the committed table does not have as they are, and of one for each
    family, thing that is attacked and verdict: what answers soonest."""
    known = {(f"{row['family']}/{row['name']}", row["device"]) for row in right_in(ROOT / TABLE)}
    one_of_each = {}
    for entry in sorted(ENTRIES, key=lambda e: e.may_hang, reverse=True):
        for device in ("cpu", "emulator"):
            if entry.runs_on(device, LEVEL):
                attacked = entry.opens.text if entry.opens else ""
                one_of_each[entry.path.parent.name, attacked, entry.allowed, device] = (entry.name, device)
    everyone = {(entry.name, device) for entry in ENTRIES for device in ("cpu", "emulator")}
    return (everyone - known) | set(one_of_each.values())


IN_ANY_CASE = _judged_in_any_case()


def judge(folder: Path, devices: Iterable[str], *, quiet: bool, whole: bool) -> Judged:
    """Judge what `needs_quiet` or what does not, with `folder` for temporary files, so that what it leaves is seen:
    all files with `whole`, those IN_ANY_CASE without."""
    before = set(os.listdir("/dev/shm"))
    outcomes, at_first = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        for device in devices:
            left_out = {
                entry.name
                for entry in ENTRIES
                if entry.needs_quiet != quiet or not (whole or (entry.name, device) in IN_ANY_CASE)
            }
            for found, _ in corpus.judge_all(device, LEVEL, left_out=left_out):
                at_first |= {(o.entry.name, device): o for o in found if o.failed_otherwise}
                outcomes |= {(o.entry.name, device): o for o in corpus.judge_again(found)}
    return Judged(outcomes, at_first, folder, before)


def judge_opened(folder: Path, entries: Iterable[corpus.Entry]) -> dict[str, corpus.Outcome]:
    """Outcomes by name of files that have what they attack open: on the CPU, or on the emulator where that is
    needed."""
    found: dict[str, corpus.Outcome] = {}
    remaining = list(entries)
    for device in ("cpu", "emulator"):
        of_it = [entry for entry in remaining if entry.runs_on(device, "namespaces") and entry.name not in found]
        for outcomes, _ in corpus.judge_opened(of_it, device, folder / device):
            found |= {outcome.entry.name: outcome for outcome in outcomes}
    return found


def _content(path: Path) -> str | list[str]:
    """What a file says, as a traceback does, or what a folder holds."""
    return path.read_text(errors="replace") if path.is_file() else sorted(os.listdir(path))


def judged_on(device: str, *, quiet: bool) -> list:
    """Parameters of a test: each file that is judged so, and its device."""
    return [
        pytest.param(
            entry,
            device,
            id=f"{device}-{entry.name}",
            marks=() if (entry.name, device) in IN_ANY_CASE else pytest.mark.whole(STOOD_FOR),
        )
        for entry in ENTRIES
        if entry.runs_on(device, LEVEL) and entry.needs_quiet == quiet
    ]
