"""What a worker's reply must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeVar

from harness.errors import Inconclusive, Stopped, SubmissionError
from harness.protocol.wire import Failed, Reply
from harness.reasons import Reason
from harness.records import Finding, Place

_R = TypeVar("_R")

# Of the defects that a call showed, so many are named.
MOST_NAMED = 5


def required(reply: Reply, kind: type[_R], *, emulated: bool = False) -> _R:
    """`reply`, which must be of `kind`.

    Raises SubmissionError with a failure's reason, or with bad_message for a reply of another kind: a submission can
    write to its worker's channel. Raises Inconclusive where the device is `emulated` and could not do what was asked of
    it. A submission may say so itself, which takes its own verdict from it."""
    if isinstance(reply, Failed):
        # A device's finding names the defect; the exception is its consequence.
        if reply.findings:
            raise as_error(reply.findings, emulated=emulated)
        if emulated and reply.reason == Reason.UNSUPPORTED_BY_EMULATOR:
            raise Inconclusive(reply.reason, reply.message, reply.places)
        raise SubmissionError(reply.reason, reply.message, reply.places)
    if not isinstance(reply, kind):
        raise SubmissionError(
            Reason.BAD_MESSAGE, f"The worker answered with {type(reply).__name__} where {kind.__name__} was asked for."
        )
    return reply


def as_error(findings: Sequence[Finding], *, emulated: bool) -> Stopped:
    """The first defect as the reason of a rejection: what was seen, and where, with the next ones beside it. Where
    there is none, and what the emulator cannot do ended the call, nothing is said about the submission."""
    defects = [finding for finding in findings if finding.kind != Reason.UNSUPPORTED_BY_EMULATOR]
    finding, *others = defects or findings
    kind = SubmissionError if defects or not emulated else Inconclusive
    also = [f"{other.kind}: {_sentence(other)}" for other in others[: MOST_NAMED - 1]]
    return kind(finding.kind, _sentence(finding), _places(finding), also)


def _sentence(finding: Finding) -> str:
    return " ".join(filter(None, [finding.message, _place(finding)]))


def _places(finding: Finding) -> list[Place]:
    """The line of the finding, and that of an access it conflicts with, whose label says which came first."""
    file = PurePath(finding.file).name
    places = [Place(file, finding.line, label=finding.access)] if finding.line else []
    if finding.other_line:
        places.insert(0, Place(file, finding.other_line, label=finding.other_access))
    return places


def _place(finding: Finding) -> str:
    """What is known of it: "(kernel k, a.py:20, launch 1, block (0,0,0), thread (5,0,0))"."""
    known = []
    if finding.kernel:
        known.append(f"kernel {finding.kernel}")
    if finding.line:
        file = PurePath(finding.file).name
        known.append(f"{file}:{finding.line}" if file else f"line {finding.line}")
    if finding.launch:
        known.append(f"launch {finding.launch}")
    for name, coordinates in (("block", finding.block), ("thread", finding.thread)):
        if coordinates is not None:
            known.append(f"{name} ({','.join(map(str, coordinates))})")
    return f"({', '.join(known)})" if known else ""
