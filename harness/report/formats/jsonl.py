"""JSON lines, an evaluation a line with its texts, as `eval.py export` writes them and `eval.py import` reads them.

A line is an object as in https://jsonlines.org; its keys are those of harness.report.lines.Line.
"""

from __future__ import annotations

from harness.report.lines import line_of
from harness.report.view import View
from harness.verdict import Results


def render(results: Results, view: View) -> str:
    """A line for each evaluation; none where nothing was evaluated."""
    return "".join(line_of(evaluation, results.environment, view.texts) for evaluation in results.evaluations)
