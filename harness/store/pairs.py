"""Which two evaluations are compared: the latest of each side, on one board."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.store.rows import Stored, board_of
from harness.verdict import Accepted, Errored, Evaluation

# Digits of a SHA-256 that are shown: they tell apart sources of one name.
SHOWN_DIGITS = 10


@dataclass(frozen=True)
class Named:
    """The evaluations that a word names, oldest first and at least one, and where they were found."""

    word: str
    found_in: str
    evaluations: tuple[Stored, ...]


def choose(a: Named, b: Named, *, anyway: bool) -> tuple[Stored, Stored, list[str]]:
    """The latest of each on one board, and in what their boards differ. Where both words name the same evaluation, A is
    the one before it. Raises UsageError where they are on no board together, unless `anyway`; and where they are on
    several problems."""
    together = list(_together(a, b))
    problems = sorted({second.evaluation.problem for _, second in together})
    if len(problems) > 1:
        raise UsageError(f"'{a.word}' and '{b.word}' are both on {', '.join(problems)}; choose one with --problem.")
    if together:
        first, second = max(together, key=lambda pair: (pair[1].date, pair[0].date))
        return first, second, _unknown(first)
    first, second = _latest(a.evaluations), _latest(b.evaluations)
    if first.digest == second.digest:
        raise UsageError(
            f"'{a.word}' and '{b.word}' are one evaluation. 'eval.py PATH --again' judges a submission once more."
        )
    differs = differences(first, second)
    if not anyway:
        raise UsageError(
            f"'{a.word}' and '{b.word}' are on different boards, and times of different boards do not compare: "
            f"{'; '.join(differs)}. --anyway compares them all the same."
        )
    return first, second, differs


def _unknown(of_one_board: Stored) -> list[str]:
    """What is the same on both sides only as far as is known."""
    return [] if _board(of_one_board)["judge"] else [f"{_WORDS['judge']}: unknown on both sides"]


def _together(a: Named, b: Named) -> Iterator[tuple[Stored, Stored]]:
    """For each board that has both, the latest of each."""
    of_a, of_b = _by_board(a.evaluations), _by_board(b.evaluations)
    for board in of_a.keys() & of_b.keys():
        second = _latest(of_b[board])
        others = [stored for stored in of_a[board] if stored.digest != second.digest]
        if others:
            yield _latest(others), second


def _by_board(evaluations: Sequence[Stored]) -> dict[tuple[Any, ...], list[Stored]]:
    boards: dict[tuple[Any, ...], list[Stored]] = {}
    for stored in evaluations:
        boards.setdefault(tuple(_board(stored).values()), []).append(stored)
    return boards


def _board(stored: Stored) -> Mapping[str, Any]:
    return board_of(stored.evaluation, stored.environment)


def _latest(evaluations: Sequence[Stored]) -> Stored:
    """The latest that says something: that has times or is a rejection."""
    telling = [stored for stored in evaluations if _tells(stored.evaluation)]
    return (telling or evaluations)[-1]


def _tells(evaluation: Evaluation) -> bool:
    if isinstance(evaluation, Accepted):
        return any(case.timing for case in evaluation.cases)
    return not isinstance(evaluation, Errored)


_WORDS = {
    "problem": "problem",
    "problem_sha256": "content of the problem's file",
    "cases": "set of cases",
    "judge": "version of the judge",
    "device": "device",
    "model": "model of the device",
    "versions": "versions",
}


def differences(a: Stored, b: Stored) -> list[str]:
    """In what their boards differ, in words."""
    first, second = _board(a), _board(b)
    return [
        f"{words}: {short(first[name])} and {short(second[name])}"
        for name, words in _WORDS.items()
        if first[name] != second[name]
    ]


def short(value: str) -> str:
    """A SHA-256 by its beginning."""
    return (value[:SHOWN_DIGITS] if len(value) == 64 else value) or "unknown"
