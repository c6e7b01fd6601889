"""One eval.py a verdict, loaded ahead: started before there is anything to judge, told what, and ended when its verdict
is no longer asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import UsageError
from harness.lanes.standby import Standby
from harness.report.formats import json as results_json
from harness.verdict import Results

# What eval.py says of each of several verdicts, which the results hold.
_OF_SEVERAL = re.compile(r"\d+ of \d+: ")

# With this begins what ended a run before its end.
_COMPLAINS = "eval.py: "


@dataclass(frozen=True)
class Outcome:
    """What a run gave: results, or what it said instead."""

    code: int
    results: Results | None
    said: list[str] = field(default_factory=list)
    """Lines of its standard error, from where it says what ended it."""


class Child(Standby):
    """A process that becomes eval.py once."""

    @classmethod
    async def ahead(cls, device: str, isolation: str) -> Child:
        """One that loads, and waits to be told what to judge."""
        quiet, heard = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        return await cls.start("harness.watch.ahead", device, isolation, stdout=quiet, stderr=heard)

    async def judge(self, words: Sequence[str], on_notice: Callable[[str], None]) -> Outcome | None:
        """What `eval.py WORDS` gives; None where `end` came before. `on_notice` is told the lines of its standard error
        before that, as they come."""
        with tempfile.TemporaryDirectory(prefix="kernelgate-watch-") as folder:
            written = Path(folder) / "results.json"
            assert self._process.stdin is not None
            await self.tell(json.dumps(["--json", str(written), *words]).encode())
            self._process.stdin.close()
            said = await self._heard(on_notice)
            code = await self._process.wait()
            if self._is_ended:
                return None
            with contextlib.suppress(UsageError):
                return Outcome(code, results_json.load(written), said)
        return Outcome(code, None, said)

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
