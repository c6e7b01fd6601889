"""A comment on a pull request, in GitHub-flavoured Markdown and never too long for one: what is broken, then why.

The syntax is that of https://github.github.com/gfm; a comment may have 65,536 characters. The first line marks it, so
that the next run finds and replaces it. Text of submissions and problems is escaped (harness.report.gfm).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from harness.gate.values import Outcome
from harness.report.figures import over_eager, over_fastest
from harness.report.gating import kernel_columns, summary
from harness.report.gfm import escaped, fenced, table
from harness.report.places import Failure, failures_of
from harness.report.tables import Column
from harness.report.view import View
from harness.report.words import unfinished
from harness.verdict import Accepted, Evaluation, Results, status_of

MARK = "<!-- kernelgate -->"

# Of UTF-8, which has at least as many bytes as characters.
MAX_BYTES = 65_000

# Of one message: it begins with what matters.
MAX_MESSAGE = 2_000


def render(results: Results, view: View) -> str:
    """Blocks by their weight, as many as there is room for; how many are left out is the last."""
    blocks = list(_blocks(results, view))
    kept: list[str] = []
    room = MAX_BYTES
    for number, block in enumerate(blocks):
        room -= len(block.encode(errors="replace")) + 2
        if room < 0:
            kept.append(f"{len(blocks) - number} more parts have no room in a comment.")
            break
        kept.append(block)
    return "\n\n".join(kept) + "\n"


def _blocks(results: Results, view: View) -> Iterator[str]:
    yield f"{MARK}\n### kernelgate: {escaped(_headline(results, view))}"
    if view.gate:
        yield from _of_gate(view.gate)
    if results.evaluations:
        yield from _tables(results.evaluations)
    for evaluation in results.evaluations:
        for failure in failures_of(evaluation, view):
            yield _failure(failure)
    if view.gate and (columns := kernel_columns(view.gate)):
        yield _folded("Kernels as they were compiled", table(columns))


def _headline(results: Results, view: View) -> str:
    if view.gate:
        return summary(view.gate)
    accepted = sum(isinstance(evaluation, Accepted) for evaluation in results.evaluations)
    stopped = f" Stopped before its end: {unfinished(results)}" if results.unfinished else ""
    counted = f"{accepted} of {len(results.evaluations)} accepted." if results.evaluations else "nothing was evaluated."
    return counted + stopped


def _of_gate(outcome: Outcome) -> Iterator[str]:
    for broken in outcome.broken:
        yield f"- **broken** {escaped(broken.line)}"
    for remark in outcome.remarks:
        yield f"- {escaped(remark.line)}"


# A table of so many rows at a time: one that has no room is left out whole.
_ROWS = 50


def _tables(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    for first in range(0, len(evaluations), _ROWS):
        yield table(_columns(evaluations[first : first + _ROWS]))


def _columns(evaluations: Sequence[Evaluation]) -> list[Column]:
    cells = {
        "submission": [evaluation.submission for evaluation in evaluations],
        "problem": [evaluation.problem for evaluation in evaluations],
        "device": [evaluation.device for evaluation in evaluations],
        "verdict": [status_of(e) if isinstance(e, Accepted) else f"{status_of(e)}: {e.reason}" for e in evaluations],
        "over eager [95%]": [over_eager(e) if isinstance(e, Accepted) else "" for e in evaluations],
        "over the fastest": [over_fastest(e) if isinstance(e, Accepted) else "" for e in evaluations],
    }
    return [Column(heading, [Text(cell) for cell in column], "left") for heading, column in cells.items()]


def _failure(failure: Failure) -> str:
    of = failure.evaluation
    heading = f"{failure.file}:{failure.line}: {failure.reason} ({of.problem}, {of.device})"
    words = failure.words if len(failure.words) <= MAX_MESSAGE else f"{failure.words[:MAX_MESSAGE]}…"
    return f"{escaped(heading)}\n\n{fenced(words)}"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"
