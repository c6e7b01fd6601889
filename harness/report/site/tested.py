"""Pairs of submissions that are compared while the site is made, by the test of `eval.py compare`.

A test takes some 10 ms, so that not every two of a large board can have one: neighbours have, and the first of each
board among each other. Of any other two the page shows the figures, and names the command that tests them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, zip_longest
from typing import Any

import msgspec

from harness.comparison import Comparison, Mean, Row, Side, compare
from harness.report.site.charts.scale import drawable
from harness.report.site.gather import Gathered, Subject, board_key, subject_of
from harness.report.site.texts import named, plain
from harness.store import Board, Store, Stored
from harness.timed import timings_of
from harness.verdict import Case, CasePassed, CaseTiming, Evaluation

# Pairs of a site that are tested at the most.
MOST_PAIRS = 100

# Of each board so many entries are compared with each other.
FIRST = 6

MOST_ROWS = 100


@dataclass(frozen=True)
class Pair:
    """Two entries of a board, the faster one first, and their latest evaluations there."""

    problem: str
    device: str
    subjects: tuple[Subject, Subject]
    names: tuple[str, str]
    digests: tuple[str, str]
    neighbours: bool

    @property
    def key(self) -> str:
        """What its file is called: both pages' keys, in their order."""
        return "-".join(sorted(subject.key for subject in self.subjects))


@dataclass(frozen=True)
class Tested:
    """A pair and what was found: how its second stands to its first."""

    pair: Pair
    comparison: Comparison

    @property
    def mean(self) -> Mean | None:
        """Over all cases, called; where nothing was timed in both there is none."""
        return self.comparison.means[0] if self.comparison.means else None


def pairs_of(gathered: Gathered) -> list[Pair]:
    """Board by board in turn, so that each has its first ones."""
    of_boards = [list(_of_board(gathered, board)) for board in gathered.latest]
    in_turn = [pair for turn in zip_longest(*of_boards) for pair in turn if pair is not None]
    return in_turn[:MOST_PAIRS]


def _of_board(gathered: Gathered, board: Board) -> Iterator[Pair]:
    entries = [entry for entry in board.entries if entry.over_eager]
    near = list(pairwise(entries))
    for first, second in [*near, *(pair for pair in combinations(entries[:FIRST], 2) if pair not in near)]:
        subjects = subject_of(board, first), subject_of(board, second)
        yield Pair(
            problem=board.problem,
            device=board.device,
            subjects=subjects,
            names=(first.submission, second.submission),
            digests=(_latest(gathered, board, subjects[0]), _latest(gathered, board, subjects[1])),
            neighbours=(first, second) in near,
        )


def _latest(gathered: Gathered, board: Board, subject: Subject) -> str:
    key = board_key(board)
    return next(glance.digest for glance in reversed(gathered.of_subjects[subject]) if glance.board == key)


def tested(store: Store, pair: Pair) -> Tested:
    """Compare them."""
    a, b = (_sound(_stored(store, digest).evaluation) for digest in pair.digests)
    return Tested(pair, compare(a, b, (Side.of(a), Side.of(b))))


def _stored(store: Store, digest: str) -> Stored:
    (found,) = store.stored("evaluation.digest = ?", (digest,))
    return found


def _sound(evaluation: Evaluation) -> Evaluation:
    """Without times that no clock gave: an import takes figures as they are written."""
    return msgspec.structs.replace(evaluation, cases=[_with_sound_times(case) for case in evaluation.cases])


def _with_sound_times(case: Case) -> Case:
    if not isinstance(case, CasePassed) or all(_is_sound(timing) for _, _, timing in timings_of(case)):
        return case
    return msgspec.structs.replace(case, timing=None, parts={})


def _is_sound(timing: CaseTiming) -> bool:
    return all(
        drawable(figure)
        for one in (timing, *timing.baselines.values())
        for figure in (one.median_us, *one.samples_us, 1.0 if one.issue_us is None else one.issue_us)
    )


def as_data(found: Tested) -> dict[str, Any]:
    """What the script loads of a pair."""
    return {
        "key": found.pair.key,
        "first": found.pair.subjects[0].key,
        "test": found.comparison.test,
        "rows": [_line(row, plain(named(row.name)), _label(row)) for row in found.comparison.rows[:MOST_ROWS]],
        "means": [_line(mean, _mean_name(mean), "") for mean in found.comparison.means],
    }


def _line(line: Row | Mean, name: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "us": [line.a_us, line.b_us] if isinstance(line, Row) else None,
        "speed": [line.speed.ratio, *line.speed.interval],
        "word": line.difference,
        "floor": line.floor,
        "seen": line.smallest_seen,
        "label": plain(label),
    }


def _label(row: Row) -> str:
    return row.doubt or ("launch-bound" if row.launch_bound else "")


def _mean_name(mean: Mean) -> str:
    return f"geometric mean, {mean.kind}"


def partners_of(pairs: Sequence[Pair]) -> dict[Subject, list[str]]:
    """By a page's subject the keys of those that it was tested with."""
    found: dict[Subject, list[str]] = {}
    for pair in pairs:
        first, second = pair.subjects
        found.setdefault(first, []).append(second.key)
        found.setdefault(second, []).append(first.key)
    return found
