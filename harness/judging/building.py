"""Extensions that all submissions share: each is built by a worker of its own that runs nothing of any submission.

The key is the judge's: a digest of what was asked for, and of what builds it. What is asked for decides what is built,
whoever asks: a submission that lies about its sources gets what it asked for, and what another file finds under its own
key no submission has touched.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence

from harness.build.called import written
from harness.build.entry import Entry
from harness.build.extension import Toolchain
from harness.device.toolchains import toolchain
from harness.errors import SubmissionError
from harness.isolation.sandbox import Worker
from harness.isolation.starter import Starter
from harness.paths import build_cache, emulator_cache, shared_builds
from harness.protocol.channel import BadMessage
from harness.protocol.extension import Extension
from harness.protocol.wire import Build, Built, Lent, NotBuilt, Wanted
from harness.reasons import Reason
from harness.submission import Submission

# Building may take minutes, and says so itself when it takes longer (harness.build.torch_toolchain).
BUILD_TIMEOUT_S = 1000.0

# So many are built at a time.
MOST_AT_ONCE = 2

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
    flags = (*extension.extra_cflags, *extension.extra_cuda_cflags, *extension.extra_ldflags)
    return not extension.extra_include_paths and all(map(_PLAIN_FLAG.fullmatch, flags))


class Ahead:
    """Who builds what nobody has asked for yet, by its digest. It outlives the judge that began it: what the next
    problem's first submission will ask for is built while the last one of this problem is judged."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}

    def end(self) -> None:
        """End what is built and was not asked for."""
        while self.workers:
            self.workers.popitem()[1].end()


class Builds:
    """What is built, and what was, for one device."""

    def __init__(self, device: str, starter: Starter, ahead: Ahead | None = None) -> None:
        self._device = device
        self._starter = starter
        self._toolchains: dict[bool, Toolchain] = {}
        self._ahead = ahead or Ahead()

    def begin_ahead(self, submission: Submission, *, check: bool) -> None:
        """Have built what the file will ask for, as far as that is written in it and is not there: nothing of the file
        is run."""
        own = build_cache(submission.sha256)
        for entry in self._entries(written(submission.path)[:MOST_AT_ONCE], check):
            is_there = entry.library.exists() or (own / entry.digest).exists()
            if not is_there and entry.digest not in self._ahead.workers:
                with contextlib.suppress(SubmissionError):
                    self._ahead.workers[entry.digest] = self._begin(entry, check)

    def end(self) -> None:
        """End what is built and was not asked for."""
        self._ahead.end()

    def asked_for(self, wanted: Wanted, *, check: bool) -> Order:
        """Have built what is not there."""
        return Order(self._entries(wanted.extensions, check), self._begin, check=check)

    def _entries(self, extensions: Sequence[Extension], check: bool) -> list[Entry]:
        """Those of what may be shared, each once."""
        if check not in self._toolchains:
            self._toolchains[check] = toolchain(self._device, emulator_cache(), check=check)
        shared = filter(is_shared, extensions)
        entries = [Entry.of(extension, self._toolchains[check], shared_builds()) for extension in shared]
        return list({entry.digest: entry for entry in entries}.values())

    def _begin(self, entry: Entry, check: bool) -> Worker:
        if begun := self._ahead.workers.pop(entry.digest, None):
            return begun
        worker = self._starter.take()
        try:
            worker.tell(Build(entry.extension, str(worker.build_folder()), check))
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
            with contextlib.suppress(SubmissionError):  # who asked builds it
                self._running.append((entry, self._begin(entry, self._check)))

    def _hear(self, entry: Entry, worker: Worker) -> None:
        with worker, contextlib.suppress(SubmissionError):  # who asked builds it, and says what is wrong
            worker.wait_until_ready()
            said = worker.hear(BUILD_TIMEOUT_S)
            if isinstance(said, Built) and said.refused:
                worker.require_room()
                self._refused.append(said.refused)
            elif isinstance(said, Built) and said.seconds and worker.share_build(entry.digest):
                self.seconds += said.seconds
