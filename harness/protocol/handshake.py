"""Handshakes: the judge hands a worker one buffer at a time while it times it, and the worker says when it is back.

The worker learns its next buffer only when it has returned from the call before, and learns that a round is over only
then: it knows neither how many calls a round has nor their order. A message for each call would cost more than a short
kernel, so the two sides share a page with one word each. The judge's word has the handshake's number and its buffer.
The worker's word has the number of the last handshake that it has finished. That word only says when to go on: a wrong
one gets the worker its next buffer early, and no result.

Where kernels run on the processor's own cores, a waiting side must not occupy one: there each word comes with a byte
through a socket, which the other side sleeps on. Nothing that a worker does with its end makes the judge wait or
fault: the page cannot shrink, and the judge neither sends nor receives where that would block.
"""

from __future__ import annotations

import contextlib
import fcntl
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

# In the worker's word: it has warmed up, and waits for the first buffer after the handshake that the rest numbers.
_READY = 1 << 63

# A spinning judge looks every so often, some hundred microseconds, whether the worker still lives.
_SPINS_BETWEEN_LOOKS = 2048

# Looks at what a worker holds are this far apart: a short round, in which one would be timed, has none.
LOOK_S = 0.25

# More bytes than a side sends before the other reads them.
_BELL_BYTES = 4096


@dataclass(frozen=True)
class PeerStatus:
    """What the judge polls beside the page while it waits for a worker: the socket of its replies, whether one has
    come, and every LOOK_S what the worker holds."""

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
        """How many handshakes there were. Play tells the worker before a round, and it counts on from there."""

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
        """What the worker inherits: the page and its end of the bell."""
        assert self._theirs is not None
        return self._page_fd, self._theirs.fileno()

    def started(self) -> None:
        """The worker has inherited its end of the bell: close it here."""
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

    def wait_until_ready(self, timeout_s: float, peer: PeerStatus) -> bool:
        """Whether the worker says within `timeout_s` that it waits for its first buffer; False where `hand_out` would
        return early."""
        return self._wait_for(self.number | _READY, time.monotonic() + timeout_s, peer)

    def hand_out(self, buffers: list[int], timeout_s: float, peer: PeerStatus) -> None:
        """Hand out each of `buffers` when the worker is back from the one before, and end the round.

        Returns early when the worker replies, dies, or takes more than `timeout_s` in all: its reply, or the lack of
        one, then tells what happened. What `peer.look` raises passes through."""
        deadline = time.monotonic() + timeout_s
        for buffer in buffers:
            self._say(buffer + 1)
            if not self._wait_for(self.number, deadline, peer):
                return
        self._say(_ROUND_IS_OVER)

    def _say(self, word: int) -> None:
        self.number += 1
        self._words[0] = self.number << _SLOT_BITS | word
        if not self._spins:
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full or closed: the worker does not listen, or is gone
            self._bell.send(b"!", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _wait_for(self, word: int, deadline: float, peer: PeerStatus) -> bool:
        """Whether the worker says `word`; False when it replies instead, dies, or `deadline` passes."""
        words = self._words
        next_look = time.monotonic() + LOOK_S
        while True:
            if self._spins:
                for _ in range(_SPINS_BETWEEN_LOOKS):
                    if words[1] == word:
                        return True
                if peer.has_answered():
                    return False
            else:
                bell_fd = self._bell.fileno()
                wait_s = max(min(deadline, next_look) - time.monotonic(), 0.0)
                ready, _, _ = select.select([bell_fd, peer.socket_fd], [], [], wait_s)
                if bell_fd in ready and not self._answer():
                    return False
                if words[1] == word:
                    return True
                if peer.socket_fd in ready:
                    return False
            now = time.monotonic()
            if now > deadline:
                return False
            if now > next_look:
                peer.look()
                next_look = time.monotonic() + LOOK_S

    def _answer(self) -> bool:
        """Empty the bell, so that it can ring again; False when the worker closed its end."""
        try:
            return bool(self._bell.recv(_BELL_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True

    # ------------------------------------------------------------------ the worker's side

    def report_ready(self, number: int) -> None:
        """Say that the round after handshake `number` can begin."""
        self._words[1] = number | _READY
        if not self._spins:
            self._ring()

    def take(self, number: int) -> Iterator[int]:
        """The buffers of the round after handshake `number`, each when the call on the one before has returned."""
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
