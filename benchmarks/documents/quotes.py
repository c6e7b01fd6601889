"""Parts of files, quoted in documents so that they cannot drift: definitions of a source, lines of a text."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

GAP = "…"


class QuoteError(Exception):
    """A document quotes what its file does not hold. The message is for whoever edits one of the two."""


def quote(path: Path, names: Sequence[str]) -> str:
    """A fenced block with the named parts of a file.

    Of a Python file these are top-level definitions, of its Python or of the CUDA source in its strings, with
    the comment above each. Of any other file they are the lines that begin with the names, and `…` stands
    where others were left out.
    """
    if path.suffix != ".py":
        return _fenced("text", _lines(path, names))
    text = path.read_text()
    sources = [("cuda", _items(source)) for source in _strings(text)] + [("python", _items(text))]
    found = [_definition(path, sources, name) for name in names]
    (language,) = {language for language, _ in found}  # one block has one language
    return _fenced(language, "\n\n".join(item for _, item in found))


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def _strings(text: str) -> list[str]:
    """The long string constants of a Python file: what it embeds of another language."""
    assigned = [node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    return [v.value for v in assigned if isinstance(v, ast.Constant) and isinstance(v.value, str) and "\n" in v.value]


def _items(source: str) -> list[str]:
    """Top-level items: they stand apart by an empty line, and what follows it begins in the first column."""
    return [item.strip("\n") for item in re.split(r"\n\n+(?=\S)", source)]


def _definition(path: Path, sources: Sequence[tuple[str, list[str]]], name: str) -> tuple[str, str]:
    # The name is what the line introduces: neither a string nor an `=` stands before it.
    defines = re.compile(rf"^(?!\s|//|#|using)[^\"=]*\b{re.escape(name)}\b(?=\(| \{{| =|:)", re.MULTILINE)
    for language, items in sources:
        found = [item for item in items if defines.search(item)]
        if len(found) == 1:
            return language, found[0]
        if found:
            raise QuoteError(f"{path.name} defines {name} {len(found)} times; quote something that it defines once.")
    raise QuoteError(f"{path.name} has no top-level definition of {name}; correct the quote's names.")


def _begins(line: str, beginning: str) -> bool:
    """Wherever it is indented to."""
    return line.lstrip().startswith(beginning)


def _lines(path: Path, beginnings: Sequence[str]) -> str:
    lines = [line.rstrip() for line in path.read_text().splitlines()]
    kept = [any(_begins(line, beginning) for beginning in beginnings) for line in lines]
    for beginning in beginnings:
        if not any(_begins(line, beginning) for line in lines):
            raise QuoteError(f"{path.name} has no line that begins with {beginning!r}; correct the quote.")
    shown: list[str] = []
    for line, keep in zip(lines, kept, strict=True):
        if keep:
            shown.append(line)
        elif shown and shown[-1] != GAP:
            shown.append(GAP)
    return "\n".join(shown).removesuffix(f"\n{GAP}")
