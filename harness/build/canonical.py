"""C++ and CUDA without what a compiler does not look at: sources that differ in comments and blanks become one text.

It is this text that is built, so that a build depends on nothing else. Each line stays on its own, for what compilers
and detectors say of it. A source in which it is not sure what a comment is stays as it is: one with a line that is
continued outside of macros, with a trigraph, with a character that is neither text nor a blank.
"""

from __future__ import annotations

import re

# What is read before comments are, and blanks that are none of the space, the tab and the end of a line. Spliced lines
# are looked for apart: definitions of macros have them.
_ODD = re.compile(r"\?\?|%:|[\0-\b\v-\x1f\x7f]")
_SPLICE = re.compile(r"\\[ \t]*\n")

# Where <…> and "…" may be a header's name, in which a comment's beginning is none.
_NAMES_HEADERS = re.compile(r"include|import|embed|dependency|__has_")

_RAW_STRING = frozenset({"R", "LR", "uR", "UR", "u8R"})
_RAW_OPENS = re.compile(r'"([^ ()\\\t\v\f\n]{0,16})\(')

# Parts of a source, in the order in which they are looked for ([lex.pptoken]). A quote ends on its line, and so a
# missing one is none of them.
_TOKEN = re.compile(
    r"""
      (?P<newline>\n)
    | (?P<blank>[ \t]+)
    | (?P<line_comment>//[^\n]*)
    | (?P<comment>/\*.*?\*/)
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
    | (?P<character>'(?:[^'\\\n]|\\[^\n])*')
    | (?P<number>\.?[0-9](?:[eEpP][+-]|'(?=\w)|[\w.$]|[^\x00-\x7f])*)
    | (?P<word>(?:[\w$]|[^\x00-\x7f])+)
    | (?P<other>/(?![/*])|[^\n \t"'/\w$])
    """,
    re.VERBOSE | re.DOTALL,
)
_LOGICAL_LINE = re.compile(r"(?:\\[ \t]*\n|[^\n])*")
_INCLUDE = re.compile(r"(#[ \t]*include[ \t]*(?:<[^>\n]*>|\"[^\"\n]*\"))[ \t]*//[^\\]*")
_COMMENT_ON_ITS_LINE = re.compile(r"//.*|/\*.*?\*/")


# Looking for comments in a line may take its length's square.
MAX_DIRECTIVE = 10_000


class _NotSure(Exception):
    """The source may be read in more than one way."""


def canonical(source: str) -> str:
    """`source` with each comment and each run of blanks as one blank, and none at the ends of lines; a comment of
    several lines keeps them. As it is where it cannot be told for sure what is a comment."""
    if _ODD.search(source):
        return source
    try:
        return _stripped(source)
    except _NotSure:
        return source


def _stripped(source: str) -> str:
    """Raises _NotSure."""
    parts: list[str] = []
    at, fresh = 0, True  # whether only blanks and comments stand before on this line
    while at < len(source):
        if fresh and source[at] == "#":
            directive, at = _directive(source, at)
            parts.append(directive)
            continue
        found = _TOKEN.match(source, at)
        if not found:
            raise _NotSure
        kind, text = str(found.lastgroup), found[0]
        at = found.end()
        if kind == "word" and text in _RAW_STRING and source[at : at + 1] == '"':
            rest = _raw_string(source, at)
            text, at = text + rest, at + len(rest)
        elif _SPLICE.search(source, found.start(), at + 1) or (text == "\\" and _SPLICE.match(source, at - 1)):
            raise _NotSure
        _add(parts, kind, text)
        fresh = kind == "newline" or (fresh and kind in ("blank", "line_comment", "comment"))
    _end_line(parts)
    return "".join(parts)


def _add(parts: list[str], kind: str, text: str) -> None:
    if kind == "newline":
        _end_line(parts)
        parts.append(text)
    elif kind == "comment" and "\n" in text:
        parts.append("/*" + "\n" * text.count("\n") + "*/")
    elif kind in ("blank", "line_comment", "comment"):
        if parts and parts[-1][-1] not in " \n":
            parts.append(" ")
    else:
        parts.append(text)


def _end_line(parts: list[str]) -> None:
    if parts and parts[-1] == " ":
        parts.pop()


def _directive(source: str, at: int) -> tuple[str, int]:
    """A directive without those of its comments that are sure to be some, and where its line ends. Raises _NotSure
    where it may go on behind the line."""
    found = _LOGICAL_LINE.match(source, at)
    assert found is not None
    text = found[0]
    if 'R"' in text or len(text) > MAX_DIRECTIVE:
        raise _NotSure
    if include := _INCLUDE.fullmatch(text):
        return include[1], found.end()
    if not (_SPLICE.search(text) or _NAMES_HEADERS.search(text) or '"' in text or "'" in text):
        text = _COMMENT_ON_ITS_LINE.sub(" ", text)
    if "/*" in text:
        raise _NotSure
    return text.rstrip(" \t"), found.end()


def _raw_string(source: str, at: int) -> str:
    """A raw string from its quote on. Raises _NotSure for one that does not end."""
    opens = _RAW_OPENS.match(source, at)
    end = source.find(f'){opens[1]}"', opens.end()) if opens else -1
    if not opens or end < 0:
        raise _NotSure
    return source[at : end + len(opens[1]) + 2]
