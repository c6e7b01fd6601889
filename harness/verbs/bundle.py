"""`eval.py bundle`: one evaluation in one file that others can verify."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from harness.again.bundle import Bundle, packed
from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.report.board import SHOWN_DIGITS
from harness.report.files import write
from harness.store import Store, Stored, history, open_store
from harness.verbs.database import existing, of_file, of_problem
from harness.verbs.import_ import results_in, shipped
from harness.verdict import Evaluation


@click.command(
    "bundle",
    help="Write one evaluation into one file, for 'eval.py verify' elsewhere. RESULT is a submission's name, the "
    "beginning of its source's SHA-256 or of an evaluation's digest as 'eval.py history' shows it, or FILE:SUBMISSION "
    "for one in a file that --json wrote.",
)
@click.argument("result")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Where it goes (default: NAME.bundle.zip)."
)
@of_problem
@of_file
def command(result: str, out: Path | None, problem: str | None, db: Path | None) -> Callable[[], Exit]:
    return partial(write_bundle, result, out, problem, db)


def write_bundle(result: str, out: Path | None, problem: str | None, db: Path | None) -> Exit:
    """Write it, and say its digest. Raises UsageError where there is no such evaluation, several, or no text of it."""
    file, _, name = result.rpartition(":")
    with _database(db or results_db(), must_exist=not file) as store:
        stored = _of_file(Path(file), name, problem) if file else _of_database(store, result, problem)
        bundle = _bundle(store, stored)
    target = out or Path(f"{bundle.evaluation.submission}.bundle.zip")
    try:
        write(target, packed(bundle))
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}. Name another file with -o.") from error
    print(f"{target}: {bundle.evaluation.submission} on {bundle.evaluation.problem}, {stored.date[:16] or 'undated'}")
    print(f"Bundle {bundle.digest}")
    return Exit.ACCEPTED


@contextlib.contextmanager
def _database(db: Path, *, must_exist: bool) -> Iterator[Store | None]:
    """The store; None where there is none and none is needed."""
    if not must_exist and not db.exists():
        yield None
        return
    with open_store(existing(db)) as store:
        yield store


def _of_database(store: Store | None, name: str, problem: str | None) -> Stored:
    """The latest evaluation of the one source on the one problem and device that is named so."""
    assert store is not None
    plain = name.removesuffix(".py").rpartition("/")[2]
    found = by_digest(store, name) or history(store, plain, problem)
    found = [stored for stored in found if stored.evaluation.submission == plain] or found  # a name before a digest
    return _only(found, f"'{name}'", "the database")


def by_digest(store: Store, beginning: str) -> list[Stored]:
    """The evaluation whose digest begins so, or none."""
    if len(beginning) < SHOWN_DIGITS:
        return []
    return list(store.stored("evaluation.digest LIKE ? || '%'", (beginning,)))


def _of_file(file: Path, name: str, problem: str | None) -> Stored:
    """The latest in a file of results."""
    found: list[Stored] = []
    for place, part in results_in(file):
        if isinstance(part, str):
            raise UsageError(f"{place}: {part}")
        results, _texts = part
        found += [Stored("", e, results.environment) for e in results.evaluations if _is_named(e, name, problem)]
    return _only(found, f"'{name}'", str(file))


def _is_named(evaluation: Evaluation, name: str, problem: str | None) -> bool:
    is_it = evaluation.submission == name or (bool(name) and evaluation.source_sha256.startswith(name))
    return is_it and problem in (None, evaluation.problem)


def _only(found: Sequence[Stored], what: str, where: str) -> Stored:
    """The latest, if all are of one source on one problem and device."""
    sources = {(e.problem, e.device, e.source_sha256[:SHOWN_DIGITS]) for e in (stored.evaluation for stored in found)}
    if not sources:
        raise UsageError(f"{where} has no evaluation of {what}.")
    if len(sources) > 1:
        listed = "; ".join(f"{sha256} on {problem}, {device}" for problem, device, sha256 in sorted(sources))
        raise UsageError(
            f"{what} is several in {where}: {listed}. Say --problem, or the beginning of a source's SHA-256, or that "
            "of an evaluation, which 'eval.py history' shows."
        )
    return found[-1]


def _bundle(store: Store | None, stored: Stored) -> Bundle:
    """Raises UsageError where a text is not known that the evaluation is of."""
    evaluation = stored.evaluation
    if not evaluation.problem_sha256:
        raise UsageError("The result does not say which content of its problem it is of, so nobody can repeat it.")
    texts = {hashlib.sha256(text).hexdigest(): text for text in shipped()}
    wanted = {"source": evaluation.source_sha256, "problem": evaluation.problem_sha256}
    found = {what: (store and store.source(sha256)) or texts.get(sha256) for what, sha256 in wanted.items()}
    source, problem = found["source"], found["problem"]
    if source is None or problem is None:
        missing = " and ".join(what for what, text in found.items() if text is None)
        raise UsageError(
            f"The text of its {missing} is not known: neither the database nor problems/ and submissions/ have it as "
            "it was judged."
        )
    return Bundle(evaluation, stored.environment, source, problem)
