"""What happened in a worker, said at once: a pipe that the worker writes to and cannot take anything back from.

A record in the worker's memory can be erased by the submission that shares it. A line in this pipe has left before the
submission's code goes on. Before each reply but a timed round's the worker writes a mark with the number of lines so
far: a pipe that was closed or led elsewhere lacks the mark or some lines, and that is a finding of its own. What a
submission writes here can only harm itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from harness.errors import SubmissionError
from harness.protocol.wire import Failed, Named, Played, Ran, Reply
from harness.reasons import Reason
from harness.records import Finding

# Lines are written whole where they are no longer than this (pipe(7)), whichever threads write.
MAX_LINE_BYTES = 4096

# More than this in one read, or of one kind between two replies, says nothing new.
MAX_BYTES, MAX_KEPT = 1 << 20, 1000

# A worker that was asked ahead may have answered so often: that it is ready, that it has loaded, and torch.compile's
# that it has compiled.
MAX_MARKS = 3


class Forbidden(Struct, frozen=True, tag="forbidden"):
    """A forbidden operator was called."""

    operator: str


class Found(Struct, frozen=True, tag="found"):
    """A device saw a defect; `finding` as csrc/runtime/findings.cpp writes it."""

    finding: Finding


class Tampered(Struct, frozen=True, tag="tampered"):
    """What records such things is no longer what it was."""

    what: str


class Mark(Struct, frozen=True, tag="mark"):
    """A reply follows. `said` counts the lines before it that the worker's Python wrote."""

    said: int


_Line = Forbidden | Found | Tampered | Mark
_LINES = msgspec.json.Decoder(_Line)


class Witness:
    """The worker's end. What is said has left the process when its function returns.

    Functions that close over what they use, since a submission may replace attributes of modules and classes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.forbidden, self.tampered, self.mark = _speaking(descriptor)


def _speaking(descriptor: int) -> tuple[Callable[[str], None], Callable[[str], None], Callable[[], None]]:
    write, encode, lock, said = os.write, msgspec.json.encode, threading.Lock(), [0]

    def say(line: _Line) -> None:
        with lock:
            said[0] += 1
            write(descriptor, encode(line) + b"\n")

    def mark() -> None:
        with lock:
            write(descriptor, encode(Mark(said[0])) + b"\n")

    return lambda operator: say(Forbidden(operator)), lambda what: say(Tampered(what)), mark


class Testimony:
    """The judge's end: reads what was said so far, and holds each reply against it."""

    def __init__(self, descriptor: int) -> None:
        """Takes `descriptor`, the pipe's end to read from, and does not wait at it."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self._said = 0
        self._marks = 0
        self._forbidden: list[str] = []
        self._findings: list[Finding] = []

    def read(self) -> None:
        """Take in what was said. Raises SubmissionError with tampered for what is none of a worker's lines, for lines
        that are missing, and when the worker says that its recorder was changed."""
        for line in self._lines():
            try:
                self._take(_LINES.decode(line.decode(errors="replace")))  # a kernel's name may be in any encoding
            except msgspec.DecodeError:
                raise _tampered("something that is no record was written into it") from None

    def checked(self, reply: Reply) -> Reply:
        """`reply`, or a failure in its place where it keeps silent about what was said. Raises SubmissionError with
        tampered when no mark came before it. A failure needs none: it is no verdict that anybody would forge. Nor
        does a timed round, whose clock is running; the next reply is marked."""
        if isinstance(reply, Played):
            return reply
        self.read()
        marks, self._marks = self._marks, max(self._marks - 1, 0)
        forbidden, self._forbidden = self._forbidden, []
        findings, self._findings = self._findings, []
        if isinstance(reply, Failed):
            told = _names_a_defect(reply.findings) or reply.reason == Reason.FORBIDDEN_OP
        elif not 1 <= marks <= MAX_MARKS:
            raise _tampered("it was closed, or led elsewhere" if not marks else "marks precede no reply")
        else:
            told = isinstance(reply, Ran | Named) and (
                bool(reply.forbidden) or _names_a_defect(getattr(reply, "findings", ()))
            )
        if told or not (forbidden or findings):
            return reply
        if forbidden:
            return Failed(
                Reason.FORBIDDEN_OP, f"{forbidden[0]} must not run in a submission, which called it.", findings
            )
        return Failed(Reason.RAISED, findings[0].message, findings)

    def close(self) -> None:
        os.close(self._descriptor)

    def _lines(self) -> list[bytes]:
        data = self._rest
        while len(data) < MAX_BYTES:
            try:
                more = os.read(self._descriptor, MAX_BYTES)
            except BlockingIOError:
                break
            if not more:
                break
            data += more
        *lines, self._rest = data.split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise _tampered("something that is no record was written into it")
        return lines

    def _take(self, line: _Line) -> None:
        match line:
            case Forbidden(operator):
                self._said += 1
                self._forbidden += [operator][: MAX_KEPT - len(self._forbidden)]
            case Found(finding):
                self._findings += [finding][: MAX_KEPT - len(self._findings)]
            case Tampered(what):
                raise _tampered(what)
            case Mark(said):
                if said != self._said:
                    raise _tampered(f"{said} records were written and {self._said} arrived")
                self._marks += 1


def _names_a_defect(findings: Iterable[Finding]) -> bool:
    """What the emulator cannot do is none, and must not stand for those that were said here."""
    return any(finding.kind != Reason.UNSUPPORTED_BY_EMULATOR for finding in findings)


def _tampered(what: str) -> SubmissionError:
    return SubmissionError(
        Reason.TAMPERED,
        f"What records forbidden operators and findings in the process that ran it was tampered with: {what}.",
    )
