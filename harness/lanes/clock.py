"""Times are taken one at a time, with nothing of this process's lanes beside them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Clock:
    """Who judges shares the machine with others that judge; who times has it alone, and nobody begins meanwhile."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._judging = 0
        self._waiting = 0
        self._timed: Turn | None = None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """One submission's stay on the machine; waits while another is timed, or waits for that."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._timed and not self._waiting)
            self._judging += 1
        turn = Turn(self)
        try:
            yield turn
        finally:
            async with self._changed:
                if self._timed is turn:
                    self._timed = None
                else:
                    self._judging -= 1
                self._changed.notify_all()

    async def _alone(self, turn: Turn) -> None:
        async with self._changed:
            self._judging -= 1
            self._waiting += 1
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: not self._timed and not self._judging)
                self._timed = turn
            except BaseException:
                self._judging += 1
                raise
            finally:
                self._waiting -= 1
                self._changed.notify_all()


class Turn:
    """One submission's stay."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def alone(self) -> None:
        """Wait until everything else stands still; it does until this turn ends."""
        await self._clock._alone(self)
