"""Writing a report: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import UsageError


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, as UTF-8. Nothing half written is left, and what was there stays when writing fails.

    A device or a pipe is written to directly: it holds nothing that could be kept. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    target = path.resolve()  # a link stays a link
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _mode(path: Path) -> int:
    """The permissions that a file at `path` has, or would have been made with."""
    if path.exists():
        return path.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def require_writable(path: Path, option: str) -> None:
    """Raises UsageError where a report could not be written to `path`. What is there already is left as it is."""
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"{option} takes a file, and {path} is a folder; name a file in it.")
    if not folder.is_dir():
        raise UsageError(f"{option} {path} cannot be written: there is no folder {folder}. Make it, or name another.")
    into = path if path.exists() and not path.is_file() else folder
    if not os.access(into, os.W_OK):
        raise UsageError(f"{option} {path} cannot be written: you may not write there. Name another file.")
