"""`__shared__` variables at namespace scope. No thread runs yet where the declaration stands, so that each use looks
the memory up. A pass of its own before all others, which copy parts of the text."""

from __future__ import annotations

from harness.device.emulator.translate import hidden, shared
from harness.device.emulator.translate.lexer import Edits, Source
from harness.device.emulator.translate.scopes import at_namespace_scope


def _namespaces(source: Source, i: int, around: list[int]) -> set[str]:
    """Names of the namespaces that the token stands in, as far as this source opens them."""
    found, opening = set(), around[i]
    while opening >= 0:
        head = range(source.statement_start(opening), opening)
        found |= {source.at(k) for k in head if source.tokens[k].kind == "name"}
        opening = around[opening]
    return found


def _qualified(source: Source, i: int) -> int:
    """First token of the name with the namespaces before it."""
    while source.at(i - 1) == "::":
        i -= 1
        if i > 0 and source.tokens[i - 1].kind == "name":
            i -= 1
    return i


def _uses(source: Source, name: str, after: int, scopes: list[bool], around: list[int]) -> list[tuple[int, int]]:
    """First and last token of each use of the variable behind its declaration."""
    own, known, found = hidden.ranges(source, name, scopes), _namespaces(source, after, around), []
    for i in range(after, len(source.tokens)):
        if source.at(i) != name or source.at(i - 1) in (".", "->"):
            continue
        first = _qualified(source, i)
        foreign = first < i - 1 and source.at(i - 2) not in known
        if not foreign and not any(begin <= i <= end for begin, end in own):
            found.append((first, i))
    return found


def rewrite(text: str) -> str:
    """The text with all of them rewritten; its lines stay where they are. Raises CannotRead."""
    source = Source(text)
    edits, scopes, around = Edits(source), at_namespace_scope(source), hidden.openings(source)
    for first, last in shared.declarations(source):
        if not scopes[first]:
            continue
        structs, _, found = shared.variables(source, first, last)
        edits.replace_tokens(first, last, structs or "static_assert(true)")
        for name, value in found:
            for begin, end in _uses(source, name, last, scopes, around):
                qualifier = source.slice(begin, end) if begin < end else ""
                edits.replace_tokens(begin, end + 1, f"({value.replace('<emu_', f'<{qualifier}emu_')})")
    return edits.apply()
