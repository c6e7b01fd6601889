"""Elements that colour a source. They say nothing to a screen reader, and are short: a source has thousands."""

from __future__ import annotations

import re

_TAGS = {
    "preproc": ("<b class=p>", "</b>"),
    "comment": ("<i>", "</i>"),
    "type": ("<b class=t>", "</b>"),
    "keyword": ("<b>", "</b>"),
    "string": ("<u>", "</u>"),
    "number": ("<b class=n>", "</b>"),
}

# An element, space, and the beginning of another of its kind.
_NEIGHBOURS = re.compile(r"(<(\w)[^>]*>)([^<]*)</\2>([ \t]*)\1")


def element(kind: str, code: str) -> str:
    """Escaped `code` in the elements of its kind, one a line; as it is where the kind has none."""
    before, after = _TAGS.get(kind, ("", ""))
    if not before:
        return code
    return "\n".join(f"{before}{line}{after}" if line.strip() else line for line in code.split("\n"))


def joined(html: str) -> str:
    """With neighbours of one kind as one element."""
    found = 1
    while found:
        html, found = _NEIGHBOURS.subn(r"\1\3\4", html)
    return html
