"""One eval.py a verdict, loaded ahead: started before there is anything to judge, told what, and ended when its verdict
is no longer asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import UsageError
from harness.paths import ROOT
from harness.report.formats import json as results_json
from harness.verdict import Results

# eval.py ends its workers and compilers when it is told to end, which takes a moment; what does not end is killed, and
# the system ends its workers.
END_S = 15.0

# What eval.py says of each of several verdicts, which the results hold.
_OF_SEVERAL = re.compile(r"\d+ of \d+: ")

_MOST_OF_A_LINE = 1 << 24

# With this begins what ended a run before its end.
_COMPLAINS = "eval.py: "


@dataclass(frozen=True)
class Outcome:
    """What a run gave: results, or what it said instead."""

    code: int
    results: Results | None
    said: list[str] = field(default_factory=list)
    """Lines of its standard error, from where it says what ended it."""


class Child:
    """A process of its own group, so that keys on the terminal do not reach it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_ended = False

    @classmethod
    async def ahead(cls, device: str, isolation: str) -> Child:
        """One that loads, and waits to be told what to judge."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "harness.watch.ahead", device, isolation,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path}, start_new_session=True, limit=_MOST_OF_A_LINE,
        )  # fmt: skip
        return cls(process)

    async def judge(self, words: Sequence[str], on_notice: Callable[[str], None]) -> Outcome | None:
        """What `eval.py WORDS` gives; None where `end` came before. `on_notice` is told the lines of its standard error
        before that, as they come."""
        with tempfile.TemporaryDirectory(prefix="kernelgate-watch-") as folder:
            written = Path(folder) / "results.json"
            await self._tell(["--json", str(written), *words])
            said = await self._heard(on_notice)
            code = await self._process.wait()
            if self._is_ended:
                return None
            with contextlib.suppress(UsageError):
                return Outcome(code, results_json.load(written), said)
        return Outcome(code, None, said)

    async def _tell(self, words: Sequence[str]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended, and its code says so
            self._process.stdin.write(json.dumps(list(words)).encode() + b"\n")
            await self._process.stdin.drain()
        self._process.stdin.close()

    async def _heard(self, on_notice: Callable[[str], None]) -> list[str]:
        assert self._process.stderr is not None
        said: list[str] = []
        while read := await self._process.stderr.readline():
            line = read.decode(errors="replace").rstrip()
            if said or line.startswith(_COMPLAINS):
                said.append(line.removeprefix(_COMPLAINS))
            elif not self._is_ended and not _OF_SEVERAL.match(line):
                on_notice(line)
        return said

    async def end(self) -> None:
        """End it, and wait until it is gone with all that it has started."""
        self._is_ended = True
        if self._process.returncode is None:
            self._send(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), END_S)
            except TimeoutError:
                self._send(signal.SIGKILL)
                await self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
