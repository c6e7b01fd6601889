"""Extensions that all submissions share: each is built by a worker of its own that runs nothing of any submission.

The key is the judge's: a digest of what was asked for, and of what builds it. What is asked for decides what is built,
whoever asks: a submission that lies about its sources gets what it asked for, and what another file finds under its own
key no submission has touched.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from functools import partial

from harness import memory
from harness.build.called import written
from harness.build.entry import Entry
from harness.build.extension import Toolchain
from harness.device.toolchains import architecture_of, toolchain
from harness.errors import Stopped, SubmissionError
from harness.isolation.sandbox import PROCESSORS, Worker
from harness.isolation.starter import Starter
from harness.paths import build_cache, emulator_cache, shared_builds
from harness.protocol.channel import BadMessage
from harness.protocol.extension import Extension
from harness.protocol.wire import Build, Built, Lent, NotBuilt, Reply, Wanted
from harness.reasons import Reason
from harness.submission import Submission

# Building may take minutes, and says so itself when it takes longer (harness.build.torch_toolchain).
BUILD_TIMEOUT_S = 1000.0

# So many are built at a time.
MOST_AT_ONCE = 2

# So many times as many are kept for who will ask, each by the process that built it.
MOST_KEPT = 8

# What must be free for each further build ahead: two compilers take some 0.8 GiB each.
ROOM_BYTES = 4 << 30

# What is built ahead gives way to who judges and who is timed.
NICENESS = 10

# Flags that have compilers compile. Others may have them run a program (-wrapper, -fplugin, -B), or read files beside
# the machine's own.
_PLAIN_FLAG = re.compile(
    r"-O\w*|-D\w.*|-U\w+|-std=[\w+]+|-g\d?|-w|-W[\w=-]*(?<!,)|-m[\w=.+-]+|-f(?!plugin)[\w=-]+|-l\w+"
    r"|--?(use_fast_math|lineinfo|maxrregcount=\d+|ftz=\w+|fmad=\w+|prec-(div|sqrt)=\w+|extra-device-vectorization"
    r"|expt-(relaxed-constexpr|extended-lambda)|extended-lambda|restrict|threads=?\d*)"
    r"|-(arch|code)=\w+|-gencode=?[\w=,]*|-Xptxas=?|-Xptxas[=,][\w=,-]+|arch=\w+,code=\w+",
    re.DOTALL,
)


def is_shared(extension: Extension) -> bool:
    """Whether it is built for all who ask for it: by compilers alone, from its sources and the machine's headers."""
    if extension.extra_include_paths or extension.reads_by_path:
        return False
    flags = (*extension.extra_cflags, *extension.extra_cuda_cflags, *extension.extra_ldflags)
    return all(map(_PLAIN_FLAG.fullmatch, flags))


def most_ahead() -> int:
    """So many are built at a time ahead here: each has two compilers, and judge and submission keep two processors."""
    return max(MOST_AT_ONCE, (len(PROCESSORS) - 2) // 2)


class Ahead:
    """Who builds what nobody has asked for yet, `most` at a time. It outlives the judge that began it: what the next
    problem's first submission will ask for is built while the last one of this problem is judged."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self.most_kept = MOST_KEPT * most
        self.looked_at: set[tuple[str, str]] = set()
        """Devices and digests of submissions whose builds were begun, or were there."""
        self._workers: dict[str, tuple[Worker, str]] = {}
        """By digests of builds, with the digest of the submission that they were begun for."""

    @property
    def workers(self) -> list[Worker]:
        """Those that build, and those that have built."""
        return [worker for worker, _ in self._workers.values()]

    @property
    def has_room(self) -> bool:
        """Whether one more may begin."""
        running = sum(not worker.has_answered for worker in self.workers)
        if len(self._workers) >= self.most_kept:
            return False
        return not running or (running < self._most and memory.free_bytes() >= running * ROOM_BYTES)

    def add(self, digest: str, submission: Submission, begin: Callable[[], Worker]) -> None:
        """Begin the build of that digest, where it is not begun. What `begin` raises is the submission's to meet."""
        if digest not in self._workers:
            with contextlib.suppress(Stopped):
                self._workers[digest] = begin(), submission.sha256

    def take(self, digest: str) -> Worker | None:
        """Who builds it, for who has asked for it."""
        return self._workers.pop(digest, (None, ""))[0]

    def finish(self) -> None:
        """Wait for all that is built, and keep it for who will ask."""
        while self._workers:
            digest, (worker, _) = self._workers.popitem()
            with worker, contextlib.suppress(Stopped):  # who asks builds it
                _shared_s(digest, worker, _said(worker))

    def end(self, begun_for: Submission | None = None) -> None:
        """End what is built and was not asked for, of all or of what was begun for one submission."""
        for digest, (worker, sha256) in list(self._workers.items()):
            if begun_for is None or begun_for.sha256 == sha256:
                del self._workers[digest]
                worker.end()


class Builds:
    """What is built, and what was, for one device."""

    def __init__(self, device: str, starter: Starter, ahead: Ahead | None = None, architecture: str = "") -> None:
        """`architecture` is that of a GPU elsewhere, and empty for the one here."""
        self._device = device
        self._architecture = architecture
        self._starter = starter
        self._toolchains: dict[bool, Toolchain] = {}
        self._ahead = ahead or Ahead()

    def begin_ahead(self, submission: Submission, *, check: bool, gently: bool = False) -> None:
        """Have built what the file will ask for, as far as that is written in it and is not there: nothing of the file
        is run. `gently` for what nobody waits for."""
        begin = self._begin_gently if gently else self._begin
        own = build_cache(submission.sha256)
        for entry in self.written(submission, check=check):
            if not entry.library.exists() and not (own / entry.digest).exists():
                self._ahead.add(entry.digest, submission, partial(begin, entry, check))

    def written(self, submission: Submission, *, check: bool) -> list[Entry]:
        """What the file will ask for, as far as that is written in it."""
        return self._entries(written(submission.path)[:MOST_AT_ONCE], check)

    def end(self, begun_for: Submission | None = None) -> None:
        """End what is built and was not asked for, of all or of what was begun for one submission."""
        self._ahead.end(begun_for)

    def asked_for(self, wanted: Wanted, *, check: bool) -> Order:
        """Have built what is not there."""
        return Order(self._entries(wanted.extensions, check), self._begin, check=check)

    def _entries(self, extensions: Sequence[Extension], check: bool) -> list[Entry]:
        """Those of what may be shared, each once."""
        if check not in self._toolchains:
            made = toolchain(self._device, emulator_cache(), check=check, architecture=self._architecture)
            self._toolchains[check] = made
        shared = filter(is_shared, extensions)
        entries = [Entry.of(extension, self._toolchains[check], shared_builds()) for extension in shared]
        return list({entry.digest: entry for entry in entries}.values())

    def _begin_gently(self, entry: Entry, check: bool) -> Worker:
        worker = self._begin(entry, check)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, worker.pid, NICENESS)  # its compilers are started with it
        return worker

    def _begin(self, entry: Entry, check: bool) -> Worker:
        if begun := self._ahead.take(entry.digest):
            return begun
        worker = self._starter.take_builder()
        try:
            folder, architecture = str(worker.home.build_folder()), self._architecture or architecture_of(self._device)
            worker.tell(Build(entry.extension, folder, self._device, check, architecture))
        except BadMessage as error:
            worker.end()
            raise SubmissionError(Reason.BAD_MESSAGE, f"A build that cannot be asked for: {error}.") from None
        return worker


class Order:
    """What one submission has asked for at once."""

    def __init__(self, entries: Sequence[Entry], begin: Callable[[Entry, bool], Worker], *, check: bool) -> None:
        self.seconds = 0.0
        self.is_new = False
        """Whether anything of it had to be built."""
        self._entries = entries
        self._begin = begin
        self._check = check
        self._left = [entry for entry in entries if not entry.library.exists()]
        self._running: list[tuple[Entry, Worker]] = []
        self._refused: list[NotBuilt] = []
        self._start_some()

    @property
    def has_progressed(self) -> bool:
        """Whether `finish` has something to do that needs no waiting."""
        return not self._running or any(worker.has_answered for _, worker in self._running)

    def finish(self, meanwhile: Callable[[Callable[[], bool]], None], hand: Callable[[str], None]) -> Lent:
        """Wait for the builds, with `meanwhile` doing something else until what it is given says that one is there;
        `hand` gives each to who asked. Raises HarnessError when the disk has too little room."""
        try:
            while self._running:
                meanwhile(lambda: self.has_progressed)
                self._hear(*self._running.pop(0))
                self._start_some()
        finally:
            self.end()
        for entry in self._entries:
            if entry.library.exists():
                hand(entry.digest)
        return Lent(self._refused)

    def end(self) -> None:
        """End what still builds."""
        while self._running:
            self._running.pop()[1].end()

    def _start_some(self) -> None:
        while self._left and len(self._running) < MOST_AT_ONCE:
            entry = self._left.pop(0)
            self.is_new = True
            with contextlib.suppress(Stopped):  # who asked builds it
                self._running.append((entry, self._begin(entry, self._check)))

    def _hear(self, entry: Entry, worker: Worker) -> None:
        with worker, contextlib.suppress(Stopped):  # who asked builds it, and says what is wrong
            said = _said(worker)
            if isinstance(said, Built) and said.refused:
                worker.require_room()
                self._refused.append(said.refused)
            else:
                self.seconds += _shared_s(entry.digest, worker, said)


def _said(worker: Worker) -> Reply:
    """What a worker says of the build that it was told; raises SubmissionError as `Worker.hear` does."""
    worker.wait_until_ready()
    return worker.hear(BUILD_TIMEOUT_S)


def _shared_s(digest: str, worker: Worker, said: Reply) -> float:
    """Keep what it has built for all; the seconds that this took, 0 where there is no library."""
    return said.seconds if isinstance(said, Built) and said.seconds and worker.home.share_build(digest) else 0.0
