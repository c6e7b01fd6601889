"""Where in a Python file a piece of C++ stands, so that compilers can name the file's own lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from harness.errors import NOT_PARSED
from harness.protocol.extension import SourceText

# A shorter fragment can stand in a text by chance.
MIN_FRAGMENT_LINES = 3


def locate(text: str, path: Path) -> SourceText:
    """`text` with its line in the Python file at `path`; line 0 when it was computed and is not found.

    A text is found as a whole string literal, or as one that holds a literal of some lines (as a
    concatenation or a replaced template does): then the literal's line gives that of the whole.
    """
    try:
        literals = list(_literals(path))
    except (OSError, *NOT_PARSED):
        return SourceText(text)
    for value, line in literals:
        if value == text:
            return SourceText(text, path.name, line)
    fragments = [(v, n) for v, n in literals if v.count("\n") >= MIN_FRAGMENT_LINES and v in text]
    if not fragments:
        return SourceText(text)
    value, line = max(fragments, key=lambda item: len(item[0]))
    line -= text.count("\n", 0, text.index(value))
    return SourceText(text, path.name, line) if line > 0 else SourceText(text)


def _literals(path: Path) -> Iterator[tuple[str, int]]:
    """String literals and the line their value begins on; a literal's value begins where its quotes open."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno
