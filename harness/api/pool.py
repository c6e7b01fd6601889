"""A pool of processes that judge, and one call that needs none."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

from harness.api.coming import Coming
from harness.api.thread import Begun, LoopThread
from harness.errors import UsageError
from harness.lanes.lanes import Lanes, Outcome
from harness.lanes.options import Given, Options, options
from harness.lanes.sources import Source
from harness.lanes.stages import Stage
from harness.verdict import status_of

# Is told the number of a source and the stage that it comes to; False ends it there. It is called in the pool's thread.
OnStage = Callable[[int, Stage], bool | None]


class Result(Outcome, frozen=True, kw_only=True):
    """What became of one of the sources that were given."""

    index: int
    """Which of them, from 0."""
    source: str
    """What reports call it."""

    @property
    def status(self) -> str:
        """accepted, rejected, or error, which says nothing about the source."""
        return status_of(self.evaluation)


class Pool:
    """Judges sources in `workers` processes that stay loaded. Any thread, and any event loop, may use it.

    A source is the text of a submission, or a path; docs/api.md says what each call costs. `given` are options as
    eval.py has them, which calls may replace: problem, device, select (-k), dtype, seed, against, effort, timing,
    check, first_failure, timeout_s. Use it as a context manager, or call `close`."""

    def __init__(self, workers: int = 1, *, isolation: str = "auto", **given: Unpack[Given]) -> None:
        """Returns at once: the processes load meanwhile. Raises UsageError for options that are none."""
        self._usual = options(given, Options())
        self._workers = workers
        self._thread = LoopThread()
        try:
            self._lanes = self._thread.call(partial(_lanes, workers, self._usual.device or "", isolation))
        except BaseException:
            self._thread.end()
            raise
        # Also where nobody closes it: when it is garbage, and when the interpreter ends.
        self._closing = weakref.finalize(self, _close, self._thread, self._lanes)

    def close(self) -> None:
        """End all that runs, and its processes. What somebody waits for is cancelled."""
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    async def evaluate(
        self,
        sources: Iterable[object] | AsyncIterable[object],
        *,
        limit_s: float | None = None,
        on_stage: OnStage | None = None,
        **given: Unpack[Given],
    ) -> AsyncIterator[Result]:
        """A result for each source, as they come; of `sources` at most twice as many as there are workers are taken
        ahead. Leaving the loop, or cancelling its task, ends what runs; where it is closed or cancelled, that is over.

        After `limit_s` seconds of judging, waiting not counted, a source's result is an error. Raises UsageError for
        options that are none."""
        asked = self._asked(given)
        _require_several(sources)
        coming = Coming(sources)
        pending: dict[asyncio.Future[Result], Begun[Result]] = {}
        try:
            while True:
                taking = coming.next() if len(pending) < 2 * self._workers else set()
                if not taking and not pending:
                    return
                either: set[asyncio.Future[Any]] = {*taking, *pending}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if (taken := coming.taken()) is not None:
                    begun = self._begin(*taken, asked, limit_s, on_stage)
                    pending[asyncio.wrap_future(begun.answer)] = begun
                for future in [future for future in pending if future.done()]:
                    del pending[future]
                    yield future.result()
        finally:
            coming.cancel()
            for future in pending:
                future.cancel()
            await asyncio.gather(*(asyncio.wrap_future(begun.over) for begun in pending.values()))

    def run(
        self,
        sources: Iterable[object],
        *,
        limit_s: float | None = None,
        on_stage: OnStage | None = None,
        **given: Unpack[Given],
    ) -> list[Result]:
        """The results in the order of the sources; waits for all. Else as `evaluate`."""
        asked = self._asked(given)
        _require_several(sources)
        all_begun: list[Begun[Result]] = []
        try:
            for index, source in enumerate(sources):
                all_begun.append(self._begin(index, source, asked, limit_s, on_stage))
            return [begun.answer.result() for begun in all_begun]
        finally:
            for begun in all_begun:
                begun.answer.cancel()
            for begun in all_begun:
                begun.over.result()

    def _asked(self, given: Any) -> Options:
        if not self._closing.alive:
            raise UsageError("The pool is closed; make another.")
        return options(given, self._usual)

    def _begin(
        self, index: int, given: object, asked: Options, limit_s: float | None, on_stage: OnStage | None
    ) -> Begun[Result]:
        """Raises UsageError for what is no source, and where somebody has closed the pool."""
        source = Source.read(given, f"source_{index}")
        source.require_problem(asked.problem)
        return self._thread.begin(partial(_result, self._lanes, index, source, asked, limit_s, on_stage))


def evaluate(
    source: object,
    *,
    limit_s: float | None = None,
    on_stage: OnStage | None = None,
    isolation: str = "auto",
    **given: Unpack[Given],
) -> Result:
    """One source judged, in a pool of its own that is loaded for it: who judges many makes a Pool. Else as Pool.run."""
    with Pool(isolation=isolation, **given) as pool:
        return pool.run([source], limit_s=limit_s, on_stage=on_stage)[0]


def _require_several(sources: object) -> None:
    """Raises UsageError for what is one source, or none: a text would be taken letter by letter."""
    if isinstance(sources, str | bytes | Path) or not isinstance(sources, Iterable | AsyncIterable):
        raise UsageError(f"Sources are a list, and {type(sources).__name__} was given. Put a single one in brackets.")


async def _lanes(workers: int, device: str, isolation: str) -> Lanes:
    return Lanes(workers, device, isolation)


def _close(thread: LoopThread, lanes: Lanes) -> None:
    if thread.is_this:  # where a pool became garbage: it cannot wait for itself
        threading.Thread(target=_close, args=(thread, lanes)).start()
        return
    thread.call(lanes.end)
    thread.end()


async def _result(
    lanes: Lanes, index: int, source: Source, asked: Options, limit_s: float | None, on_stage: OnStage | None
) -> Result:
    def tell(stage: Stage) -> bool | None:
        return on_stage(index, stage) if on_stage else None

    outcome = await lanes.judge(source, asked, limit_s, tell)
    return Result(
        evaluation=outcome.evaluation,
        stage=outcome.stage,
        judged_s=outcome.judged_s,
        index=index,
        source=source.name,
    )
