"""What the store holds, as the site shows it: boards, and what has a page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.report.site import names
from harness.store import Board, Entry, Glance, Store, boards, glances
from harness.store.rows import BOARD


@dataclass(frozen=True)
class Subject:
    """A source on one problem and device: what has a page of its own."""

    source_sha256: str
    problem: str
    device: str

    @cached_property
    def key(self) -> str:
        """What its files are called."""
        return names.submission_key(self.source_sha256, self.problem, self.device)


@dataclass(frozen=True)
class Placed:
    """An entry and the board it stands on."""

    board: Board
    entry: Entry


@dataclass(frozen=True)
class Gathered:
    """All that pages are made of, but the evaluations' content."""

    latest: Sequence[Board]
    """Of each problem, device and model the board with the latest evaluation."""
    older: Sequence[Board]
    """The others."""
    of_subjects: Mapping[Subject, Sequence[Glance]]
    """A source's evaluations, oldest first."""
    of_names: Mapping[tuple[str, str, str], Sequence[Glance]]
    """Evaluations by problem, device and a submission's name, oldest first."""
    standings: Mapping[tuple[tuple[str, ...], str], Placed]
    """By a board's values and a source's SHA-256; older boards' too."""
    evaluations: int

    @property
    def problems(self) -> list[str]:
        """Their names."""
        return sorted({subject.problem for subject in self.of_subjects})

    def boards_of(self, problem: str) -> list[Board]:
        """The latest ones, those with the most entries first; then the older ones."""
        latest = sorted((board for board in self.latest if board.problem == problem), key=lambda board: -board.count)
        return [*latest, *(board for board in self.older if board.problem == problem)]

    def is_older(self, board: Board) -> bool:
        """Whether a later board is of the same problem, device and model."""
        return board_key(board) in self._older

    @cached_property
    def _older(self) -> frozenset[tuple[str, ...]]:
        return frozenset(map(board_key, self.older))

    def standing_of(self, subject: Subject) -> Placed | None:
        """On the board of its latest evaluation."""
        return self.standings.get((self.of_subjects[subject][-1].board, subject.source_sha256))

    def related(self, subject: Subject) -> list[Subject]:
        """The same source on other problems and devices."""
        return [
            other for other in self._of_sources[subject.source_sha256] if other != subject
        ]  # fmt: skip

    @cached_property
    def _of_sources(self) -> dict[str, list[Subject]]:
        found: dict[str, list[Subject]] = {}
        for subject in self.of_subjects:
            found.setdefault(subject.source_sha256, []).append(subject)
        return found


def subject_of(board: Board, entry: Entry) -> Subject:
    """What an entry's page is of."""
    return Subject(entry.source_sha256, board.problem, board.device)


def board_key(board: Board) -> tuple[str, ...]:
    """A board's values, as `Glance.board` has them."""
    return tuple(getattr(board, name) for name in BOARD)


def gather(store: Store) -> Gathered:
    """Read it."""
    of_subjects: dict[Subject, list[Glance]] = {}
    of_names: dict[tuple[str, str, str], list[Glance]] = {}
    found = glances(store)
    for glance in found:
        of_subjects.setdefault(Subject(glance.source_sha256, glance.problem, glance.device), []).append(glance)
        of_names.setdefault((glance.problem, glance.device, glance.submission), []).append(glance)
    every = boards(store, older=True, limit=sys.maxsize)
    latest = boards(store, limit=sys.maxsize)
    shown = set(map(board_key, latest))
    return Gathered(
        latest=latest,
        older=[board for board in every if board_key(board) not in shown],
        of_subjects=of_subjects,
        of_names=of_names,
        standings={
            (board_key(board), entry.source_sha256): Placed(board, entry) for board in every for entry in board.entries
        },
        evaluations=len(found),
    )
