"""What a submission printed, as a value: bounded, without what moves a terminal's cursor, never read for meaning."""

from __future__ import annotations

from harness.errors import one_line
from harness.isolation.sandbox import Worker
from harness.verdict import Printed

# Lines that are kept unless all are asked for, and what is kept of each, in characters.
LAST_LINES = 20
MAX_LINE = 400


def printed_since(worker: Worker, start: int, case: str, *, everything: bool = False) -> Printed | None:
    """The last lines that `worker` printed behind the first `start` bytes, while `case` was judged; None for none."""
    lines = worker.home.printed_since(start).decode(errors="replace").rstrip("\n").split("\n")
    if lines == [""]:
        return None
    kept = lines if everything else lines[-LAST_LINES:]
    return Printed(lines=[_cut(line) for line in kept], left_out=len(lines) - len(kept), case=case)


def _cut(line: str) -> str:
    shown = one_line(line.rstrip("\r"))
    return shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 1] + "…"
