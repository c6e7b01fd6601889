"""Built extensions: lent to a worker before it loads a submission, and kept once it has.

A worker never reaches the cache itself. It gets copies of what the same file built before, in a folder of its own,
and the judge takes new builds from there before the worker has seen any data: neither another submission's build
nor anything that a run computed can be put where a later run finds it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What harness.build.intercept makes: a folder named by a digest, with a library and the compiler's report.
_FOLDER = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"\w+_[0-9a-f]{16}\.so|kernels\.json")

MAX_BYTES = 1 << 28
MAX_FOLDERS = 64
MAX_FILES = 2


def lend(cache: Path, folder: Path) -> None:
    """Copy what is in `cache` into `folder`, which is made."""
    if cache.is_dir():
        shutil.copytree(cache, folder)
    else:
        folder.mkdir()


def keep(folder: Path, cache: Path) -> None:
    """Copy what was newly built in `folder` into `cache`. What else lies there is left alone: a folder of a
    worker can hold anything, links and pipes too."""
    with contextlib.suppress(OSError), _opened(folder) as root:
        built = [name for name in sorted(os.listdir(root)) if _FOLDER.fullmatch(name)][:MAX_FOLDERS]
        for name in built:
            if not (cache / name).exists():
                with contextlib.suppress(OSError), _opened(name, root) as inner:
                    _keep_one(inner, cache / name)


def _keep_one(inner: int, final: Path) -> None:
    names = [name for name in sorted(os.listdir(inner)) if _FILE.fullmatch(name)]
    if len(names) != MAX_FILES:
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="keeping-", dir=final.parent))
    try:
        if all(_copy(inner, name, scratch / name) for name in names):
            scratch.rename(final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _copy(folder: int, name: str, target: Path) -> bool:
    """Copy a regular file of bounded size; whether it was one."""
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(opened, "rb") as source:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return False
        data = source.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return False
    target.write_bytes(data)
    return True


@contextlib.contextmanager
def _opened(path: str | Path, beside: int | None = None) -> Iterator[int]:
    """A folder's descriptor; raises OSError when `path` is a link or something else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=beside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
