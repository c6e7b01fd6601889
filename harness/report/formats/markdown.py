"""GitHub-flavoured Markdown, to be pasted into a pull request: verdict, cases, notes and environment.

The syntax is that of https://github.github.com/gfm. Text of submissions and problems is escaped (harness.report.gfm).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from harness.report.cases import case_columns, counted, has_news, noisy_of, timed_of
from harness.report.explanations import failing, why
from harness.report.failures import FRAME_WIDTH, repeat_of
from harness.report.frames import plain
from harness.report.gfm import escaped, fenced, table
from harness.report.names import told_apart
from harness.report.ranking import ranking, rivals_of, scores
from harness.report.tables import Column
from harness.report.verdicts import accepted_summary, cause_of, frame_of
from harness.report.view import View
from harness.report.words import as_sentences, unfinished
from harness.store.pairs import SHOWN_DIGITS
from harness.verdict import Accepted, Errored, Evaluation, Rejected, Results, status_of

LEGEND = "Times are medians of one call; ± is their 95% interval, \\~ no difference."


def render(results: Results, view: View) -> str:
    """The verdict first, in a sentence; of several evaluations how many were accepted, and then each."""
    blocks = list(_all(results, view))
    return "\n\n".join(blocks) + "\n" if blocks else "Nothing was evaluated.\n"


def _all(results: Results, view: View) -> Iterator[str]:
    evaluations = told_apart(results.evaluations, view.files)
    if view.quiet:
        yield "\n".join(f"- {_verdict(evaluation)}" for evaluation in evaluations)
        return
    if results.unfinished:
        yield f"**Stopped before its end**: {unfinished(results)}"
    if len(evaluations) > 1:
        yield _counts(evaluations)
        yield from _rankings(evaluations)
        yield from map(escaped, scores(evaluations))
    for evaluation in evaluations:
        if len(evaluations) > 1:
            yield "### " + escaped(f"{evaluation.submission} · {evaluation.problem} · {evaluation.device}")
        yield from _one(evaluation, view)
    if results.environment:
        yield "### Environment"
        yield table(_environment(results.environment))


def _counts(evaluations: Sequence[Evaluation]) -> str:
    of = Counter(status_of(evaluation) for evaluation in evaluations)
    accepted = f"**{of['accepted']} of {len(evaluations)} accepted**"
    return ", ".join([accepted, *(f"{of[status]} {status}" for status in ("rejected", "error") if of[status])]) + "."


def _rankings(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """A table for each problem that several evaluations are of."""
    for problem, rivals in rivals_of(evaluations):
        yield f"{escaped(problem)}:"
        yield table(ranking(rivals))


def _one(evaluation: Evaluation, view: View) -> Iterator[str]:
    yield _verdict(evaluation)
    if not isinstance(evaluation, Accepted):
        yield from _why(evaluation)
    yield from _cases(evaluation, view)
    yield f"Seed {evaluation.seed}, source {escaped(evaluation.source_sha256[:SHOWN_DIGITS])}."
    if evaluation.notes:
        yield "\n".join(f"- {escaped(text)}" for text in as_sentences(evaluation.notes))


def _verdict(evaluation: Evaluation) -> str:
    """What became of a submission, in a sentence."""
    what = escaped(f"{evaluation.submission} ({evaluation.problem}, {evaluation.device})")
    if isinstance(evaluation, Accepted):
        said = f": {escaped(accepted_summary(evaluation))}."
    else:
        said = f", `{evaluation.reason}`: {escaped(evaluation.reason.meaning)}"
    kept = f" Judged {escaped(evaluation.kept_from[:10])}." if evaluation.kept_from else ""
    return f"**{status_of(evaluation).upper()}** {what}{said}{kept}"


def _why(evaluation: Rejected | Errored) -> Iterator[str]:
    """What all detectors saw, the message, which may be of many lines, the submission's lines that it is about, what
    was printed, and the command that repeats the case."""
    finding = evaluation.finding
    if finding:
        yield fenced(f"{finding.reason}: {finding.message}")
    else:
        yield fenced(evaluation.message)
    if frame := frame_of(evaluation):
        yield fenced(plain(frame, FRAME_WIDTH))
    if (named := cause_of(evaluation)) and named.also:
        yield fenced("\n".join(named.also))
    if finding:
        yield fenced(evaluation.message)
    said = [
        f"{label}: {text}"
        for label, text in (("Why", "" if finding else why(evaluation)), ("Cases", failing(evaluation)))
        if text
    ]
    if said:
        yield "\n".join(f"- {escaped(text)}" for text in said)
    if evaluation.printed:
        yield "It printed:"
        yield fenced("\n".join(evaluation.printed.lines))
    if repeat := repeat_of(evaluation):
        yield fenced(repeat, "sh")


def _cases(evaluation: Evaluation, view: View) -> Iterator[str]:
    """What is timed or failed; with `verbose` every case."""
    shown = [case for case in evaluation.cases if view.verbose or has_news(case)]
    if shown:
        yield table(case_columns(shown, noisy_of(evaluation)))
    if left_out := [case for case in evaluation.cases if not (view.verbose or has_news(case))]:
        yield f"{counted(left_out, more=bool(shown))}."
    if timed := timed_of(shown):
        versions = {b.version for case in timed if case.timing for b in case.timing.baselines.values() if b.version}
        yield " ".join([LEGEND, *(f"{escaped(version)}." for version in sorted(versions))])


def _environment(environment: dict[str, Any]) -> list[Column]:
    """What is known of the machine and the versions."""
    rows = {name: str(value) for name, value in environment.items() if value is not None and name != "isolation"}
    for device, described in environment.get("isolation", {}).items():
        rows[f"isolation on {device}"] = f"{described['level']}{_lacks(described)}"
    return [
        Column("what", [Text(name) for name in rows], "left"),
        Column("value", [Text(value) for value in rows.values()], "left"),
    ]


def _lacks(described: dict[str, Any]) -> str:
    return f" ({described['lacks']})" if described.get("lacks") else ""
