"""Handing buffers to a worker one at a time, while it is being timed.

A worker learns which buffer to run next when it has returned from the call before, and that a round is over
when it is: it knows neither how many calls a round has nor their order. A message for each call would cost
more than a short kernel, so the two sides share a page with a word each. The judge's word says which turn
this is and which buffer it is for; the worker's says how many turns it has returned from. What the worker
writes is only when to go on: a wrong word gets it the next buffer early, and no result.

Where kernels run on the cores themselves, waiting must not take one: there each word comes with a byte through
a socket to sleep on. Nothing that a worker does with its end can make the judge wait or fault: the page cannot
be shrunk, and the judge neither sends nor receives where that would block.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SLOT_BITS = 32
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_ROUND_IS_OVER = 0

# In the worker's word: it has warmed up and waits for the first buffer after the turn that the rest names.
_READY = 1 << 63

# How often a waiting judge looks whether the worker still lives: some hundred microseconds.
_SPINS_BETWEEN_LOOKS = 2048

# A round that takes so long is no short one, in which every look would be timed.
LOOK_S = 0.25

# More than a side rings before the other looks.
_BELL_BYTES = 4096


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Either side is in here while it takes part in rounds: collecting would take part of one, as `timeit` says too,
    and 2 ms to name 256 results, most of which was that."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(frozen=True)
class Other:
    """What the judge minds beside the page while it waits for a worker: the socket that it answers through, whether
    it has, and a look at what it holds every LOOK_S."""

    socket_fd: int
    has_answered: Callable[[], bool]
    look: Callable[[], None]


class Handshake:
    """The shared page. The judge makes it with `create`; its worker has the other end's `fds`."""

    def __init__(self, page_fd: int, bell: socket.socket, *, spins: bool) -> None:
        self._page_fd = page_fd
        self._bell = bell
        self._theirs: socket.socket | None = None
        self._spins = spins
        self._map = mmap.mmap(page_fd, mmap.PAGESIZE)
        self._words = memoryview(self._map).cast("Q")  # aligned words: each is written and read whole
        self.number = 0
        """Handshake so far; the worker is told at the beginning of a round, and counts on from there."""

    @classmethod
    def create(cls, *, spins: bool) -> Handshake:
        page_fd = os.memfd_create("kernelgate-handshake", os.MFD_ALLOW_SEALING)
        os.ftruncate(page_fd, mmap.PAGESIZE)
        fcntl.fcntl(page_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        ours, theirs = socket.socketpair()
        handshake = cls(page_fd, ours, spins=spins)
        handshake._theirs = theirs
        return handshake

    @property
    def fds(self) -> tuple[int, int]:
        """What the worker has to inherit. `started` closes them here."""
        assert self._theirs is not None
        return self._page_fd, self._theirs.fileno()

    def started(self) -> None:
        """The worker has its end: give it up."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def close(self) -> None:
        self._words.release()
        self._map.close()
        os.close(self._page_fd)
        self._bell.close()
        self.started()

    # ------------------------------------------------------------------ the judge's side

    def wait_until_ready(self, timeout_s: float, other: Other) -> bool:
        """Whether the worker waits for the first buffer; False as in `hand_out`."""
        return self._wait_for(self.number | _READY, time.monotonic() + timeout_s, other)

    def hand_out(self, buffers: list[int], timeout_s: float, other: Other) -> None:
        """Hand each of `buffers` out when the worker is back from the one before, and end the round.

        Returns early when the worker says something else or when `timeout_s` is over: its reply, or that there is
        none, then says what happened. What `other.look` raises passes through."""
        deadline = time.monotonic() + timeout_s
        for buffer in buffers:
            self._say(buffer + 1)
            if not self._wait_for(self.number, deadline, other):
                return
        self._say(_ROUND_IS_OVER)

    def _say(self, word: int) -> None:
        self.number += 1
        self._words[0] = self.number << _SLOT_BITS | word
        if not self._spins:
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full or closed: then the worker does not listen, or is gone
            self._bell.send(b"!", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _wait_for(self, word: int, deadline: float, other: Other) -> bool:
        """Whether the worker says `word`; False when it spoke otherwise, died or took too long."""
        words = self._words
        next_look = time.monotonic() + LOOK_S
        while True:
            if self._spins:
                for _ in range(_SPINS_BETWEEN_LOOKS):
                    if words[1] == word:
                        return True
                if other.has_answered():
                    return False
            else:
                bell_fd = self._bell.fileno()
                wait_s = max(min(deadline, next_look) - time.monotonic(), 0.0)
                ready, _, _ = select.select([bell_fd, other.socket_fd], [], [], wait_s)
                if bell_fd in ready and not self._answer():
                    return False
                if words[1] == word:
                    return True
                if other.socket_fd in ready:
                    return False
            now = time.monotonic()
            if now > deadline:
                return False
            if now > next_look:
                other.look()
                next_look = time.monotonic() + LOOK_S

    def _answer(self) -> bool:
        """Take what the bell rang, so that it can ring again; False when the worker closed its end."""
        try:
            return bool(self._bell.recv(_BELL_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True

    # ------------------------------------------------------------------ the worker's side

    def report_ready(self, number: int) -> None:
        """Say that the round after turn `number` can begin."""
        self._words[1] = number | _READY
        if not self._spins:
            self._ring()

    def take(self, number: int) -> Iterator[int]:
        """The buffers of a round that begins after turn `number`, each when the one before was returned from."""
        words = self._words
        while True:
            number += 1
            while words[0] >> _SLOT_BITS != number:
                if not self._spins and not self._bell.recv(_BELL_BYTES):
                    return  # the judge is gone
            word = words[0] & _SLOT_MASK
            if word == _ROUND_IS_OVER:
                return
            yield word - 1
            words[1] = number
            if not self._spins:
                self._ring()
