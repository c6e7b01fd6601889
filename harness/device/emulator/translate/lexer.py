"""C++ text as tokens with positions, and the brackets among them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:[^\\\n]|\\(?:.|\n))*|/\*.*?\*/)
  | (?P<raw>(?:u8|u|U|L)?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|u|U|L)?"(?:[^"\\\n]|\\(?:.|\n))*")
  | (?P<char>(?:u8|u|U|L)?'(?:[^'\\\n]|\\.)+')
  | (?P<name>[A-Za-z_$][\w$]*)
  | (?P<number>\.?\d(?:[\w.]|'[\w]|(?<=[eEpP])[+-])*)
  | (?P<mark>::|->|\#\#|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPERATORS = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"}  # of which each character is a token
_CLOSES = {")": "(", "]": "[", "}": "{"}

# Words of a declaration that parentheses of their own follow.
WITH_ARGUMENTS = ("__align__", "alignas", "__attribute__", "__declspec__")

# What is likely a macro, which may stand for any marks.
MACRO_NAME = re.compile(r"_*[A-Z][A-Z0-9_]+")


@dataclass(frozen=True)
class Token:
    """One word of the source: `kind` is name, number, string, raw, char or mark."""

    kind: str
    text: str
    start: int
    end: int


class Source:
    """A text, its tokens without comments, and for each bracket the index of its partner."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = [
            Token(str(m.lastgroup if m.lastgroup != "delimiter" else "raw"), m.group(), m.start(), m.end())
            for m in _TOKEN.finditer(text)
            if m.lastgroup != "comment" and m.group() != "\\"  # which ends a line that goes on
        ]
        self._line_starts = [0] + [m.end() for m in re.finditer("\n", text)]
        self.partner = self._match_brackets()

    def _match_brackets(self) -> dict[int, int]:
        partner: dict[int, int] = {}
        open_at: list[int] = []
        for i, token in enumerate(self.tokens):
            if token.text in ("(", "[", "{"):
                open_at.append(i)
            elif token.text in _CLOSES and token.kind == "mark":
                if not open_at:
                    continue
                if self.tokens[open_at[-1]].text == _CLOSES[token.text]:
                    start = open_at.pop()
                    partner[start], partner[i] = i, start
        return partner

    def line(self, index: int) -> int:
        """Line of a token in this text, counted from 1."""
        return bisect_right(self._line_starts, self.tokens[index].start)

    def at(self, index: int) -> str:
        """Text of a token, or nothing beyond the ends."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def slice(self, first: int, last: int) -> str:
        """Source text of the tokens first, ..., last - 1."""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end] if last > first else ""

    def closing_angle(self, index: int) -> int:
        """The `>` that closes the `<` at `index`, or -1 when that is no template list."""
        depth, i = 0, index
        while i < len(self.tokens):
            text = self.at(i)
            if text in ("(", "[", "{"):
                i = self.partner.get(i, len(self.tokens))
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in (";", "}"):
                return -1
            i += 1
        return -1

    def opening_angle(self, index: int) -> int:
        """The `<` that the `>` at `index` closes, or -1."""
        depth, i = 0, index
        while i >= 0:
            text = self.at(i)
            if text in (")", "]", "}"):
                i = self.partner.get(i, -1)
            elif text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    return i
            elif text in (";", "{"):
                return -1
            i -= 1
        return -1

    def split(self, first: int, last: int) -> list[tuple[int, int]]:
        """The token range cut at its outermost commas, template lists respected."""
        parts, begin, i = [], first, first
        while i < last:
            text = self.at(i)
            if text in ("(", "[", "{"):
                i = self.partner.get(i, i)
            elif text == "<":
                close = self.closing_angle(i)
                i = close if 0 <= close < last else i
            elif text == ",":
                parts.append((begin, i))
                begin = i + 1
            i += 1
        if last > begin or parts:
            parts.append((begin, last))
        return parts

    def statement_start(self, index: int) -> int:
        """First token of the declaration or statement that holds the token at `index`."""
        i = index - 1
        while i >= 0 and self.at(i) not in (";", "{", "}", "#"):
            i = self.partner.get(i, i) if self.at(i) in (")", "]") else i
            i -= 1
        if self.at(i) == "#":  # a directive ends with its line
            first = i + 1
            while first < index and self.line(first) == self.line(i):
                first += 1
            return first
        return i + 1


def in_directives(source: Source) -> list[bool]:
    """For each token, whether it belongs to a preprocessor directive, continued lines included."""
    inside, end, line_seen = [], -1, 0
    for i, token in enumerate(source.tokens):
        line = source.line(i)
        if token.text == "#" and line != line_seen and token.start > end:
            end = token.start
            while (end := source.text.find("\n", end)) >= 0 and source.text[end - 1] == "\\":
                end += 1
            end = len(source.text) if end < 0 else end
        line_seen = line
        inside.append(token.start < end)
    return inside


class Edits:
    """Replacements of parts of a text; each keeps the number of lines it replaces."""

    def __init__(self, source: Source):
        self._source = source
        self._edits: list[tuple[int, int, str]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        """Put `text` in place of the characters start, ..., end - 1."""
        missing = self._source.text.count("\n", start, end) - text.count("\n")
        line_end = "\\\n" if "\\\n" in self._source.text[start:end] else "\n"  # a macro goes on behind it
        self._edits.append((start, end, text + line_end * max(0, missing)))

    def replace_tokens(self, first: int, last: int, text: str) -> None:
        """Put `text` in place of the tokens first, ..., last - 1."""
        tokens = self._source.tokens
        self.replace(tokens[first].start, tokens[last - 1].end, text)

    def insert_behind(self, index: int, text: str) -> None:
        """Put `text` behind the token at `index`."""
        end = self._source.tokens[index].end
        self._edits.append((end, end, text))

    def apply(self) -> str:
        """The text with all replacements made."""
        out, at = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):  # those of one place in their order
            out += [self._source.text[at:start], text]
            at = end
        return "".join(out) + self._source.text[at:]


def one_line(text: str) -> str:
    """Text fit to be repeated elsewhere: without comments and line breaks."""
    words: list[str] = []
    end = -1
    for token in Source(text).tokens:
        operator = words and token.start == end and words[-1] + token.text in _OPERATORS
        words += [token.text] if not words or operator else [" ", token.text]
        end = token.end
    return "".join(words)


def defined_macros(source: Source) -> set[str]:
    """Names of macros that the source itself defines."""
    tokens = range(len(source.tokens) - 2)
    return {source.at(i + 2) for i in tokens if source.at(i) == "#" and source.at(i + 1) == "define"}


def last_outside(skipped: list[bool], index: int) -> int:
    """The last token before the one at `index` that `skipped`, which says it of each, puts in no directive; or -1."""
    index -= 1
    while index >= 0 and skipped[index]:
        index -= 1
    return index
