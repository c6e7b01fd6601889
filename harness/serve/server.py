"""The loop between standard input and standard output."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from harness import crash
from harness.errors import UsageError
from harness.lanes.lanes import Lanes
from harness.lanes.options import Options, options
from harness.lanes.sources import Source
from harness.lanes.stages import Stage
from harness.serve.answers import Began, Complaint, Line, answer, cancelled, encode
from harness.serve.requests import BadRequest, Cancel, Id, Request, read

_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# More than any source has that a worker would read.
MOST_OF_A_LINE = 1 << 24

# So many requests may wait: each holds its source.
MOST_OPEN = 10_000

# So many lines are read ahead.
_AHEAD = 64


async def serve(jobs: int, usual: Options, isolation: str, limit_s: float | None) -> None:
    """Answer what standard input asks for, until it ends and all is answered, or a signal comes. Nothing is left of
    what was started. Raises OSError, such as BrokenPipeError, when nobody reads the answers any more."""
    lanes = Lanes(jobs, usual.device or "", isolation)
    server = _Server(lanes, usual, limit_s)
    try:
        with _stopped_by_signals(server.stop), contextlib.suppress(asyncio.CancelledError):
            await server.serve(_lines_of(sys.stdin.buffer))
    finally:
        await lanes.end()
        await server.end()


class _Server:
    """One conversation."""

    def __init__(self, lanes: Lanes, usual: Options, limit_s: float | None) -> None:
        self._lanes = lanes
        self._usual = usual
        self._limit_s = limit_s
        self._open: dict[Id, asyncio.Task[None]] = {}
        self._task = asyncio.current_task()
        self._failure: OSError | None = None

    def stop(self) -> None:
        """Have `serve` be cancelled."""
        assert self._task is not None
        self._task.cancel()

    async def end(self) -> None:
        """Wait for the last answers. Raises OSError where nobody read the answers."""
        await asyncio.gather(*self._open.values(), return_exceptions=True)
        if self._failure:
            raise self._failure

    async def serve(self, lines: asyncio.Queue[bytes | None]) -> None:
        while (line := await lines.get()) is not None:
            try:
                self._take(line)
            except BadRequest as error:
                self._say(Complaint(message=str(error), id=error.id))
        await asyncio.gather(*self._open.values())

    def _take(self, line: bytes) -> None:
        """Raises BadRequest."""
        if len(line) > MOST_OF_A_LINE:
            raise BadRequest(f"A request has at most {MOST_OF_A_LINE >> 20} MiB, and this line is longer.")
        if not line.strip():
            return
        match read(line):
            case Cancel(of):
                if of not in self._open:
                    raise BadRequest("Nothing is judged under this id: it was answered, or never asked for.", of)
                self._open[of].cancel()
            case Request() as request:
                self._begin(request)

    def _begin(self, request: Request) -> None:
        """Raises BadRequest."""
        if request.id in self._open:
            raise BadRequest("This id is that of a request without an answer yet; take another.", request.id)
        if len(self._open) >= MOST_OPEN:
            raise BadRequest(f"{MOST_OPEN:,} requests wait; ask again when some are answered.", request.id)
        try:
            source, asked = _source(request), options(request.given, self._usual)
            source.require_problem(asked.problem)
        except UsageError as error:
            raise BadRequest(str(error), request.id) from error
        task = asyncio.create_task(self._judge(request, source, asked))
        self._open[request.id] = task

    async def _judge(self, request: Request, source: Source, asked: Options) -> None:
        stage = Stage.STATIC
        said: Line

        def began(begins: Stage) -> None:
            nonlocal stage
            stage = begins
            if request.stages:
                self._say(Began(id=request.id, stage=begins))

        limit_s = self._limit_s if request.limit_s is None else request.limit_s
        try:
            said = answer(request.id, await self._lanes.judge(source, asked, limit_s, began))
        except asyncio.CancelledError:  # of its id, or of everything
            said = cancelled(request.id, stage)
        except Exception:
            said = Complaint(message=crash.report(), id=request.id)
        del self._open[request.id]  # before it is said: its id may come again at once
        self._say(said)

    def _say(self, line: Line) -> None:
        try:
            sys.stdout.buffer.write(encode(line))
            sys.stdout.buffer.flush()
        except OSError as error:  # whoever read them has had enough
            if not self._failure:
                self._failure = error
                self.stop()


def _source(request: Request) -> Source:
    """Raises UsageError."""
    return Source.of_file(Path(request.path)) if request.path else Source.of_text(request.source or "", request.name)


def _lines_of(stream: BinaryIO) -> asyncio.Queue[bytes | None]:
    """Lines as they come, None behind the last; of one that is too long its begin, longer than any may be. A thread
    reads them: standard input may be a file, which no loop can wait for."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)

    def read_all() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            for line in _bounded(stream):
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    threading.Thread(target=read_all, name="requests", daemon=True).start()
    return lines


def _bounded(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(MOST_OF_A_LINE + 1):
        yield line
        while len(line) > MOST_OF_A_LINE and not line.endswith(b"\n"):
            line = stream.readline(MOST_OF_A_LINE + 1)
            if not line:
                return


@contextlib.contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have a signal call `stop`."""
    loop = asyncio.get_running_loop()
    for number in _STOPPED_BY:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _STOPPED_BY:
            loop.remove_signal_handler(number)
