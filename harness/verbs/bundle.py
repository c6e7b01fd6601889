"""`eval.py bundle`: one evaluation in one file that others can verify."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click

from harness.again.bundle import Bundle, packed
from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.report.files import write
from harness.store import Store, Stored, open_store
from harness.store.pairs import SHOWN_DIGITS
from harness.verbs.import_ import shipped
from harness.verbs.shared.database import of_file, of_problem
from harness.verbs.shared.sides import Wanted, named


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
@click.option("--device", type=click.Choice(["cuda", "cpu", "emulator"]), help="Only on this device.")
@of_file
def command(
    result: str, out: Path | None, problem: str | None, device: str | None, db: Path | None
) -> Callable[[], Exit]:
    return partial(write_bundle, result, out, Wanted(problem, device), db or results_db())


def write_bundle(result: str, out: Path | None, wanted: Wanted, db: Path) -> Exit:
    """Write it, and say its digest. Raises UsageError where there is no such evaluation, several, or no text of it."""
    with _database(db) as store:
        stored = _evaluation(result, store, db, wanted)
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
def _database(db: Path) -> Iterator[Store | None]:
    """The database, where there is one: a file of results may need none."""
    if not db.exists():
        yield None
        return
    with open_store(db) as store:
        yield store


def _evaluation(word: str, store: Store | None, db: Path, wanted: Wanted) -> Stored:
    """The one whose digest begins so, or the latest of what `word` names, if that is of one source on one problem and
    device."""
    if of_digest := _of_digest(word, store):
        return of_digest[-1]
    found = named(word, store, db, wanted)
    sources = {(e.problem, e.device, e.source_sha256) for e in (stored.evaluation for stored in found.evaluations)}
    if len(sources) > 1:
        listed = "; ".join(
            f"{sha256[:SHOWN_DIGITS]} on {problem}, {device}" for problem, device, sha256 in sorted(sources)
        )
        raise UsageError(
            f"'{word}' is several in {found.found_in}: {listed}. Say --problem or --device, the beginning of a "
            "source's SHA-256, or that of an evaluation's digest, which 'eval.py history' shows."
        )
    return found.evaluations[-1]


def _of_digest(beginning: str, store: Store | None) -> list[Stored]:
    if store is None or len(beginning) < SHOWN_DIGITS:
        return []
    return list(store.stored("evaluation.digest LIKE ? || '%'", (beginning,)))


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
