"""What a worker's reply must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from harness.errors import SubmissionError
from harness.protocol.wire import Failed, Reply, WireFinding

_R = TypeVar("_R")


def required(reply: Reply, kind: type[_R]) -> _R:
    """`reply`, which must be of `kind`.

    Raises SubmissionError for a failure, with its reason, and bad_message for an answer to something else: a
    submission can write to its worker's channel."""
    if isinstance(reply, Failed):
        raise SubmissionError(*_first_finding(reply.findings, reply.reason, reply.message))
    if not isinstance(reply, kind):
        raise SubmissionError(
            "bad_message", f"The worker answered with {type(reply).__name__} where {kind.__name__} was asked for."
        )
    return reply


def _first_finding(findings: Sequence[WireFinding], reason: str, message: str) -> tuple[str, str]:
    """A device's finding names the defect better than the exception that it caused."""
    if not findings:
        return reason, message
    return findings[0].kind, findings[0].message
