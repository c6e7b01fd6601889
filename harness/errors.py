"""One tree of errors, a sentence each; the command line turns each into an exit code."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from harness.reasons import Reason
from harness.records import Place

# What is said where somebody ends a run, by the keyboard or by SIGTERM.
INTERRUPTED = "Stopped by the keyboard or by SIGTERM; what had not finished says nothing."


class KernelgateError(Exception):
    """The base of every error that the harness raises. Its text is a sentence."""


class UsageError(KernelgateError):
    """The command line or a problem file is wrong. Exit code 2."""


class ReferenceFault(UsageError):
    """A problem's reference cannot be judged with: it fails, draws random numbers, or keeps something."""


class HarnessError(KernelgateError):
    """The harness or the device failed; nothing is said about the submission. Exit code 3."""


class Interrupted(HarnessError):
    """Somebody wants the run to end, by the keyboard or by SIGTERM."""


class StoppedWhileTimed(KeyboardInterrupt):
    """Somebody ends the run while a submission is timed. `evaluation`, a verdict.Accepted, has the times that are
    known."""

    def __init__(self, evaluation: Any) -> None:
        self.evaluation = evaluation
        super().__init__()


class JudgeFailed(KernelgateError):
    """A process of the judge's own failed. Nothing is said about the submission that was being judged, and the next one
    is judged with new processes."""


class Stopped(KernelgateError):
    """Judging or timing one implementation came to an end, and `reason` is why."""

    def __init__(self, reason: Reason, message: str, places: Sequence[Place] = (), also: Sequence[str] = ()) -> None:
        """`message` may hold words of the submission's: characters that move a terminal's cursor are taken out. It is
        about `places` of the submission's source. `also` says what was seen beside it, a sentence each."""
        self.also = tuple(map(printable, also))
        self.reason = reason
        self.places = tuple(places)
        self.message = printable(message)
        super().__init__(self.message)


class SubmissionError(Stopped):
    """The submission failed, which rejects it."""


class Inconclusive(Stopped):
    """Nothing is said about the submission: it did nothing wrong that could be seen. Only the judge finds that out. The
    one thing that a worker's word decides is what the emulator cannot do."""


class NotCaptured(Inconclusive):
    """The calls of an implementation cannot be CUDA graphs, or not on its word: it has no captured time. `message` is
    CUDA's reason."""

    def __init__(self, why: str) -> None:
        super().__init__(Reason.RAISED, why)


# What Python's parser raises for text that is no Python, or is nested too deep for it.
NOT_PARSED = (SyntaxError, ValueError, RecursionError, MemoryError)


# What is said where memory is not enough: by PyTorch on a CPU, and by CUDA's runtime, its driver, harness.device.driver
# and Triton for what PyTorch's allocator has no part in, such as graphs, modules and local memory.
WANTS_MEMORY = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "[CUDA]: out of memory",
)


def out_of_memory(error: BaseException) -> bool:
    """Whether PyTorch, Python or the system says that the device's or the machine's memory is not enough."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    said = str(error)
    return type(error).__name__ == "OutOfMemoryError" or any(words in said for words in WANTS_MEMORY)


@contextlib.contextmanager
def memory_is_said(what: str) -> Iterator[None]:
    """Where the judge's own memory is not enough for `what`, Inconclusive says so, and holds nothing that was there."""
    said = ""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not out_of_memory(error):
            raise
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if said:  # out here: an error that is handled keeps the tensors of all that it passed
        raise Inconclusive(
            Reason.NOT_ENOUGH_MEMORY,
            f"The judge has not enough memory for {what}. It keeps the inputs and what must come out, in float64, "
            f"several times. Make the shapes smaller, or free memory. ({said})",
        )


@contextlib.contextmanager
def of_the_judge(what: str) -> Iterator[None]:
    """What fails in here is no submission's doing: what stops it becomes JudgeFailed, which names `what`."""
    try:
        yield
    except Stopped as error:
        raise JudgeFailed(f"{what} failed, not the submission: {error.message}") from error


def one_line(text: str) -> str:
    """As `printable`, line ends too: a file's name may hold anything."""
    return printable(text).replace("\n", "?")


def name_of(file: Path) -> str:
    """What reports and the database call the problem or the submission in a file, whose name may be no UTF-8."""
    return one_line(file.stem)


def printable(text: str) -> str:
    """`text` with its control characters, line ends aside, as `?`."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c in "\t\r" else "?" for c in text)


_TYPES = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing",
    "array": "a list", "object": "a table",
}  # fmt: skip


def misfit(error: Exception) -> str:
    """What msgspec.ValidationError says of a value, for people: 'limit_s: expected a number, got a text'."""
    said, _, place = str(error).partition(" - at `$")
    said = re.sub(r"^Object contains unknown field `(.*)`$", r"there is no '\1'", said)
    said = re.sub(r"^Object missing required field `(.*)`$", r"'\1' is missing", said)
    said = re.sub(r"^Invalid enum value (.*)$", r"\1 is none of its values", said)
    said = re.sub(r"`([^`]*)`", lambda found: _type(found[1]), said)
    where = place.rstrip("`").lstrip(".")
    return f"{where}: {said[:1].lower()}{said[1:]}" if where else said


def misfit_of_few(hints: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The values of the first of `given` whose type, in `hints`, has a few and no such one; empty where there is none.
    Of a list each value counts."""
    for name, value in given.items():
        few = _few(hints.get(name))
        several = isinstance(value, list | tuple)
        for each in value if several else [value]:
            if few and each is not None and each not in few:
                what = f"each of {name}" if several else name
                return f"{what} is one of {', '.join(map(str, few))}, and {each!r} was given"
    return ""


def _few(hint: Any) -> list[Any]:
    """The values of a type that has a few, and of a union or a list with such a one; none for others."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for of in get_args(hint) for value in _few(of)]


def _type(named: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in named.split(" | "))


def a_type(value: object) -> str:
    """What a value is, in a sentence: 'a str', 'an int'."""
    name = str(type(value).__name__)
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
