"""What a gate says, for people: kernels as compiled, what was left out, a line for each rule that is broken."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from harness.errors import one_line
from harness.gate.rules import kernels_of
from harness.gate.values import Outcome
from harness.report.tables import Column, print_columns


def print_outcome(console: Console, outcome: Outcome, *, quiet: bool) -> None:
    """The verdict is the last line."""
    if not quiet and (columns := kernel_columns(outcome)):
        print_columns(console, "Kernels", columns)
    for remark in outcome.remarks:
        console.print(Text(f"note: {one_line(remark.line)}", style="dim"), soft_wrap=True)
    for broken in outcome.broken:
        console.print(Text.assemble(("BROKEN", "bold red"), f"  {one_line(broken.line)}"), soft_wrap=True)
    console.print(
        Text(f"gate: {summary(outcome)}", style="bold green" if outcome.passed else "bold red"), soft_wrap=True
    )


def summary(outcome: Outcome) -> str:
    """In a sentence."""
    judged = f"{outcome.judged} of {len(outcome.candidates)} judged"
    if outcome.passed:
        return f"passed: {judged}, no rule broken."
    count = len(outcome.broken)
    return f"failed: {judged}, {count} {'rule' if count == 1 else 'rules'} broken."


def kernel_columns(outcome: Outcome) -> list[Column]:
    """A row for each kernel and where it was compiled for; nothing where none was."""
    rows = [*_rows(outcome)]
    if not rows:
        return []
    headings = ("file", "kernel", "for", "registers", "spilled bytes", "shared bytes")
    return [
        Column(heading, [Text(cell) for cell in cells], "left" if number < 3 else "right")
        for number, (heading, cells) in enumerate(zip(headings, zip(*rows, strict=True), strict=True))
    ]


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for candidate in outcome.candidates:
        for place, kernel in kernels_of(candidate):
            yield (
                one_line(candidate.file), one_line(kernel.kernel), place,
                str(kernel.registers), f"{kernel.spilled_bytes:,}", f"{kernel.shared_bytes:,}",
            )  # fmt: skip
