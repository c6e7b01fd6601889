"""The lines of a submission that a message is about, as values that reports show.

A worker says which lines; the text is the judge's own copy of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.records import Place
from harness.verdict import CodeFrame, CodeLine, Mark

# Lines shown before and behind one that a message is about.
CONTEXT_LINES = 2

# What is shown of a line, in characters.
MAX_LINE = 160

# What compilers put around the part of a line that they speak of: gcc 'x', nvcc "x".
_QUOTED = re.compile(r"['\"‘“]([^'\"‘’“”]{1,80})['\"’”]")

_BEFORE = re.compile(r"\bbefore ['‘]([^'’]+)['’]")

# Said of a line that lacks something behind all that stands in it.
_AT_ITS_END = re.compile(r"^[^'\n]*: expected .* at its end\b", re.MULTILINE)

# A tensor as a finding names it: "of self.weight (321, float32)".
_TENSOR = re.compile(r"\bof ([A-Za-z_][\w.]*) \([\d×]+, \w+\)")

# An element of an array or a tensor, and whether it is assigned to.
_ELEMENT = re.compile(r"[A-Za-z_]\w*\s*\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]")
_ASSIGNS = re.compile(r"\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)")


def code_frame(source: bytes, file: str, places: Sequence[Place], message: str) -> CodeFrame | None:
    """The lines around `places` of the submission `file`, with marks; None where none of them lies in it. Where a place
    has no column, the part of its line that `message` speaks of is marked, or all of it."""
    lines = source.decode(errors="replace").splitlines()
    marks = [
        _mark(place, lines[place.line - 1], message)
        for place in places
        if place.file == file and 1 <= place.line <= len(lines)
    ]
    if not marks:
        return None
    shown = [CodeLine(number=n, text=_printable(lines[n - 1])[:MAX_LINE]) for n in _around(marks, len(lines))]
    return CodeFrame(file=file, lines=shown, marks=marks)


def _around(marks: Sequence[Mark], count: int) -> list[int]:
    """The numbers of the lines that are shown."""
    return sorted({
        line
        for mark in marks
        for line in range(mark.line - CONTEXT_LINES, mark.line + CONTEXT_LINES + 1)
        if 1 <= line <= count
    })  # fmt: skip


def _mark(place: Place, line: str, message: str) -> Mark:
    first, last = _columns(place, line, message)
    begin, end = len(_printable(line[:first])), len(_printable(line[:last]))
    return Mark(
        line=place.line, column=min(begin, MAX_LINE), length=max(1, min(end, MAX_LINE) - begin), label=place.label
    )


def _columns(place: Place, line: str, message: str) -> tuple[int, int]:
    """Where the marked part of a line begins and ends, in characters from 0."""
    if place.column:
        begin = _characters(line, place.column - 1)
        end = _characters(line, place.end_column - 1) if place.end_column > place.column else begin + 1
        return begin, end
    for begin, end in [*_accessed(line, place.label), *_of_tensor(line, message), *_spoken_of(line, place, message)]:
        return begin, end
    return len(line) - len(line.lstrip()), len(line.rstrip())


def _characters(line: str, count: int) -> int:
    """How many characters the first `count` bytes of a line are."""
    return len(line.encode()[:count].decode(errors="ignore"))


def _accessed(line: str, label: str) -> Iterator[tuple[int, int]]:
    """The element that is read or written, by the words of a finding."""
    if not label:
        return
    writes = label.startswith("wr")
    elements = list(_ELEMENT.finditer(line))
    assigned = [found for found in elements if _ASSIGNS.match(line, found.end())]
    for found in assigned if writes else [found for found in elements if found not in assigned]:
        yield found.span()


def _of_tensor(line: str, message: str) -> Iterator[tuple[int, int]]:
    """The element of the tensor that a finding names with its form."""
    if named := _TENSOR.search(message):
        for found in _ELEMENT.finditer(line):
            if re.split(r"\W", found[0])[0] == named[1].rpartition(".")[2]:
                yield found.span()


def _spoken_of(line: str, place: Place, message: str) -> Iterator[tuple[int, int]]:
    """What is quoted in the part of the message that names this line, or in the message."""
    own = [text for text in message.splitlines() if text.startswith(f"{place.file}:{place.line}:")]
    said = "\n".join(own) or message
    if _AT_ITS_END.search(said):
        yield len(line.rstrip()), len(line.rstrip()) + 1
    # "expected ',' or ';' before 'for'" speaks of where 'for' stands.
    for quoted in [*_BEFORE.findall(said), *_QUOTED.findall(said)]:
        found = re.search(rf"(?<!\w){re.escape(quoted)}(?!\w)", line)
        if found:
            yield found.span()


def _printable(line: str) -> str:
    """With blanks for tabs and `?` for what moves a terminal's cursor."""
    return "".join("    " if c == "\t" else c if c.isprintable() else "?" for c in line)
