"""What is wrong with a submission, each with the line of its file that it is about, for formats that show it there.

A line comes from what was said: a device's finding, a compiler's error, or a traceback names one, or the lines that the
judge shows have a mark. Where nothing does, an output that is wrong is wrong where `ModelNew.forward` returns it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import NOT_PARSED
from harness.reasons import Reason
from harness.report.verdicts import named_in_message
from harness.report.view import View
from harness.submission import MAX_PARSED_BYTES
from harness.verdict import Accepted, CaseFailed, CodeFrame, Errored, Evaluation


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong: of a submission's cases, or of its build."""

    reason: Reason
    message: str
    file: str
    """As `harness.paths.shown_path` names it; the name alone where the path is not known."""
    line: int
    """From 1."""
    evaluation: Evaluation
    cases: tuple[str, ...] = ()
    """Those that failed of it, or none where no case was run."""

    @property
    def rejects(self) -> bool:
        """Whether it says something of the submission: an error does not."""
        return not isinstance(self.evaluation, Errored)

    @property
    def words(self) -> str:
        """The message, and of how many cases it is."""
        if not self.cases:
            return self.message
        more = f" and {len(self.cases) - 1} more" if len(self.cases) > 1 else ""
        return f"Case '{self.cases[0]}'{more}: {self.message}"


def failures_of(evaluation: Evaluation, view: View) -> list[Failure]:
    """All of them, each once: cases that fail for one reason at one line are one failure."""
    if isinstance(evaluation, Accepted):
        return []
    failed = [case for case in evaluation.cases if isinstance(case, CaseFailed)]
    if evaluation.reason is Reason.BUILD_FAILED:
        return list(_of_build(evaluation, view))
    if evaluation.finding:
        failed = [evaluation.finding, *failed]
    if not failed or named_in_message(evaluation) is None or isinstance(evaluation, Errored):
        return [_failure(evaluation, view, evaluation.reason, evaluation.message, frame=evaluation.frame)]
    of_places: dict[tuple[Reason, int], Failure] = {}
    for case in failed:
        found = _failure(evaluation, view, case.reason, case.message, (case.name,), case.frame)
        known = of_places.get((found.reason, found.line))
        of_places[found.reason, found.line] = _with_case(known, case.name) if known else found
    return list(of_places.values())


def _with_case(failure: Failure, name: str) -> Failure:
    cases = (*failure.cases, name)
    return Failure(failure.reason, failure.message, failure.file, failure.line, failure.evaluation, cases)


def _of_build(evaluation: Evaluation, view: View) -> Iterator[Failure]:
    """A compiler's errors stand in lines, each with its place."""
    message = str(evaluation.message)
    lines = [line for line in message.splitlines() if _named_line(line, _name(evaluation))]
    for text in lines or [message]:
        yield _failure(evaluation, view, Reason.BUILD_FAILED, text)


def _failure(
    evaluation: Evaluation,
    view: View,
    reason: Reason,
    message: str,
    cases: tuple[str, ...] = (),
    frame: CodeFrame | None = None,
) -> Failure:
    file = view.files.get((evaluation.submission, evaluation.source_sha256), _name(evaluation))
    source = view.texts.get(evaluation.source_sha256, b"")
    known = _named_line(message, _name(evaluation)) or _marked(frame) or _line_of_kernel(message, source)
    line = known or line_of_result(source)
    return Failure(reason, message, file, line, evaluation, cases)


def _name(evaluation: Evaluation) -> str:
    return f"{evaluation.submission}.py"


def _named_line(message: str, name: str) -> int:
    """The line that a message names of the file `name`, in the words of a device or a compiler (a.py:3), of
    harness.worker.implementations (at line 3 of a.py) or of Python's parser (a.py, line 3); 0 where it names none."""
    escaped = re.escape(name)
    for pattern in (rf"(?<![\w/]){escaped}:(\d+)", rf"at line (\d+) of {escaped}", rf"{escaped}, line (\d+)"):
        if found := re.search(pattern, message):
            return int(found[1])
    return 0


def _marked(frame: CodeFrame | None) -> int:
    """The last of the lines that the judge marks: before it stands what it conflicts with. 0 where it shows none."""
    return frame.marks[-1].line if frame and frame.marks else 0


def _line_of_kernel(message: str, source: bytes) -> int:
    """Where the kernel that a finding names is defined; 0 where it names none, or the source does not show it."""
    named = re.search(r"\(kernel (?:\w+::)*(\w+)", message)
    text = source.decode(errors="replace")
    defined = re.search(rf"__global__[^;{{]*?\b{named[1]}\s*\(", text) if named else None
    return text.count("\n", 0, defined.end()) + 1 if defined else 0


def line_of_result(source: bytes) -> int:
    """Where `ModelNew.forward` first returns; else where ModelNew begins; else the first line."""
    model = _model(source)
    if model is None:
        return 1
    forward = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    returned = [node.lineno for node in ast.walk(forward) if isinstance(node, ast.Return)] if forward else []
    return min(returned, default=forward.lineno if forward else model.lineno)


def _model(source: bytes) -> ast.ClassDef | None:
    if len(source) > MAX_PARSED_BYTES:
        return None
    try:
        body = ast.parse(source).body
    except NOT_PARSED:
        return None
    return next((node for node in body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"), None)
