"""What a word names where a verb takes an evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.paths import SUBMISSIONS
from harness.report.formats import json
from harness.store import Named, Store, Stored, history, stored_of
from harness.store.pairs import SHOWN_DIGITS
from harness.verdict import Evaluation


@dataclass(frozen=True)
class Wanted:
    """Of which problem and device, where that was said."""

    problem: str | None = None
    device: str | None = None

    def holds(self, evaluation: Evaluation) -> bool:
        return self.problem in (None, evaluation.problem) and self.device in (None, evaluation.device)


def named(word: str, store: Store | None, db: Path, wanted: Wanted) -> Named:
    """A file of results as FILE or FILE:SUBMISSION, a submission's file as it is now, its name, or the beginning of its
    source's SHA-256. Raises UsageError where it names none, or several sources."""
    if file := _file_of_results(word):
        return _in_results(word, *file, wanted)
    if store is None:
        raise UsageError(
            f"'{word}' is no file of results, and there is no database {db} to look for a submission of that name in. "
            "'eval.py [PATH]' keeps what it judges, 'eval.py import' reads."
        )
    found = [stored for stored in _in_store(word, store, db) if wanted.holds(stored.evaluation)]
    if not found:
        raise UsageError(
            f"{db} has no evaluation of '{word}'{_of(wanted)}. 'eval.py leaderboard' shows which there are."
        )
    return Named(word, str(db), tuple(found))


def _of(wanted: Wanted) -> str:
    problem = f" on {wanted.problem}" if wanted.problem else ""
    return problem + (f" on the device {wanted.device}" if wanted.device else "")


# ---------------------------------------------------------------------- files of results


# How the names of such files end.
_RESULTS = (".json", ".jsonl")


def _file_of_results(word: str) -> tuple[Path, str] | None:
    """The file that `word` names, and a submission in it or nothing. It may not be there."""
    path, _, submission = word.rpartition(":")
    if path and (Path(path).is_file() or path.endswith(_RESULTS)):
        return Path(path), submission
    is_results = word.endswith(_RESULTS) or (Path(word).is_file() and not word.endswith(".py"))
    return (Path(word), "") if is_results else None


def _in_results(word: str, path: Path, submission: str, wanted: Wanted) -> Named:
    results = json.load(path)
    found = [e for e in results.evaluations if submission in ("", e.submission) and wanted.holds(e)]
    names = sorted({e.submission for e in found})
    if not found:
        there = ", ".join(sorted({f"{e.submission} on {e.problem}" for e in results.evaluations})) or "nothing"
        raise UsageError(f"{path} has no evaluation of '{submission or 'a submission'}'{_of(wanted)}; it has {there}.")
    if len(names) > 1:
        raise UsageError(f"{path} has several submissions: {', '.join(names)}. Name one: {path}:{names[0]}.")
    return Named(word, str(path), tuple(stored_of(e, results.environment) for e in found))


# ---------------------------------------------------------------------- the database


def _in_store(word: str, store: Store, db: Path) -> Sequence[Stored]:
    if word.endswith(".py") and Path(word).is_file():
        return _of_file(Path(word), store, db)
    name = word.removesuffix(".py").rpartition("/")[2]
    found = history(store, name)
    by_name = [stored for stored in found if stored.evaluation.submission == name]
    sources = sorted({stored.evaluation.source_sha256[:SHOWN_DIGITS] for stored in found})
    if not by_name and len(sources) > 1:
        raise UsageError(f"'{word}' begins several sources: {', '.join(sources)}. Give more of one.")
    return by_name or found


def _of_file(path: Path, store: Store, db: Path) -> Sequence[Stored]:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    found = history(store, sha256)
    if not found:
        raise UsageError(
            f"{db} has no evaluation of {path} as it is now. 'eval.py {path}' judges it; the name '{path.stem}' stands "
            "for what was judged before."
        )
    return found


# ---------------------------------------------------------------------- sources


def source_of(sha256: str, store: Store | None) -> bytes | None:
    """The text of a source: of the database, or of this repository's submissions."""
    kept = store.source(sha256) if store else None
    return kept if kept is not None else _shipped(sha256)


def _shipped(sha256: str) -> bytes | None:
    texts = (path.read_bytes() for path in SUBMISSIONS.rglob("*.py"))
    return next((text for text in texts if hashlib.sha256(text).hexdigest() == sha256), None)
