"""Evaluations as JSON lines: what `eval.py export` and the format `jsonl` write, and `eval.py import` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.report.formats import json
from harness.verdict import SCHEMA, Evaluation, Results


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluation as `--json` writes it, and the texts that it is of, where they are known."""

    schema: str
    environment: dict[str, object]
    evaluation: dict[str, object]
    source: str = ""
    problem_source: str = ""


def line_of(evaluation: Evaluation, environment: Mapping[str, Any], texts: Mapping[str, bytes]) -> str:
    """A line, with its end. `texts` holds sources of submissions and problems by their SHA-256."""
    results = Results(schema=SCHEMA, environment=dict(environment), evaluations=[evaluation])
    written = msgspec.json.decode(json.dumps(results))
    sources = [
        texts.get(sha256, b"").decode(errors="replace")
        for sha256 in (evaluation.source_sha256, evaluation.problem_sha256)
    ]
    line = Line(SCHEMA, written["environment"], written["evaluations"][0], *sources)
    return msgspec.json.encode(line).decode() + "\n"


def read_line(line: bytes) -> tuple[Results, dict[str, bytes]]:
    """Results with the one evaluation of a line, and its texts by their SHA-256: only a text that the evaluation names
    is what was judged. Raises UsageError for a line that is none."""
    try:
        read = msgspec.json.decode(line, type=Line)
        whole = {"schema": read.schema, "environment": read.environment, "evaluations": [read.evaluation]}
        results = json.loads(msgspec.json.encode(whole))
    except (msgspec.MsgspecError, UsageError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no line of 'eval.py export': {error}") from error
    texts = [text.encode() for text in (read.source, read.problem_source) if text]
    return results, {hashlib.sha256(text).hexdigest(): text for text in texts}
