"""The errors that a user can cause, a sentence each; the command line turns each into an exit code."""

from __future__ import annotations


class UsageError(Exception):
    """The command line or a problem file is wrong. Exit code 2."""


class HarnessError(Exception):
    """The harness or the device failed; nothing is said about the submission. Exit code 3."""


class SubmissionError(Exception):
    """The submission failed in a way that rejects it; `reason` is the machine's word for it."""

    def __init__(self, reason: str, message: str) -> None:
        """`message` may hold words of the submission's: characters that move a terminal's cursor are taken out."""
        self.reason = printable(reason)
        self.message = printable(message)
        super().__init__(self.message)


class Inconclusive(SubmissionError):
    """Judging ended without a verdict, through nothing that the submission did. Only the judge itself finds that out:
    no word of a worker makes it so."""


def printable(text: str) -> str:
    """`text` with its control characters, line ends aside, as `?`."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c in "\t\r" else "?" for c in text)
