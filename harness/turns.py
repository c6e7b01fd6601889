"""Handing slots to a worker one at a time, while it is being timed.

A worker learns which slot to run next when it has returned from the call before, and that a round is over
when it is: it knows neither how many calls a round has nor their order. A message for each call would cost
more than a short kernel, so the two sides share a page with a word each. The judge's word says which turn
this is and which slot it is for; the worker's says how many turns it has returned from. What the worker
writes is only when to go on: a wrong word gets it the next slot early, and no result.

Where kernels run on the cores themselves, waiting must not take one: there each word comes with an
eventfd(2) to sleep on.
"""

from __future__ import annotations

import mmap
import os
import select
import time
from collections.abc import Callable, Iterator

_SLOT_BITS = 32
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_ROUND_IS_OVER = 0

# In the worker's word: it has warmed up and waits for the first slot after the turn that the rest names.
_READY = 1 << 63

# How often a waiting judge looks whether the worker still lives: some hundred microseconds.
_SPINS_BETWEEN_LOOKS = 2048


class Turns:
    """The shared page. The judge makes it with `create` and its worker opens it with `open`."""

    def __init__(self, page_fd: int, go_fd: int, done_fd: int, *, spins: bool) -> None:
        self.fds = (page_fd, go_fd, done_fd)
        self._go_fd, self._done_fd = go_fd, done_fd
        self._spins = spins
        self._map = mmap.mmap(page_fd, mmap.PAGESIZE)
        self._words = memoryview(self._map).cast("Q")  # aligned words: each is written and read whole
        self.number = 0
        """Turns so far; the worker is told at the beginning of a round, and counts on from there."""

    @classmethod
    def create(cls, *, spins: bool) -> Turns:
        page_fd = os.memfd_create("kernelgate-turns")
        os.ftruncate(page_fd, mmap.PAGESIZE)
        return cls(page_fd, os.eventfd(0), os.eventfd(0), spins=spins)

    @classmethod
    def open(cls, text: str, *, spins: bool) -> Turns:
        """From the file descriptors that `str` gave, inherited by this process."""
        page_fd, go_fd, done_fd = map(int, text.split(","))
        return cls(page_fd, go_fd, done_fd, spins=spins)

    def __str__(self) -> str:
        return ",".join(map(str, self.fds))

    def close(self) -> None:
        self._words.release()
        self._map.close()
        for fd in self.fds:
            os.close(fd)

    # ------------------------------------------------------------------ the judge's side

    def wait_until_ready(self, timeout_s: float, socket_fd: int, something_came: Callable[[], bool]) -> bool:
        """Whether the worker waits for the first slot; False as in `hand_out`."""
        return self._wait_for(self.number | _READY, time.monotonic() + timeout_s, socket_fd, something_came)

    def hand_out(self, slots: list[int], timeout_s: float, socket_fd: int, something_came: Callable[[], bool]) -> None:
        """Hand each of `slots` out when the worker is back from the one before, and end the round.

        Returns early when the worker says something (`something_came`, on `socket_fd`) or when `timeout_s` is
        over: its reply, or that there is none, then says what happened."""
        deadline = time.monotonic() + timeout_s
        for slot in slots:
            self._say(slot + 1)
            if not self._wait_for(self.number, deadline, socket_fd, something_came):
                return
        self._say(_ROUND_IS_OVER)

    def _say(self, word: int) -> None:
        self.number += 1
        self._words[0] = self.number << _SLOT_BITS | word
        if not self._spins:
            os.eventfd_write(self._go_fd, 1)

    def _wait_for(self, word: int, deadline: float, socket_fd: int, something_came: Callable[[], bool]) -> bool:
        """Whether the worker says `word`; False when it spoke otherwise, died or took too long."""
        words = self._words
        while True:
            if self._spins:
                for _ in range(_SPINS_BETWEEN_LOOKS):
                    if words[1] == word:
                        return True
                if something_came():
                    return False
            else:
                ready, _, _ = select.select([self._done_fd, socket_fd], [], [], max(deadline - time.monotonic(), 0.0))
                if self._done_fd in ready:
                    os.eventfd_read(self._done_fd)
                if words[1] == word:
                    return True
                if socket_fd in ready:
                    return False
            if time.monotonic() > deadline:
                return False

    # ------------------------------------------------------------------ the worker's side

    def report_ready(self, number: int) -> None:
        """Say that the round after turn `number` can begin."""
        self._words[1] = number | _READY
        if not self._spins:
            os.eventfd_write(self._done_fd, 1)

    def take(self, number: int) -> Iterator[int]:
        """The slots of a round that begins after turn `number`, each when the one before was returned from."""
        words = self._words
        while True:
            number += 1
            while words[0] >> _SLOT_BITS != number:
                if not self._spins:
                    os.eventfd_read(self._go_fd)
            word = words[0] & _SLOT_MASK
            if word == _ROUND_IS_OVER:
                return
            yield word - 1
            words[1] = number
            if not self._spins:
                os.eventfd_write(self._done_fd, 1)
