"""What was said of each submission, to which the next verdict on it is compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.verdict import Accepted, Evaluation
from harness.watch.changes import Change, change_of_times, changes

# A submission's file, its problem, and the device.
_Judged = tuple[Path, str, str]


@dataclass(frozen=True)
class _Said:
    last: Evaluation
    last_timed: Accepted | None


class Memory:
    """The verdicts of a session."""

    def __init__(self) -> None:
        self._said: dict[_Judged, _Said] = {}

    def add(self, path: Path, evaluation: Evaluation) -> list[Change]:
        """What changed since the last verdict, and, where it was timed, since the last times."""
        judged = path, evaluation.problem, evaluation.device
        before = self._said.get(judged)
        found = changes(before.last, evaluation) if before else []
        timed = evaluation if isinstance(evaluation, Accepted) and evaluation.geomean_speedup is not None else None
        last_timed = before.last_timed if before else None
        if timed and last_timed:
            found.append(_change_of_times(last_timed, timed))
        self._said[judged] = _Said(evaluation, timed or last_timed)
        return found


def _change_of_times(before: Accepted, after: Accepted) -> Change:
    from harness.watch.times import how_it_differs  # scipy.stats takes a second to load

    return change_of_times(before, after, how_it_differs(before, after))
