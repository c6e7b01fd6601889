"""A thread with an event loop of its own, for callers of any thread and any loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Begun(Generic[T]):
    """A coroutine that runs in the loop. Who cancels `answer` knows by `over` when nothing of it runs any more."""

    answer: Future[T] = field(default_factory=Future)
    over: Future[None] = field(default_factory=Future)

    def end(self, task: asyncio.Task[T]) -> None:
        """The coroutine has come to its end."""
        if self.answer.set_running_or_notify_cancel():  # from here on nobody cancels it
            if task.cancelled():
                self.answer.set_exception(CancelledError())
            elif error := task.exception():
                self.answer.set_exception(error)
            else:
                self.answer.set_result(task.result())
        elif not task.cancelled():
            task.exception()  # nobody asks for it
        self.over.set_result(None)


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

    def begin(self, function: Callable[[], Coroutine[Any, Any, T]]) -> Begun[T]:
        """Have the coroutine run that `function` gives; cancelling its answer cancels it. Raises UsageError when the
        thread has ended."""
        begun: Begun[T] = Begun()

        def start() -> None:
            task = self._loop.create_task(function())
            task.add_done_callback(begun.end)

            def cancel(answer: Future[T]) -> None:
                if answer.cancelled():
                    self._soon(task.cancel)

            begun.answer.add_done_callback(cancel)

        self._soon(start)
        return begun

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine gives."""
        return self.begin(function).answer.result()

    def _soon(self, function: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise UsageError("The pool is closed; make another.") from None

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
