"""A source with its syntax in colours, and what was found beside the lines that it was found in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup
from pygments.lexers import PythonLexer
from pygments.token import Token, _TokenType

from harness.report.site.cuda import QuickCuda, looks_like_code
from harness.report.site.texts import plain, shortened
from harness.verdict import CaseFailed, CasePassed, Evaluation

# Room for the source on a page: with the rest of the page it stays below 300 kB.
MOST_BYTES = 170_000
MOST_CHARACTERS = 120_000

# Findings of one line that are shown.
MOST_FOUND = 5

# Elements that say nothing to a screen reader, and are short: a source has thousands.
_TAGS: tuple[tuple[_TokenType, str, str], ...] = (
    (Token.Comment.Preproc, "<b class=p>", "</b>"),
    (Token.Comment.PreprocFile, "<b class=p>", "</b>"),
    (Token.Comment, "<i>", "</i>"),
    (Token.Keyword.Type, "<b class=t>", "</b>"),
    (Token.Keyword, "<b>", "</b>"),
    (Token.Literal.String, "<u>", "</u>"),
    (Token.Literal.Number, "<b class=n>", "</b>"),
    (Token.Name.Builtin, "<b class=t>", "</b>"),
)


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
    for number, code in enumerate(_lines(_coloured(text[:MOST_CHARACTERS])), 1):
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


def _coloured(text: str) -> Iterator[str]:
    """HTML without line ends inside its elements."""
    for (before, after), value in _merged(_tokens(plain(text))):
        escaped = escape(value, quote=False)
        if "\n" not in escaped:
            yield f"{before}{escaped}{after}"
            continue
        for number, part in enumerate(escaped.split("\n")):
            if number:
                yield "\n"
            if part:
                yield f"{before}{part}{after}" if before and not part.isspace() else part


def _lines(parts: Iterator[str]) -> Iterator[str]:
    line: list[str] = []
    for part in parts:
        if part == "\n":
            yield "".join(line)
            line = []
        else:
            line.append(part)
    if line:
        yield "".join(line)


def _merged(tokens: Iterator[tuple[_TokenType, str]]) -> Iterator[tuple[tuple[str, str], str]]:
    """Neighbours in one element are one; so is space between them."""
    tags, begun = ("", ""), ""
    for kind, value in tokens:
        found = _tags_of(kind)
        if found == tags or value.isspace():
            begun += value
            continue
        if begun:
            yield tags, begun
        tags, begun = found, value
    if begun:
        yield tags, begun


# Strings of several lines. One in a comment would be taken for one, which costs a colour.
_LONG_STRINGS = re.compile(r"""([rRbBuUfF]{0,2}(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}))""")
_PYTHON, _CUDA = PythonLexer(), QuickCuda()


def _tokens(text: str) -> Iterator[tuple[_TokenType, str]]:
    """Of Python, and of C++ where a string has lines of it. No lexer sees the text as a whole and changes it: lines
    keep their numbers."""
    for number, part in enumerate(_LONG_STRINGS.split(text)):
        if number % 2 == 0:
            yield from ((kind, value) for _, kind, value in _PYTHON.get_tokens_unprocessed(part))
        elif looks_like_code(part):
            yield from ((kind, value) for _, kind, value in _CUDA.get_tokens_unprocessed(part))
        else:
            yield Token.Literal.String, part


_KNOWN: dict[_TokenType, tuple[str, str]] = {}


def _tags_of(kind: _TokenType) -> tuple[str, str]:
    if kind not in _KNOWN:
        _KNOWN[kind] = next(((before, after) for of, before, after in _TAGS if kind in of), ("", ""))
    return _KNOWN[kind]
