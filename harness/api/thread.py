"""A thread with an event loop of its own, for callers of any thread and any loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from harness.errors import UsageError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines until it is ended; the interpreter does not wait for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kernelgate pool", daemon=True)
        self._thread.start()

    @property
    def is_this(self) -> bool:
        """Whether the caller runs in it."""
        return threading.current_thread() is self._thread

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Have it run; cancelling the future cancels it. Raises UsageError when the thread has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise UsageError("The pool is closed; make another.") from None

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """What `function` gives, called in the loop."""

        async def called() -> T:
            return await function()

        return self.begin(called()).result()

    def end(self) -> None:
        """Cancel what still runs, and stop the loop."""
        self.call(_end_others)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
