"""Built extensions: lent to a worker before it loads a submission, and kept once it has.

A worker never reaches a cache itself. It gets copies of what the same file built before, in a folder of its own,
and the judge takes new builds from there before the worker has seen any data: neither another submission's build
nor anything that a run computed can be put where a later run finds it.

What several files may have comes from workers that ran nothing of any, one for each build (harness.judging.building).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.storage.cache import mark_used

# What harness.build.intercept makes: a folder named by a digest, with a library, what it was built from and the
# compiler's report.
_FOLDER = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"\w+_[0-9a-f]{16}\.so|kernels\.json|sources\.json")

# Of all that one run adds. What a worker left as holes of a file is written out in full here.
MAX_BYTES = 1 << 28
MAX_FOLDERS = 64
MAX_FILES = 3


def lend(cache: Path, folder: Path) -> None:
    """Copy what is in `cache` into `folder`, which is made."""
    if cache.is_dir():
        mark_used(cache)
        shutil.copytree(cache, folder)
    else:
        folder.mkdir()


def keep(folder: Path, cache: Path, only: str = "") -> None:
    """Copy what was newly built in `folder` into `cache`, or `only` the build of that digest. What else lies there is
    left alone: a folder of a worker can hold anything, links and pipes too."""
    with contextlib.suppress(OSError), _opened(folder) as root:
        built = [name for name in sorted(os.listdir(root)) if _FOLDER.fullmatch(name)][:MAX_FOLDERS]
        built = [name for name in built if only in ("", name)]
        left = MAX_BYTES
        for name in built:
            if not (cache / name).exists():
                with contextlib.suppress(OSError), _opened(name, root) as inner:
                    left -= _keep_one(inner, cache / name, left)


def read(built: Path) -> dict[str, bytes]:
    """The files of a build, by their names, to be `put` elsewhere."""
    mark_used(built)
    return {file.name: file.read_bytes() for file in sorted(built.iterdir())}


def put(cache: Path, digest: str, files: Mapping[str, bytes]) -> None:
    """Have in `cache` a build that another machine has `read`. What is there stays, and what is none is left out."""
    named_well = _FOLDER.fullmatch(digest) and all(map(_FILE.fullmatch, files))
    if named_well and len(files) == MAX_FILES and not (cache / digest).exists():
        with contextlib.suppress(OSError):
            _put(cache / digest, files)


def hand(built: Path, home: Path, inside: str) -> None:
    """Copy the build `built` into the folder `inside` of `home`, while the worker whose home it is may do there what it
    wants: nothing is followed that it puts in the way. What cannot be copied is not there."""
    with contextlib.suppress(OSError), _opened(home) as outer, _opened(inside, outer) as folder:
        scratch = f"handing-{built.name}"
        os.mkdir(scratch, 0o700, dir_fd=folder)
        with _opened(scratch, folder) as inner:
            for file in sorted(built.iterdir()):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(file.name, flags, 0o700, dir_fd=inner), "wb") as target:
                    target.write(file.read_bytes())
        os.rename(scratch, built.name, src_dir_fd=folder, dst_dir_fd=folder)


def _keep_one(inner: int, final: Path, at_most: int) -> int:
    """Copy a build of at most so many bytes; how many it had, 0 when it was not kept."""
    names = [name for name in sorted(os.listdir(inner)) if _FILE.fullmatch(name)]
    if len(names) != MAX_FILES:
        return 0
    contents = {name: _read(inner, name, at_most) for name in names}
    size = sum(len(content or b"") for content in contents.values())
    if size > at_most or None in contents.values():
        return 0
    _put(final, {name: content or b"" for name, content in contents.items()})
    return size


def _put(final: Path, contents: Mapping[str, bytes]) -> None:
    """Raises OSError."""
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="keeping-", dir=final.parent))
    try:
        for name, content in contents.items():
            (scratch / name).write_bytes(content)
        scratch.rename(final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _read(folder: int, name: str, at_most: int) -> bytes | None:
    """The content of a regular file of at most so many bytes; None where it is something else."""
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(opened, "rb") as source:
        about = os.fstat(opened)
        return source.read(at_most + 1) if stat.S_ISREG(about.st_mode) and about.st_size <= at_most else None


@contextlib.contextmanager
def _opened(path: str | Path, beside: int | None = None) -> Iterator[int]:
    """A folder's descriptor; raises OSError when `path` is a link or something else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=beside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
