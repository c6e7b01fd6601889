"""Where a source means a variable, parameter or member of its own by a name that stands for something else outside.

A guess by the tokens, without a table of types: `a * b;` counts as a declaration, `f(a * b);` does not."""

from __future__ import annotations

from harness.device.emulator.translate.lexer import Source, in_directives

_BEFORE_A_USE = {"return", "else", "do", "case", "throw", "sizeof", "decltype", "co_return", "and", "or", "not", "goto"}
_CLASSES = {"struct", "class", "union"}
_CONTROL = {"if", "while", "switch", "constexpr", "for"}
_BEHIND_A_NAME = {"=", ";", "[", "(", "{", ",", ")", ":", ">"}
_BEHIND_PARAMETERS = {"{", "const", "noexcept", "mutable", "override", "final", ":", "-"}


def openings(source: Source) -> list[int]:
    """For each token the parenthesis or brace that it stands in, or -1."""
    found: list[int] = []
    stack = [-1]
    for i, token in enumerate(source.tokens):
        if token.text in (")", "}") and len(stack) > 1:
            stack.pop()
        found.append(stack[-1])
        if token.text in ("(", "{"):
            stack.append(i)
    return found


def _type_start(source: Source, i: int) -> int:
    """First token of what may be a type before the token; the token itself where nothing is."""
    k = i
    while k > 0:
        before = source.tokens[k - 1]
        if before.text == ">" and source.opening_angle(k - 1) >= 0:
            k = source.opening_angle(k - 1)
        elif before.text in ("&", "*", "::", "...") or (before.kind == "name" and before.text not in _BEFORE_A_USE):
            k -= 1
        else:
            break
    return k


def _declares(source: Source, i: int, opening: int, outside: bool) -> bool:
    """Whether the token, whose innermost parenthesis or brace is given, is the name in a declaration."""
    if source.at(i - 1) == "::" or source.at(i + 1) not in _BEHIND_A_NAME:
        return False
    start = _type_start(source, i)
    typed = start < i and source.tokens[start].kind == "name"
    if opening < 0 or source.at(opening) == "{":
        return (typed and source.at(start - 1) in ("", ";", "{", "}", ":", "<", ",")) or _in_list(source, i)
    if source.at(start - 1) not in ("(", ","):
        return False
    directly = typed and source.tokens[i - 1].kind == "name"
    if source.at(opening - 1) in _CONTROL:
        return typed and source.at(i + 1) in ("=", ":") and source.at(i + 2) != "="
    behind = source.at(source.partner.get(opening, -1) + 1)
    return typed and (directly or outside or behind in _BEHIND_PARAMETERS)


def _in_list(source: Source, i: int) -> bool:
    """Whether the token stands behind a comma in a list of declarations, as b in `float a, *b;`."""
    k = i - 1
    while source.at(k) == "*":
        k -= 1
    first = source.statement_start(i)
    if source.at(k) != "," or any(source.partner.get(j, -1) > i for j in range(first, i)):
        return False
    words = [
        source.tokens[j] for j in range(first, i) if source.at(j) not in ("*", "&", "const", "static", "constexpr")
    ]
    return len(words) > 1 and words[0].kind == words[1].kind == "name" and words[0].text not in _BEFORE_A_USE


def _end(source: Source, i: int) -> int:
    """Last token of the function, loop or prototype whose head holds the token."""
    while i < len(source.tokens) and source.at(i) not in ("{", ";"):
        i = source.partner.get(i, i) + 1 if source.at(i) in ("(", "[") else i + 1
    return source.partner.get(i, i)


def _range(source: Source, i: int, opening: int) -> tuple[int, int]:
    if opening >= 0 and source.at(opening) == "(":
        return i, _end(source, source.partner.get(opening, i) + 1)
    if opening < 0:
        return i, _end(source, i)
    head = range(source.statement_start(opening), opening)
    in_class = any(source.at(k) in _CLASSES for k in head) and not any(source.at(k) == ")" for k in head)
    return (opening if in_class else i), source.partner.get(opening, i)


def ranges(source: Source, name: str, scopes: list[bool]) -> list[tuple[int, int]]:
    """First and last token of each part in which `name` is one that the part declares. `scopes` says for each token
    whether it stands at namespace scope."""
    around, skipped = openings(source), in_directives(source)
    found = []
    for i, token in enumerate(source.tokens):
        if token.text != name or skipped[i]:
            continue
        in_namespace = scopes[i] and source.at(around[i]) != "("
        opening = -1 if in_namespace else around[i]
        if _declares(source, i, opening, scopes[i]):
            found.append(_range(source, i, opening))
    return found
