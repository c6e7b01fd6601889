"""GitHub's annotations, as a workflow prints them: each failure beside the line of the submission that it is about.

The format is https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands. Write it to standard
output, `github=-`. Where GITHUB_ACTIONS is set, the report `comment` also becomes the step's summary.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.gate.values import Broken, Remark
from harness.report.places import failures_of
from harness.report.view import View
from harness.verdict import Results

# GitHub shows so many of a level in a step, and leaves out the others.
SHOWN = 10


def render(results: Results, view: View) -> str:
    """A line for each; nothing where nothing is wrong."""
    errors: list[str] = []
    warnings: list[str] = []
    for evaluation in results.evaluations:
        for failure in failures_of(evaluation, view):
            line = _command("error" if failure.rejects else "warning", failure.words, file=failure.file,
                            line=str(failure.line), title=f"kernelgate: {failure.reason}")  # fmt: skip
            (errors if failure.rejects else warnings).append(line)
    for broken in view.gate.broken if view.gate else ():
        if broken.rule != "verdict":
            errors.append(_broken(broken, view))
    notices = [_command("notice", remark.line, title="kernelgate gate") for remark in _remarks(view)]
    return "".join(f"{line}\n" for found in (errors, warnings, notices) for line in _shown(found))


def _broken(broken: Broken, view: View) -> str:
    place = {"file": broken.file, "line": "1"} if broken.file in view.files.values() else {}
    return _command("error", broken.line, **place, title=f"kernelgate gate: {broken.rule}")


def _remarks(view: View) -> tuple[Remark, ...]:
    return view.gate.remarks if view.gate else ()


def _shown(lines: list[str]) -> Iterator[str]:
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"{len(lines) - SHOWN} more, for which GitHub has no room here."


def _command(name: str, message: str, **properties: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {given}::{_data(message)}"


def _data(text: str) -> str:
    """As the runner's toolkit escapes it: no text ends a command or begins another."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
