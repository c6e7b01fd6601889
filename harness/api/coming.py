"""Sources as their maker gives them, which may take a while for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable

Numbered = tuple[int, object]


class Coming:
    """Takes one at a time, beside whatever else is waited for: a maker may wait for results of earlier ones."""

    def __init__(self, sources: Iterable[object] | AsyncIterable[object]) -> None:
        self._numbered = _numbered(sources)
        self._taking: asyncio.Task[Numbered | None] | None = None
        self._has_more = True

    def next(self) -> set[asyncio.Task[Numbered | None]]:
        """What to wait for until there is another; nothing behind the last."""
        if self._taking is None and self._has_more:
            self._taking = asyncio.create_task(_next(self._numbered))
        return {self._taking} if self._taking else set()

    def taken(self) -> Numbered | None:
        """What has come, with its number; None while nothing has. Raises what the maker raises."""
        if not self._taking or not self._taking.done():
            return None
        task, self._taking = self._taking, None
        self._has_more = False  # also where it raises
        found = task.result()
        self._has_more = found is not None
        return found

    def cancel(self) -> None:
        """Take no more."""
        self._has_more = False
        if self._taking:
            self._taking.cancel()


async def _next(numbered: AsyncIterator[Numbered]) -> Numbered | None:
    return await anext(numbered, None)


async def _numbered(sources: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[Numbered]:
    if isinstance(sources, AsyncIterable):
        index = 0
        async for source in sources:
            yield index, source
            index += 1
    else:
        for numbered in enumerate(sources):
            yield numbered
