"""A source with its syntax in colours, and what was found beside the lines that it was found in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from harness.report.site.elements import element, joined
from harness.report.site.languages import coloured_cuda, coloured_python, looks_like_code
from harness.report.site.texts import plain, shortened
from harness.verdict import CaseFailed, CasePassed, Evaluation

# Room for the source on a page: with the rest of the page it stays below 300 kB.
MOST_BYTES = 170_000
MOST_CHARACTERS = 120_000

# Findings of one line that are shown.
MOST_FOUND = 5


@dataclass(frozen=True)
class Line:
    """One line, coloured, and what was found in it."""

    number: int
    code: Markup
    found: Sequence[str] = ()


@dataclass(frozen=True)
class Source:
    """The lines that a page has room for."""

    lines: Sequence[Line]
    left_out: int
    """Lines that it has no room for."""

    @property
    def noted(self) -> list[Line]:
        """The lines with findings."""
        return [line for line in self.lines if line.found]


def source_of(text: str, found: Mapping[int, Sequence[str]], room: int = MOST_BYTES) -> Source:
    """A Python file with C++ and CUDA in it, as much as `room` bytes hold. `found` has what was found, by
    lines from 1."""
    whole = text.count("\n") + (not text.endswith("\n"))
    lines, used = [], 0
    for number, code in enumerate(_coloured(text[:MOST_CHARACTERS]).split("\n"), 1):
        used += len(code) + 12
        if used > room or number > whole:
            break
        lines.append(Line(number, Markup(code), found.get(number, ())[:MOST_FOUND]))
    return Source(lines, whole - len(lines))


def findings_of(evaluation: Evaluation, file: str) -> dict[int, list[str]]:
    """What compilers, the emulator and the judge said of lines of `file`, by these."""
    found: dict[int, list[str]] = {}
    in_messages = (said for message in _messages(evaluation) for said in _said_of_lines(message, file))
    for number, said in (*in_messages, *_marked(evaluation, file), *_bank_conflicts(evaluation)):
        if said not in found.setdefault(number, []):
            found[number].append(said)
    return found


def _failed(evaluation: Evaluation) -> Iterator[CaseFailed]:
    """What the detectors saw before the cases that it led to."""
    if evaluation.finding:
        yield evaluation.finding
    yield from (case for case in evaluation.cases if isinstance(case, CaseFailed))


def _messages(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.reason is not None:
        yield evaluation.message
    yield from (said for case in _failed(evaluation) for said in (case.message, *case.also))


def _marked(evaluation: Evaluation, file: str) -> Iterator[tuple[int, str]]:
    """What happens at the places that the judge marks."""
    told = [(case.frame, str(case.reason), case.message) for case in _failed(evaluation)]
    for frame, reason, message in [(evaluation.frame, str(evaluation.reason), evaluation.message), *told]:
        for mark in frame.marks if frame and frame.file == file else ():
            yield mark.line, f"{reason}: {shortened(mark.label or message.partition(chr(10))[0], 300)}"


def _bank_conflicts(evaluation: Evaluation) -> Iterator[tuple[int, str]]:
    for case in evaluation.cases:
        for count in case.counts if isinstance(case, CasePassed) else ():
            if count.worst_bank_conflict > 1 and count.worst_bank_conflict_line:
                yield (
                    count.worst_bank_conflict_line,
                    f"{count.worst_bank_conflict}-way bank conflict, the worst of {count.kernel}",
                )


def _said_of_lines(message: str, file: str) -> Iterator[tuple[int, str]]:
    """`file:12: text` says it behind the number, and `text (kernel k, file:12)` before it."""
    for words in message[:20_000].splitlines():
        for place in re.finditer(rf"(?<![\w./-]){re.escape(file)}:(\d{{1,7}})(?::(?:\d+:)? *(.*))?", words):
            yield int(place[1]), shortened((place[2] or words).strip(), 300)


# Strings of several lines. One in a comment would be taken for one, which costs a colour.
_LONG_STRINGS = re.compile(r"""([rRbBuUfF]{0,2}(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}))""")


def _coloured(text: str) -> str:
    """HTML without line ends inside its elements. Of Python, and of C++ where a string has lines of it."""
    parts = []
    for number, part in enumerate(_LONG_STRINGS.split(plain(text))):
        if number % 2 == 0:
            parts.append(coloured_python(part))
        elif looks_like_code(part):
            parts.append(coloured_cuda(part))
        else:
            parts.append(element("string", escape(part, quote=False)))
    return joined("".join(parts))
