"""Some lanes, and who waits for one."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec import Struct

from harness.errors import HarnessError, KernelgateError, UsageError, name_of, one_line
from harness.isolation.levels import ASKED
from harness.lanes.clock import Clock, Turn
from harness.lanes.lane import Lane, LaneEnded, NeverBegan
from harness.lanes.options import Options
from harness.lanes.sources import Source
from harness.lanes.stages import Stage
from harness.lanes.wire import Job, Judged, NotJudged
from harness.plan import named_problem
from harness.reasons import Reason
from harness.report.formats import json as results_json
from harness.verdict import Accepted, Errored, Evaluation

# Is told of each stage before it begins; False ends the judging there.
OnStage = Callable[[Stage], bool | None]


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a source."""

    evaluation: Evaluation
    stage: Stage
    """How far it came: the stage that it ended in; done when it is accepted."""
    judged_s: float
    """From its begin in a process that has loaded to its verdict; the wait for other submissions' times is in it."""


@dataclass(eq=False)
class _Asked:
    """One submission that somebody waits for."""

    source: Source
    options: Options
    limit_s: float | None
    on_stage: OnStage
    answer: asyncio.Future[Outcome]
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    """Nobody waits for it any more."""
    has_begun: bool = False
    stage: Stage = Stage.STATIC
    began_s: float = field(default_factory=time.monotonic)


class Lanes:
    """As many submissions at a time as there are lanes, in the order in which they were asked for. For one loop."""

    def __init__(self, count: int, device: str, isolation: str) -> None:
        """Each lane loads what `device` needs ahead. Raises UsageError for no lane, and for no isolation."""
        if isolation not in ASKED:
            raise UsageError(f"isolation is one of {', '.join(ASKED)}, and {isolation!r} was given.")
        if not isinstance(count, int) or isinstance(count, bool):
            raise UsageError(f"How many processes judge is a whole number, and {count!r} was given.")
        if count < 1:
            raise UsageError(f"There must be at least one process that judges, and {count} were asked for.")
        self._device = device
        self._isolation = isolation
        self._clock = Clock()
        self._waiting: asyncio.Queue[_Asked] = asyncio.Queue()
        self._folder = tempfile.TemporaryDirectory(prefix="kernelgate-sources-")
        self._serving = [asyncio.create_task(self._serve()) for _ in range(count)]
        self._open: set[_Asked] = set()
        self._has_ended = False

    async def judge(
        self, source: Source, options: Options, limit_s: float | None = None, on_stage: OnStage = lambda _stage: None
    ) -> Outcome:
        """What becomes of a source, whatever it does. Where this is cancelled, what runs of it is ended first."""
        asked = _Asked(source, options, limit_s, on_stage, asyncio.get_running_loop().create_future())
        self._open.add(asked)
        self._waiting.put_nowait(asked)
        if self._has_ended:
            asked.answer.cancel()
        try:
            return await asyncio.shield(asked.answer)
        except asyncio.CancelledError:
            asked.stopped.set()
            if not asked.has_begun:
                asked.answer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked.answer
            raise
        finally:
            self._open.discard(asked)

    async def end(self) -> None:
        """End all that runs; what was asked for and has no answer is cancelled."""
        self._has_ended = True
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for asked in self._open:
            asked.answer.cancel()
        self._folder.cleanup()

    # ------------------------------------------------------------------ one lane

    async def _serve(self) -> None:
        """Keep one lane, and judge what comes."""
        seat = _Seat(self._device, self._isolation)
        try:
            with contextlib.suppress(KernelgateError):  # what is wrong with it the first submission is told
                async with self._clock.turn():  # nothing is timed beside it
                    await seat.lane()
            while True:
                asked = await self._waiting.get()
                if not asked.stopped.is_set():
                    await self._judge(asked, seat)
        finally:
            await seat.clear()

    async def _judge(self, asked: _Asked, seat: _Seat) -> None:
        """Answer it, or end what runs of it when nobody waits any more."""
        asked.has_begun = True
        judging = asyncio.create_task(self._outcome(asked, seat))
        stopping = asyncio.create_task(asked.stopped.wait())
        try:
            await asyncio.wait({judging, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not judging.done():
                judging.cancel()
                await asyncio.wait({judging})
            if judging.cancelled() or judging.exception():
                await seat.clear()
        if judging.cancelled():
            asked.answer.cancel()
        elif error := judging.exception():
            asked.answer.set_exception(error.__cause__ if isinstance(error, _OfCaller) and error.__cause__ else error)
        else:
            asked.answer.set_result(judging.result())

    async def _outcome(self, asked: _Asked, seat: _Seat) -> Outcome:
        evaluation: Evaluation
        try:
            async with self._clock.turn() as turn:
                evaluation = await self._evaluation(asked, seat, turn)
        except KernelgateError as error:
            evaluation = _not_judged(asked, str(error))
        except OSError as error:
            evaluation = _not_judged(asked, f"Its text could not be written to a file: {error.strerror}.")
        stage = Stage.DONE if isinstance(evaluation, Accepted) else asked.stage
        return Outcome(evaluation=evaluation, stage=stage, judged_s=time.monotonic() - asked.began_s)

    async def _evaluation(self, asked: _Asked, seat: _Seat, turn: Turn) -> Evaluation:
        """Raises UsageError and HarnessError where it cannot be judged."""
        try:
            with asked.source.as_file(Path(self._folder.name)) as path:
                job = Job(path=str(path), options=asked.options)
                try:
                    said = await self._said(asked, seat, turn, job)
                except NeverBegan:  # somebody had killed the lane, and it was given the job before that was noticed
                    await seat.clear()
                    said = await self._said(asked, seat, turn, job)
        except TimeoutError:
            await seat.clear()
            raise HarnessError(
                f"It has no verdict after {asked.limit_s:g} s, the limit that its caller gave; the stage is "
                f"'{asked.stage}'. Give it more, or judge fewer cases."
            ) from None
        except LaneEnded:
            await seat.clear()
            raise
        if isinstance(said, NotJudged):
            raise HarnessError(said.message)
        return results_json.loads(bytes(said.results)).evaluations[0]

    async def _said(self, asked: _Asked, seat: _Seat, turn: Turn, job: Job) -> Judged | NotJudged:
        lane = await seat.lane()
        asked.began_s = time.monotonic()
        async with asyncio.timeout(asked.limit_s) as limit:
            return await lane.judge(job, partial(_asks, asked, turn, limit))


class _OfCaller(Exception):
    """The caller's own function raised its cause, which is the caller's to handle."""


class _Seat:
    """Where a lane is, or will be when one is needed."""

    def __init__(self, device: str, isolation: str) -> None:
        self._device = device
        self._isolation = isolation
        self._lane: Lane | None = None

    async def lane(self) -> Lane:
        """Raises LaneEnded where none can be begun."""
        if self._lane and not self._lane.is_alive:  # somebody has killed it since
            await self.clear()
        self._lane = self._lane or await Lane.begin(self._device, self._isolation)
        return self._lane

    async def clear(self) -> None:
        """End the lane, if there is one."""
        lane, self._lane = self._lane, None
        if lane:
            await lane.end()


async def _asks(asked: _Asked, turn: Turn, limit: asyncio.Timeout, stage: Stage) -> bool:
    """Whether a stage is wanted; waits until it can begin, which is no part of the caller's limit."""
    try:
        is_wanted = asked.on_stage(stage) is not False
    except Exception as error:
        raise _OfCaller from error
    if not is_wanted:
        return False
    asked.stage = stage
    if stage is Stage.TIMING:
        loop = asyncio.get_running_loop()
        left_s = None if (ends_s := limit.when()) is None else ends_s - loop.time()
        limit.reschedule(None)
        await turn.alone()
        limit.reschedule(None if left_s is None else loop.time() + left_s)
    return True


def _not_judged(asked: _Asked, message: str) -> Errored:
    options = asked.options
    return Errored(
        problem=name_of(named_problem(options.problem)) if options.problem else "",
        submission=asked.source.name,
        source_sha256=asked.source.sha256(),
        device=options.device or "",
        seed=options.seed or 0,
        effort=options.effort,
        cases=[],
        reason=Reason.NOT_JUDGED,
        message=one_line(message),
    )
