"""The page of a problem: its boards, its cases with who wins them, and its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.report.figures import duration, with_interval
from harness.report.site import cases, names
from harness.report.site.entries import board_table, entry_row
from harness.report.site.gather import Gathered, subject_of
from harness.report.site.source import Source, source_of
from harness.report.site.table import Cell, Heading, Row, Table, without_empty
from harness.report.site.texts import count_of, day, named
from harness.report.site.wins import Won, wins
from harness.store import Board, Entry, Standing
from harness.verdict import Case, Evaluation

# What a page has room for.
MOST_CASES = 150
MOST_WINNERS = 5
MOST_BOARDS_WITH_CASES = 3
ROWS_OF_A_PAGE = 150
MOST_TIMED = 60
MOST_SOURCE_BYTES = 60_000


# A board's place among those of the problem, the board, and its first entry on a page.
Part = tuple[int, Board, int]


@dataclass(frozen=True)
class BoardShown:
    """A board, or as much of it as one page has room for."""

    title: str
    is_older: bool
    facts: str
    table: Table
    wins: Table | None
    cases: Table | None
    """Those that are timed."""
    untimed: Table | None
    standings: Sequence[str]
    """A sentence on each standing but ranked that occurs."""


@dataclass(frozen=True)
class ProblemPage:
    """What the template shows, one of several pages where there are many entries."""

    problem: str
    number: int
    file: str
    following: str
    preceding: str
    boards: Sequence[BoardShown]
    source: Source | None
    source_sha256: str


def problem_pages(
    gathered: Gathered,
    problem: str,
    evaluations: Mapping[int, Mapping[str, Evaluation]],
    reference: tuple[str, str] | None,
) -> Iterator[ProblemPage]:
    """The pages. `evaluations` has the latest of each entry, by the board's place and the key of its page; `reference`
    is the problem's file by its SHA-256, of the first board whose file is kept."""
    key, boards = names.problem_key(problem), gathered.boards_of(problem)
    parts = [
        (place, board, start)
        for place, board in enumerate(boards)
        for start in range(0, max(board.count, 1), ROWS_OF_A_PAGE)
    ]
    pages = list(_filled(parts, lambda part: min(part[1].count - part[2], ROWS_OF_A_PAGE)))
    for number, page in enumerate(pages, 1):
        shown = [
            _board(
                board,
                start,
                evaluations[place],
                older=gathered.is_older(board),
                with_cases=number == 1 and place < MOST_BOARDS_WITH_CASES,
            )
            for place, board, start in page
        ]
        yield ProblemPage(
            problem=named(problem),
            number=number,
            file=names.page(key, number),
            following=names.page(key, number + 1) if number < len(pages) else "",
            preceding=names.page(key, number - 1) if number > 1 else "",
            boards=shown,
            source=source_of(reference[1], {}, MOST_SOURCE_BYTES) if reference and number == 1 else None,
            source_sha256=reference[0] if reference else "",
        )


def _filled(parts: Sequence[Part], size: Callable[[Part], int]) -> Iterator[list[Part]]:
    """The parts, as many together as make ROWS_OF_A_PAGE rows."""
    page: list[Part] = []
    used = 0
    for part in parts:
        if page and used + size(part) > ROWS_OF_A_PAGE:
            yield page
            page, used = [], 0
        page.append(part)
        used += size(part)
    yield page


def _board(
    board: Board, start: int, evaluations: Mapping[str, Evaluation], *, older: bool, with_cases: bool
) -> BoardShown:
    entries = board.entries[start : start + ROWS_OF_A_PAGE]
    titles = {subject_of(board, entry).key: named(entry.submission) for entry in board.entries}
    won = wins(_counting(board, evaluations)) if with_cases else []
    untimed = _without_times(won, evaluations.values()) if with_cases else []
    timed = [one.case for one in won[:MOST_TIMED]]
    return BoardShown(
        title=f"{named(board.device)} · {named(board.model)}",
        is_older=older,
        facts=_facts(board, start, len(entries)),
        table=_entries_table(board, entries, evaluations),
        wins=_wins_table(won, titles) if won else None,
        cases=_cases_table("Timed cases, and who wins them", won, timed, titles) if won else None,
        untimed=_cases_table("Cases that are judged and not timed", [], untimed, titles) if untimed else None,
        standings=[
            f"{standing.value}: {standing.meaning}"
            for standing in sorted({entry.standing for entry in entries} - {Standing.RANKED})
        ],
    )


def _facts(board: Board, start: int, shown: int) -> str:
    """What makes it a board of its own, and how much of it stands here."""
    reached = f", entries {start + 1} to {start + shown}" if shown < board.count else ""
    return (
        f"{named(board.versions)}; judge {named(board.judge) or 'unknown'}; cases {named(board.cases)}; "
        f"{count_of(board.count, 'entry', 'entries')}{reached}; latest of {day(board.date)}"
    )


def _entries_table(board: Board, entries: Sequence[Entry], evaluations: Mapping[str, Evaluation]) -> Table:
    rows = []
    for entry in entries:
        evaluation = evaluations.get(subject_of(board, entry).key)
        rows.append(entry_row(board, entry, cases.dtypes_of(evaluation.cases) if evaluation else [], "../", ""))
    label = f"Board of {named(board.problem)} on {named(board.device)}, {named(board.model)}"
    return board_table(label, rows, without=("problem", "device"))


def _counting(board: Board, evaluations: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
    """Those of entries that may win."""
    lost = {Standing.REJECTED, Standing.WITHDRAWN}
    keys = [subject_of(board, entry).key for entry in board.entries if entry.standing not in lost]
    return {key: evaluations[key] for key in keys if key in evaluations}


def _without_times(won: Sequence[Won], evaluations: Iterable[Evaluation]) -> list[Case]:
    """Each case that nobody has a time on, once, as one of the evaluations has it."""
    found: dict[str, Case] = {}
    for evaluation in evaluations:
        for case in evaluation.cases:
            found.setdefault(case.name, case)
    for one in won:
        found.pop(one.case.name, None)
    return list(found.values())


def _wins_table(won: Sequence[Won], titles: Mapping[str, str]) -> Table:
    counts: dict[str, int] = {}
    for one in won:
        for key in one.winners:
            counts[key] = counts.get(key, 0) + 1
    headings = [Heading("submission", "left"), Heading("cases won"), Heading("of those timed")]
    rows = [
        Row(
            [
                Cell(titles.get(key, key), href=f"../submissions/{key}.html"),
                Cell(str(count), value=count),
                Cell(f"{count / len(won):.0%}", value=count / len(won)),
            ]
        )
        for key, count in sorted(counts.items(), key=lambda item: -item[1])[:MOST_CASES]
    ]
    return Table("How many cases each submission wins", headings, rows, sortable=True)


def _cases_table(label: str, won: Sequence[Won], every: Sequence[Case], titles: Mapping[str, str]) -> Table:
    by_name = {one.case.name: one for one in won}
    headings = [
        Heading("case", "left"),
        Heading("shape", "left"),
        Heading("dtype", "left"),
        Heading("won by", "left"),
        Heading("winners"),
        Heading("its time"),
        Heading("of floor"),
        Heading("over eager [95%]"),
    ]
    rows = [_case_row(case, by_name.get(case.name), titles) for case in every[:MOST_CASES]]
    return without_empty(Table(label, headings, rows, sortable=True), keep=3)


def _case_row(case: Case, won: Won | None, titles: Mapping[str, str]) -> Row:
    shown = won.case if won else case
    cells = [Cell(shown.name + (" (scaled)" if shown.scaled else "")), Cell(shown.shape), Cell(cases.dtype_of(shown))]
    timing = shown.timing
    if won is None or timing is None:
        return Row([*cells, *[Cell("")] * 5])
    names_of = [titles.get(key, key) for key in won.winners[:MOST_WINNERS]]
    more = f" and {len(won.winners) - MOST_WINNERS} more" if len(won.winners) > MOST_WINNERS else ""
    eager = timing.baselines["eager"].speedup
    return Row(
        [
            *cells,
            Cell(", ".join(names_of) + more, href=f"../submissions/{won.winners[0]}.html"),
            Cell(f"{len(won.winners)} of {won.timed}", value=len(won.winners)),
            Cell(duration(timing.median_us), value=timing.median_us),
            Cell(f"{timing.floor_fraction:.0%}", value=timing.floor_fraction),
            Cell(with_interval(eager.ratio, eager.interval), value=eager.ratio),
        ]
    )
