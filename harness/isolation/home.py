"""A worker's folders and files: its home, what it prints, the copy of a submission and its builds."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.isolation import builds
from harness.paths import build_cache, shared_builds
from harness.storage import cache, disk

OUTPUT_TAIL_BYTES = 4000

# What a worker printed is passed on up to here, its end: a submission may print gigabytes.
PRINTED_BYTES = 1 << 20

_PREFIX = "kernelgate-worker-"

# A folder that nobody holds may be one that is just being made; one of this age is of a judge that was killed.
ABANDONED_S = 3600.0

# What torch prints below every error of CUDA's. The error stands above.
_ADVICE = (
    "CUDA kernel errors might be asynchronously reported",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING",
    "Compile with `TORCH_USE_CUDA_DSA`",
    "Search for `cuda",
)


class Home:
    """A folder of one worker, made here and removed by `remove`."""

    def __init__(self) -> None:
        """Raises HarnessError when the disk has too little room."""
        folder = disk.temporary_folder()
        _remove_abandoned(folder)
        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX, dir=folder)))
        self._held = contextlib.ExitStack()
        with contextlib.suppress(OSError):  # a file system without locks: nobody removes what cannot be held
            self._held.enter_context(_holding(self.path))
        self.log = os.open(self.path / "output", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        """What the worker prints. The file stays open: a submission can put something else under its name."""
        self._printed_at_the_end: tuple[int, bytes] = (0, b"")
        self.work = self.path / "work"
        """The folder that the worker starts in."""
        self.work.mkdir()
        cache.mark_used(self.work)

    def environment(self, compiled: Path | None) -> dict[str, str]:
        """Variables that name the worker's own folders. Compilers write below `compiled`, or in its own cache."""
        own = self._folder("cache")
        return {
            "HOME": self._folder("home"),
            "TMPDIR": self._folder("tmp"),
            "XDG_CACHE_HOME": own,
            "CUDA_CACHE_PATH": own,
            "TORCH_EXTENSIONS_DIR": own,
            "TORCHINDUCTOR_CACHE_DIR": str((compiled or Path(own)) / "inductor"),
            "TRITON_CACHE_DIR": str((compiled or Path(own)) / "triton"),
        }

    def place(self, name: str, data: bytes) -> Path:
        """Write a file that the worker can read; returns its path."""
        path = Path(self._folder("submission")) / name
        path.write_bytes(data)
        return path

    def lend_builds(self, sha256: str) -> Path:
        """Copy in what the file of this hash built before; returns the folder for builds."""
        builds.lend(build_cache(sha256), self.path / "build")
        return self.path / "build"

    def keep_builds(self, sha256: str) -> None:
        """Copy new builds to the cache, for the next worker that loads the file of this hash."""
        builds.keep(self.path / "build", build_cache(sha256))

    def build_folder(self) -> Path:
        """An empty folder for a build, made here."""
        return Path(self._folder("build"))

    def share_build(self, digest: str) -> bool:
        """Copy the one build to the cache that all files share; whether it is there. Only of a home whose worker ran
        nothing of a submission."""
        builds.keep(self.path / "build", shared_builds(), digest)
        return (shared_builds() / digest).exists()

    def hand_build(self, digest: str) -> None:
        """Copy in a build of the shared cache."""
        cache.mark_used(shared_builds() / digest)
        builds.hand(shared_builds() / digest, self.path, "build")

    def output_tail(self, lines: int = 3) -> str:
        """The last lines that the worker printed, as the end of a message, without torch's advice; empty for none."""
        try:
            start = max(os.fstat(self.log).st_size - OUTPUT_TAIL_BYTES, 0)
            text = os.pread(self.log, OUTPUT_TAIL_BYTES, start).decode(errors="replace").strip()
        except OSError:
            return ""
        told = [line.strip() for line in text.splitlines() if not line.strip().startswith(_ADVICE)]
        last = [line for line in told if line][-lines:]
        return f" It last printed: {' / '.join(last)[:500]}" if last else ""

    def printed_bytes(self) -> int:
        """How much the worker has printed."""
        if self.log >= 0:
            return os.fstat(self.log).st_size
        first, kept = self._printed_at_the_end
        return first + len(kept)

    def printed_since(self, start: int) -> bytes:
        """What the worker printed behind the first `start` bytes, or the last PRINTED_BYTES of that; also after
        `remove`."""
        if self.log < 0:
            first, kept = self._printed_at_the_end
            return kept[max(start - first, 0) :]
        try:
            first = max(start, self.printed_bytes() - PRINTED_BYTES)
            return os.pread(self.log, PRINTED_BYTES, first)
        except OSError:
            return b""

    def free_bytes(self) -> int:
        """Room on its disk, asked by the open file: at the level `basic` a worker can remove its own folder."""
        about = os.fstatvfs(self.log)
        return about.f_bavail * about.f_frsize

    def has_written(self, size: int) -> bool:
        """Whether at least `size` bytes lie in it. Walks through all of it."""
        return disk.folder_bytes(self.path) >= size

    def remove(self) -> None:
        """Close the log and remove the folder, whatever the worker made of it."""
        if self.log >= 0:
            printed = self.printed_since(0)
            self._printed_at_the_end = (self.printed_bytes() - len(printed), printed)
            os.close(self.log)
            self._held.close()
        self.log = -1
        _remove(self.path)

    def _folder(self, name: str) -> str:
        (self.path / name).mkdir(exist_ok=True)
        return str(self.path / name)


@functools.cache
def _remove_abandoned(folder: Path) -> None:
    """Once in a process: remove this user's homes in `folder` whose judge was killed. A judge that lives holds its
    own."""
    for home in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, held, or no folder
            about = home.lstat()
            if about.st_uid == os.geteuid() and time.time() - about.st_mtime > ABANDONED_S:
                with _holding(home):
                    _remove(home)


@contextlib.contextmanager
def _holding(home: Path) -> Iterator[None]:
    """Raises OSError where it cannot be locked, as when another process holds it."""
    opened = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def _remove(folder: Path) -> None:
    """Remove a folder that a submission could write to, however deep and whatever its permissions."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*command, "--", str(folder)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
