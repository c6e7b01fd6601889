"""The files of a site: written one by one, each whole; what an earlier site had and this one has not goes away."""

from __future__ import annotations

import concurrent.futures
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UsageError
from harness.report import files
from harness.report.formats import json
from harness.report.site import cases
from harness.report.site.compare import compare_page, compared, told
from harness.report.site.fitting import fitted
from harness.report.site.gather import Gathered, Subject, board_key, gather, subject_of
from harness.report.site.index import index_pages
from harness.report.site.problem import problem_pages
from harness.report.site.render import page
from harness.report.site.source import MOST_BYTES
from harness.report.site.submission import submission_page
from harness.report.site.tested import Pair, Tested, as_data, pairs_of, partners_of, tested
from harness.store import Store, Stored, open_store
from harness.verdict import SCHEMA, Evaluation, Results

FOLDERS = ("problems", "submissions", "raw", "sources", "data")

# The first page of a site says it.
GENERATOR = '<meta name="generator" content="kernelgate">'

# Where all pages are written this one is written over.
_UNFINISHED = "<p>This site is not finished. 'eval.py report --html' makes it anew.</p>"

LARGEST_PAGE_BYTES = 299_000

# A board's values and a source's SHA-256.
Place = tuple[tuple[str, ...], str]

# Pages that are worth a process of their own.
PAGES_OF_A_PROCESS = 60


@dataclass(frozen=True)
class Built:
    """What was written."""

    index: Path
    pages: int


def build_site(db: Path, out: Path, *, named: str = "") -> Built:
    """Write the site of a database into the folder `out`, made where there is none. `named` is what its user calls the
    database, where that is not its path. Raises UsageError for a folder that
    holds something else or cannot be written to, and where the database holds no evaluation."""
    with open_store(db) as store:
        gathered = gather(store)
        if not gathered.evaluations:
            raise UsageError(
                f"{named or db} has no evaluation. 'eval.py [PATH]' judges and keeps, 'eval.py import' reads."
            )
        try:
            _require_site(out)
            _begin_site(out)
            for folder in FOLDERS:
                (out / folder).mkdir(parents=True, exist_ok=True)
            written = _write_pages(store, gathered, db, out)
            _remove_others(out, written)
        except OSError as error:
            raise UsageError(f"The site {out} cannot be written: {error.strerror}.") from error
    return Built(out / "index.html", sum(path.suffix == ".html" for path in written))


def _require_site(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"--html takes a folder, and {out} is a file. Name another.")
    index = out / "index.html"
    is_site = index.is_file() and GENERATOR.encode() in index.read_bytes()[:4000]
    if not is_site and any(out.iterdir()):
        raise UsageError(f"{out} holds something else than a site. Name an empty folder, or one that is not there yet.")


def _begin_site(out: Path) -> None:
    """A first page before all others: a build that is interrupted leaves a folder that the next one knows again."""
    out.mkdir(parents=True, exist_ok=True)
    index = out / "index.html"
    if not index.exists():
        _write(index, f"<!doctype html>\n{GENERATOR}\n<title>kernelgate</title>\n{_UNFINISHED}\n")


def _write_pages(store: Store, gathered: Gathered, db: Path, out: Path) -> set[Path]:
    """Submissions first: what links to a page is written behind it."""
    pairs = pairs_of(gathered)
    work = _Work(gathered, partners_of(pairs), db, out)
    written, found = _do(work, [*gathered.of_subjects], pairs)
    latest = _latest(store, gathered)
    for problem in gathered.problems:
        written |= _write_problem(store, gathered, problem, latest, out)
    written.add(_write(out / "compare.html", page("compare.html", page=compare_page(gathered, found), root="")))
    dtypes = _dtypes(latest)
    for index in index_pages(gathered, lambda board, entry: dtypes[board_key(board), entry.source_sha256]):
        written.add(_write(out / index.file, page("index.html", page=index, root="")))
    return written


@dataclass(frozen=True)
class _Work:
    """What pages of submissions are made of, in whatever process."""

    gathered: Gathered
    partners: Mapping[Subject, Sequence[str]]
    db: Path
    out: Path

    def do(self, subjects: Sequence[Subject], pairs: Sequence[Pair]) -> tuple[set[Path], list[Tested]]:
        """Write the pages of `subjects`, and test `pairs`."""
        with open_store(self.db) as store:
            written = {path for subject in subjects for path in self._submission(store, subject)}
            found = [tested(store, pair) for pair in pairs]
        return written | {_write(self.out / "data" / f"{t.pair.key}.js", told(as_data(t))) for t in found}, found

    def _submission(self, store: Store, subject: Subject) -> Iterator[Path]:
        gathered, out = self.gathered, self.out
        (stored,) = store.stored("evaluation.digest = ?", (gathered.of_subjects[subject][-1].digest,))
        text = _text(store, subject.source_sha256)
        data = compared(subject, stored, text, self.partners.get(subject, ()))
        yield _write(out / "submissions" / f"{subject.key}.html", _submission(gathered, subject, stored, text))
        yield _write(out / "raw" / f"{subject.key}.json", _raw(stored))
        yield _write(out / "data" / f"{subject.key}.js", data)
        if text is not None:
            yield _write(out / "sources" / f"{subject.key}.txt", text)


def _do(work: _Work, subjects: Sequence[Subject], pairs: Sequence[Pair]) -> tuple[set[Path], list[Tested]]:
    """In several processes, where there is much to do."""
    processes = min(len(os.sched_getaffinity(0)), len(subjects) // PAGES_OF_A_PROCESS)
    if processes < 2:
        return work.do(subjects, pairs)
    parts = [(subjects[n :: processes * 4], pairs[n :: processes * 4]) for n in range(processes * 4)]
    with concurrent.futures.ProcessPoolExecutor(processes, initializer=_begin, initargs=(work,)) as pool:
        done = list(pool.map(_do_part, parts))
    by_pair = {one.pair: one for _, found in done for one in found}
    return set[Path]().union(*(paths for paths, _ in done)), [by_pair[pair] for pair in pairs]


_given: list[_Work] = []


def _begin(work: _Work) -> None:
    _given.append(work)
    gc.freeze()  # what was gathered stays to the end, and need not be looked through each time


def _do_part(part: tuple[Sequence[Subject], Sequence[Pair]]) -> tuple[set[Path], list[Tested]]:
    return _given[0].do(*part)


def _submission(gathered: Gathered, subject: Subject, stored: Stored, text: str | None) -> str:
    """The page; where it is too large, with less of the source, and where that is not enough without samples."""
    shown = submission_page(gathered, subject, stored, text)
    made = page("submission.html", page=shown, root="../")
    if (excess := len(made.encode()) - LARGEST_PAGE_BYTES) > 0:
        shown = submission_page(gathered, subject, stored, text, max(0, MOST_BYTES - excess))
        made = page("submission.html", page=shown, root="../")
    if len(made.encode()) > LARGEST_PAGE_BYTES:
        made = page("submission.html", page=replace(shown, samples=()), root="../")
    return made


def _write_problem(
    store: Store, gathered: Gathered, problem: str, latest: Mapping[Place, Evaluation], out: Path
) -> set[Path]:
    boards = gathered.boards_of(problem)
    reference = next(((b.problem_sha256, text) for b in boards if (text := _text(store, b.problem_sha256))), None)
    evaluations = {
        place: {
            subject_of(board, entry).key: latest[board_key(board), entry.source_sha256]
            for entry in board.entries
            if not gathered.is_older(board)
        }
        for place, board in enumerate(boards)
    }
    return {
        _write(out / "problems" / shown.file, page("problem.html", page=shown, root="../"))
        for shown in problem_pages(gathered, problem, evaluations, reference)
    }


def _latest(store: Store, gathered: Gathered) -> dict[Place, Evaluation]:
    """The latest evaluation of each entry."""
    shown = {board_key(board) for board in gathered.latest}
    wanted = {
        (glance.board, glance.source_sha256): glance.digest
        for glances in gathered.of_subjects.values()
        for glance in glances  # oldest first
        if glance.board in shown
    }
    digests = set(wanted.values())
    found = {stored.digest: fitted(stored.evaluation) for stored in store.stored() if stored.digest in digests}
    return {place: found[digest] for place, digest in wanted.items()}


def _dtypes(latest: Mapping[Place, Evaluation]) -> dict[Place, list[str]]:
    return {place: cases.dtypes_of(evaluation.cases) for place, evaluation in latest.items()}


def _text(store: Store, sha256: str) -> str | None:
    text = store.source(sha256)
    return None if text is None else text.decode(errors="replace")


def _raw(stored: Stored) -> str:
    results = Results(schema=SCHEMA, environment=dict(stored.environment), evaluations=[stored.evaluation])
    return json.dumps(results).decode()


def _write(path: Path, text: str) -> Path:
    files.write(path, text)
    return path


def _remove_others(out: Path, written: set[Path]) -> None:
    """Files of an earlier site."""
    found = [*out.glob("index-*.html"), *(path for folder in FOLDERS for path in (out / folder).iterdir())]
    for path in found:
        if path.is_file() and path not in written:
            path.unlink()
