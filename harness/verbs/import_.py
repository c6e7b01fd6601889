"""`eval.py import`: evaluations that were made elsewhere come into the database."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import PROBLEMS, SUBMISSIONS, results_db
from harness.report.formats import json
from harness.report.lines import read_line
from harness.store import open_store
from harness.verbs.shared.database import of_file
from harness.verdict import Results


@click.command("import", help="Read 'eval.py export's lines and --json's results, files or folders, into the database.")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@of_file
def command(files: Sequence[Path], db: Path | None) -> Callable[[], Exit]:
    return partial(read_files, files, db or results_db())


def read_files(files: Sequence[Path], db: Path) -> Exit:
    """Read all that can be read, name what cannot, and say how much was new. What is there already stays as it is. What
    a run had from its store, and did not judge, is left out: it was made with another date, and counts once."""
    ours = {hashlib.sha256(text).hexdigest(): text for text in shipped()}
    new, known, refused, kept_elsewhere = 0, 0, 0, 0
    in_folders = {folder: sorted(folder.rglob("*.json*")) for folder in files if folder.is_dir()}
    chosen = {folder: [path for path in found if _holds_results(path)] for folder, found in in_folders.items()}
    other = sum(len(found) - len(chosen[folder]) for folder, found in in_folders.items())
    with open_store(db) as store:
        for file in [part for path in files for part in chosen.get(path) or [path]]:
            for place, found in _results_in(file):
                if isinstance(found, str):
                    refused += 1
                    print(f"{place}: {found}", file=sys.stderr)
                    continue
                results, texts = found
                judged = [evaluation for evaluation in results.evaluations if not evaluation.kept_from]
                kept_elsewhere += len(results.evaluations) - len(judged)
                wanted = {sha for e in judged for sha in (e.source_sha256, e.problem_sha256)}
                kept = {sha: text for sha, text in (ours | texts).items() if sha in wanted}
                added = store.add(judged, results.environment, kept)
                new, known = new + added, known + len(judged) - added
    left_out = f" {other} files hold something else." if other else ""
    if kept_elsewhere:
        left_out += f" {kept_elsewhere} left out: their run had them from its database; 'eval.py export' it there."
    print(f"{new} new, {known} known before, {refused} refused.{left_out}")
    return Exit.USAGE if refused else Exit.ACCEPTED


def _holds_results(path: Path) -> bool:
    """Whether a file found in a folder speaks of the schema where its first object begins. What cannot be read is said
    where it is read."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b'"schema"' in file.read(64)
    except OSError:
        return True


def shipped() -> Iterator[bytes]:
    """The texts of this repository's submissions and problems: results that --json wrote have none."""
    for folder in (SUBMISSIONS, PROBLEMS):
        for path in folder.rglob("*.py"):
            yield path.read_bytes()


def _results_in(file: Path) -> Iterator[tuple[str, tuple[Results, dict[str, bytes]] | str]]:
    """The place of each part of a file, and its results with texts by their SHA-256, or what is wrong with it. A
    folder is one that holds none."""
    if file.is_dir():
        yield str(file), "no .json or .jsonl file in it has results. Give a folder or a file that has some."
        return
    try:
        data = file.read_bytes()
    except OSError as error:
        yield str(file), f"it cannot be read: {error.strerror}."
        return
    if not data.lstrip().startswith(b'{"schema"') and b"\n" in data:
        yield str(file), _whole(data)
        return
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield f"{file}, line {number}", _of_line(line)


def _whole(data: bytes) -> tuple[Results, dict[str, bytes]] | str:
    try:
        return json.loads(data), {}
    except UsageError as error:
        return str(error)


def _of_line(line: bytes) -> tuple[Results, dict[str, bytes]] | str:
    try:
        return read_line(line)
    except UsageError as error:
        return str(error)
