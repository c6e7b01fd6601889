"""What got better or worse from one verdict to the next: a function of two evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.report.figures import over_eager
from harness.verdict import Accepted, CaseFailed, CasePassed, Errored, Evaluation, status_of

# So many names of cases are said; of more the rest is counted.
MOST_NAMES = 4


class Turn(StrEnum):
    """Which way something went."""

    BETTER = "better"
    WORSE = "worse"
    OTHER = "changed"
    SAME = "as before"


@dataclass(frozen=True)
class Change:
    """One thing that went one way, in words."""

    turn: Turn
    text: str


def changes(before: Evaluation, after: Evaluation) -> list[Change]:
    """What is different in `after`: the verdict, then the cases, then how exact it is. A case that was not judged in
    either of the two says nothing."""
    return [*_of_verdict(before, after), *_of_cases(before, after), *_of_error(before, after)]


def change_of_times(before: Accepted, after: Accepted, said: str) -> Change:
    """How the speed went from one timed evaluation to the next, where a test of their rounds has `said` that the later
    is "faster" or "slower"; anything else stands for no difference."""
    turn = {"faster": Turn.BETTER, "slower": Turn.WORSE}.get(said, Turn.SAME)
    return Change(turn, f"{said}; speedup over eager {over_eager(after)}, was {over_eager(before)}")


def _of_verdict(before: Evaluation, after: Evaluation) -> Iterator[Change]:
    was, now = status_of(before), status_of(after)
    if was != now:
        unknown = isinstance(before, Errored) or isinstance(after, Errored)
        turn = Turn.OTHER if unknown else Turn.BETTER if isinstance(after, Accepted) else Turn.WORSE
        yield Change(turn, f"{was} → {now}")
    elif before.reason != after.reason:
        yield Change(Turn.OTHER, f"{before.reason} → {after.reason}")


def _of_cases(before: Evaluation, after: Evaluation) -> Iterator[Change]:
    passed, failed = _names(before, CasePassed), _names(before, CaseFailed)
    pass_now, fail_now = _names(after, CasePassed), _names(after, CaseFailed)
    if worse := [name for name in fail_now if name in passed]:
        yield Change(Turn.WORSE, f"{_counted(worse)} passed and now fail{_s(worse)}: {folded(worse)}")
    if better := [name for name in pass_now if name in failed]:
        yield Change(Turn.BETTER, f"{_counted(better)} failed and now pass{_es(better)}: {folded(better)}")
    if still := [name for name in fail_now if name in failed]:
        yield Change(Turn.SAME, f"{_counted(still)} still fail{_s(still)}: {folded(still)}")


def _names(evaluation: Evaluation, kind: type[CasePassed | CaseFailed]) -> dict[str, None]:
    """In the order of the cases."""
    return {case.name: None for case in evaluation.cases if isinstance(case, kind)}


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} case{'s' * (len(names) != 1)}"


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


def _es(names: Sequence[str]) -> str:
    return "es" if len(names) == 1 else ""


def folded(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    quoted = [f"'{name}'" for name in names[:MOST_NAMES]]
    more = len(names) - len(quoted)
    return ", ".join(quoted) + (f" and {more} more" if more else "")


def _of_error(before: Evaluation, after: Evaluation) -> Iterator[Change]:
    """Said whenever both are right: data differ from run to run, and so does the error, which is no better or worse."""
    was, now = largest_error_ratio(before), largest_error_ratio(after)
    if was is not None and now is not None and isinstance(before, Accepted) and isinstance(after, Accepted):
        turn = Turn.SAME if f"{was:.1f}" == f"{now:.1f}" else Turn.OTHER
        yield Change(turn, f"error at most {now:.2f} × eager's, was {was:.2f}")


def largest_error_ratio(evaluation: Evaluation) -> float | None:
    """The largest of all cases that passed; None where none did."""
    return max((case.error_ratio for case in evaluation.cases if isinstance(case, CasePassed)), default=None)
