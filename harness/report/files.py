"""Writing a report: whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from harness.errors import UsageError


def write(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`, text as UTF-8. Nothing half written is left, and what was there stays when writing
    fails.

    What cannot be replaced is written to directly: a device, a pipe, and a file whose folder may not be written to or
    that is a mount of its own. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    target = path.resolve()  # a link stays a link
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        target.write_bytes(data)
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, _mode(target))
        _replace(Path(name), target)
    except BaseException:
        os.unlink(name)
        raise


def _replace(new: Path, target: Path) -> None:
    try:
        os.replace(new, target)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        target.write_bytes(new.read_bytes())
        new.unlink()


def _mode(path: Path) -> int:
    """The permissions that a file at `path` has, or would have been made with."""
    if path.exists():
        return path.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def require_writable(path: Path, option: str) -> None:
    """Raises UsageError where a report could not be written to `path`. What is there already is left as it is."""
    target = path.resolve()
    if target.is_dir():
        raise UsageError(f"{option} takes a file, and {path} is a folder; name a file in it.")
    if not target.parent.is_dir():
        raise UsageError(
            f"{option} {path} cannot be written: there is no folder {target.parent}. Make it, or name another."
        )
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise UsageError(f"{option} {path} cannot be written: you may not write there. Name another file.")
