"""Which submissions were saved since they were last looked at."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.submission import find_submissions

if TYPE_CHECKING:
    import asyncio

# Beside what the system tells, this often it is looked at whether anything was saved: some file systems tell nothing.
LOOK_MS = 1000

MISSING = (
    "'eval.py watch' learns from watchfiles that a file was saved, which is not installed here. Install it "
    "(pip install 'kernelgate[watch]')."
)


class Saves:
    """The submissions that a path names, and their contents when they were last looked at."""

    def __init__(self, path: Path, problem: Path | None) -> None:
        """`path` is a file or a folder; of a folder's files that of the `problem` is none."""
        self._path = path
        self._problem = problem
        self._seen: dict[Path, tuple[tuple[int, ...], str]] = {}

    def changed(self) -> list[Path]:
        """Files whose content is another than at the last look. One that is not there now is waited for: editors put a
        new file in the place of the old."""
        return [path for path in self._files() if self._is_new(path)]

    def forget(self, path: Path) -> None:
        """Have `changed` name it again, as soon as it is there."""
        self._seen.pop(path, None)

    def _files(self) -> list[Path]:
        try:
            return find_submissions([self._path], [self._problem] if self._problem else [])
        except UsageError:
            return []

    def _is_new(self, path: Path) -> bool:
        try:
            status = path.stat()
            mark = status.st_mtime_ns, status.st_size, status.st_ino
            before, digest = self._seen.get(path, ((), ""))
            if mark == before:
                return False
            now = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            return False
        self._seen[path] = mark, now
        return now != digest


def require_watchfiles() -> None:
    """Raises UsageError where it is not installed."""
    try:
        import watchfiles  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(MISSING) from error


async def looks(path: Path, stop: asyncio.Event) -> AsyncIterator[None]:
    """Comes when something in the path's folder was written, several writes at once as one, and every LOOK_MS. A link
    is also watched where it leads."""
    from watchfiles import awatch

    folders = {path} if path.is_dir() else {path.absolute().parent, path.resolve().parent}
    async for _ in awatch(
        *folders,
        watch_filter=None,
        recursive=path.is_dir(),
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        stop_event=stop,
    ):
        yield
