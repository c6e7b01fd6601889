"""What of a source stands in functions and classes, and what in namespaces."""

from __future__ import annotations

from harness.device.emulator.translate.lexer import Source


def at_namespace_scope(source: Source) -> list[bool]:
    """For each token, whether it stands at namespace scope."""
    at_namespace: list[bool] = []
    stack: list[bool] = []
    for i, token in enumerate(source.tokens):
        at_namespace.append(all(stack))
        if token.text == "{":
            stack.append(_opens_namespace(source, i))
        elif token.text == "}" and stack:
            stack.pop()
    return at_namespace


def _opens_namespace(source: Source, brace: int) -> bool:
    """Whether the brace at this token is that of a namespace or of `extern "C"`."""
    i = brace - 1
    if source.at(i).startswith('"'):
        return source.at(i - 1) == "extern"
    while source.at(i) == "::" or (i >= 0 and source.tokens[i].kind == "name" and source.at(i) != "namespace"):
        i -= 1
    return source.at(i) == "namespace"
