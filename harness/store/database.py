"""The database file: opened, brought up to date, written by many at once.

In SQLite's write-ahead log a row that was committed outlives a process that is killed, and readers see whole rows
alone. A writer that finds another one at work waits for WAIT_S.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import HarnessError, UsageError
from harness.store import rows, schema
from harness.store.rows import Stored
from harness.verdict import Evaluation

WAIT_S = 30.0


@contextlib.contextmanager
def open_store(path: Path, *, wait_s: float = WAIT_S) -> Iterator[Store]:
    """The store in the file `path`, made where there is none. Raises UsageError for a file that is no store, and
    HarnessError where it cannot be written."""
    with _said(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    try:
        with _said(path):
            _prepare(connection, path)
        yield Store(connection, path)
    finally:
        connection.close()


class Store:
    """An open database of evaluations."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def add(
        self,
        evaluations: Iterable[Evaluation],
        environment: Mapping[str, Any],
        sources: Mapping[str, bytes],
        *,
        plain: bool = False,
    ) -> int:
        """Keep `evaluations`, made in `environment`, and texts by their SHA-256; how many were new. All or none is
        kept. `plain` ones, which this judge made as RunPlan.is_plain says, may answer for later ones. Raises
        HarnessError where the file cannot be written."""
        kept = rows.environment_row(environment)
        with self._writing() as connection:
            connection.execute("INSERT INTO environment VALUES (:digest, :content) ON CONFLICT DO NOTHING", kept)
            texts = [(sha256, zlib.compress(text)) for sha256, text in sources.items()]
            connection.executemany("INSERT INTO source VALUES (?, ?) ON CONFLICT DO NOTHING", texts)
            made = {"plain": int(plain)}
            return sum(_insert(connection, rows.row(evaluation, environment) | made) for evaluation in evaluations)

    def withdraw(self, source_sha256: str, problem: str, reason: str, date: str) -> None:
        """Take an entry's ranks and say why; what was measured stays."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO withdrawal VALUES (?, ?, ?, ?)",
                _as_kept((source_sha256, problem, reason, date)),
            )

    def select(self, query: str, values: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        """Rows of a query that changes nothing."""
        with _said(self._path):
            return self._connection.execute(query, _as_kept(values)).fetchall()

    def stored(self, where: str = "1", values: tuple[object, ...] = ()) -> Iterator[Stored]:
        """The evaluations that fit, oldest first."""
        query = (
            "SELECT evaluation.digest, content.json, environment.content AS environment FROM evaluation "
            "JOIN board ON board.id = evaluation.board JOIN content ON content.evaluation = evaluation.id "
            "JOIN environment ON environment.digest = evaluation.environment "
            f"WHERE {where} ORDER BY date, evaluation.id"
        )
        for found in self.select(query, values):
            environment = msgspec.json.decode(found["environment"])
            yield Stored(found["digest"], rows.evaluation_of(found["json"]), environment)

    def source(self, sha256: str) -> bytes | None:
        """A text by its SHA-256, if it is kept."""
        found = self.select("SELECT text FROM source WHERE sha256 = ?", (sha256,))
        return zlib.decompress(found[0]["text"]) if found else None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction."""
        with _said(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it itself where there is no room
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _as_kept(values: tuple[object, ...]) -> tuple[object, ...]:
    """Words from a command line may hold bytes that are no UTF-8, which are kept as `?`."""
    return tuple(v.encode(errors="replace").decode() if isinstance(v, str) else v for v in values)


def _insert(connection: sqlite3.Connection, row: dict[str, Any]) -> bool:
    """Whether it was new."""
    connection.execute(rows.INSERT_BOARD, row)
    is_new = connection.execute(rows.INSERT_EVALUATION, row).rowcount > 0
    if is_new:
        connection.execute(rows.INSERT_CONTENT, row)
    return is_new


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or bring them up to date."""
    connection.row_factory = sqlite3.Row
    if not _is_current(connection, path):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")  # others may be at it
        try:
            version = _version(connection)
            for migration in schema.MIGRATIONS[version:]:
                for statement in _statements(migration):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS)}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """Raises UsageError for another program's database, and for one that is newer than this harness."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != schema.APPLICATION_ID:
        raise UsageError(
            f"{path} is a database of another program, and none of evaluations. Name another file with --db or "
            "KERNELGATE_DB."
        )
    version, known = _version(connection), len(schema.MIGRATIONS)
    if version > known:
        raise UsageError(
            f"{path} has version {version} of the schema, and this kernelgate knows {known}. Update kernelgate, or "
            "name another file with --db or KERNELGATE_DB."
        )
    return version == known


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """A script's statements, one by one: executescript would end the transaction."""
    begun = ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            yield begun
            begun = ""


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _in_words(path, error) from error
    except OSError as error:
        raise HarnessError(f"The database {path} cannot be opened: {error.strerror}. {_ELSEWHERE}") from error


# Of the file that SQLite's processes share, at the least. Where it has no room SQLite tells of a failed write.
_SHARED_MEMORY_BYTES = 32 << 10


def _is_full(folder: Path) -> bool:
    """Whether a folder's disk has no room for SQLite's shared memory."""
    try:
        return shutil.disk_usage(folder).free < _SHARED_MEMORY_BYTES
    except OSError:
        return False


_ELSEWHERE = "Name another file with --db or KERNELGATE_DB, or keep nothing with --no-store."


def _in_words(path: Path, error: sqlite3.DatabaseError) -> HarnessError | UsageError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return UsageError(f"{path} is no database, or a damaged one ({error}). {_ELSEWHERE}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return HarnessError(f"Another program holds the database {path} and does not let go. {_ELSEWHERE}")
    if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and _is_full(path.parent)):
        return HarnessError(f"The disk is full, and the database {path} cannot grow. Make room. {_ELSEWHERE}")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        why = "it may not be written" if os.access(path.parent, os.R_OK) else "its folder may not be read"
        return HarnessError(f"The database {path} cannot be opened for writing: {why}. {_ELSEWHERE}")
    return HarnessError(f"The database {path} failed: {error}. {_ELSEWHERE}")
