"""Where workers come from: forked or started as programs, on demand or ahead."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from harness.errors import HarnessError, Stopped
from harness.isolation.launch import Zygote
from harness.isolation.levels import Isolation
from harness.isolation.sandbox import Worker

# By device: what `load_ahead` has started, and no Starter has taken; with `keep_zygotes` also what one has given back.
_loaded_ahead: dict[str, Zygote] = {}
_is_keeping = False


def forks(device: str, isolation: Isolation) -> bool:
    """Whether workers are forked, which takes milliseconds, or are programs of their own."""
    return isolation.level != "namespaces" and device != "cuda"


def load_ahead(device: str, isolation: Isolation) -> None:
    """Start the process that this process's first Starter for `device` forks workers from, while nobody knows yet what
    will be judged. Nothing where workers are programs. Raises HarnessError when it cannot be started."""
    if forks(device, isolation) and device not in _loaded_ahead:
        _loaded_ahead[device] = Zygote(device)


def keep_zygotes() -> None:
    """Have this process's Starters leave what they fork workers from to the next one for that device. A zygote holds
    nothing of what was judged, and one that a submission has stopped or limited is not used again."""
    global _is_keeping
    _is_keeping = True


@contextlib.contextmanager
def kept_zygotes() -> Iterator[None]:
    """`keep_zygotes` while it is open, and then none is kept, unless they were kept before."""
    global _is_keeping
    if _is_keeping:
        yield
        return
    _is_keeping = True
    try:
        yield
    finally:
        _is_keeping = False
        end_zygotes()


def end_zygotes() -> None:
    """End those that no Starter has."""
    while _loaded_ahead:
        _loaded_ahead.popitem()[1].end()


class Starter:
    """Starts workers for one device; some of them ahead, while the judge itself still loads."""

    def __init__(self, device: str, arena_fd: int, isolation: Isolation, readable: Sequence[Path] = ()) -> None:
        """`readable` are files beside the harness's own that workers need: the problem's."""
        self._device = device
        self._arena_fd = arena_fd
        self._isolation = isolation
        self._readable = readable
        self._waiting: dict[bool, list[Worker]] = {False: [], True: []}
        self._next: list[Worker] = []
        self._zygote: Zygote | None = None

    def start_ahead(self, workers: int, compilers: int) -> None:
        """Start `workers`, and `compilers` more that keep the compile cache."""
        for keeps, count in ((False, workers), (True, compilers)):
            self._waiting[keeps] += [self._start(keeps) for _ in range(count)]

    def take(self, *, keeps_compile_cache: bool = False) -> Worker:
        """A worker that nobody else has, which may still be loading."""
        waiting = self._waiting[keeps_compile_cache]
        while waiting:
            worker = waiting.pop(0)
            if worker.exists:
                return worker
            worker.end()  # its zygote was killed before it forked this one
        return self._start(keeps_compile_cache)

    def take_builder(self) -> Worker:
        """A worker that will build and nothing else. Compilers need no GPU: to reach it would take seconds of a
        processor, and some of its memory."""
        if self._device != "cuda":
            return self.take()
        return Worker("cpu", self._arena_fd, self._isolation, self._readable)

    def start_next(self, count: int) -> None:
        """Start the workers of the next `count` submissions together, once none is left of those started before;
        `take_next` gives them."""
        if not self._next:
            self._next = [self.take() for _ in range(count)]

    def require_next(self) -> None:
        """Wait until these have loaded; without those that cannot be started."""
        for worker in list(self._next):
            try:
                worker.wait_until_ready()
            except (HarnessError, Stopped):  # the next submission meets what stands in the way
                self._next.remove(worker)

    def take_next(self) -> Worker | None:
        """One of them, if there is one."""
        return self._next.pop(0) if self._next else None

    def _start(self, keeps_compile_cache: bool) -> Worker:
        return Worker(
            self._device, self._arena_fd, self._isolation, self._readable,
            zygote=None if keeps_compile_cache else self._sound_zygote(), keeps_compile_cache=keeps_compile_cache,
        )  # fmt: skip

    @property
    def forks(self) -> bool:
        """As the function of this name."""
        return forks(self._device, self._isolation)

    def _sound_zygote(self) -> Zygote | None:
        """None where workers are programs."""
        if not self.forks:
            return None
        self._zygote = self._zygote or _loaded_ahead.pop(self._device, None)
        if self._zygote and not self._zygote.is_sound:
            self._zygote.end()
            self._zygote = None
        self._zygote = self._zygote or Zygote(self._device)
        return self._zygote

    def end(self, kept: Collection[Worker] = ()) -> None:
        """End every worker of this process but those `kept`."""
        if self._zygote and not _is_keeping:  # first: otherwise ending waits for workers that it has yet to fork
            self._zygote.end()
            self._zygote = None
        Worker.end_all(kept)
        if self._zygote:
            _loaded_ahead[self._device], self._zygote = self._zygote, None
