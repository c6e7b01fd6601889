"""`__shared__` variables: one per block, hence found through the running thread."""

from __future__ import annotations

from harness.device.emulator.translate.launches import CannotRead
from harness.device.emulator.translate.lexer import Edits, Source, one_line

_STORAGE = ("extern", "static", "__shared__")


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
    i = brace - 1
    if source.at(i).startswith('"'):
        return source.at(i - 1) == "extern"
    while source.at(i) == "::" or (i >= 0 and source.tokens[i].kind == "name" and source.at(i) != "namespace"):
        i -= 1
    return source.at(i) == "namespace"


def _type_of(source: Source, first: int, last: int) -> tuple[str, str]:
    """Alignment and type of the declaration in these tokens, without storage words."""
    kept, alignment, i = [], "", first
    while i < last:
        if source.at(i) in ("__align__", "alignas") and source.at(i + 1) == "(":
            close = source.partner[i + 1]
            alignment += f"alignas({one_line(source.slice(i + 2, close))}) "
            i = close
        elif source.at(i) not in _STORAGE:
            kept.append(source.at(i))
        i += 1
    return alignment, " ".join(kept)


def _declarator(source: Source, first: int, last: int) -> tuple[int, int]:
    """Token indices of a declarator's name and of the end of its array bounds."""
    i = last - 1
    while i > first and source.at(i) == "]":
        i = source.partner[i] - 1
    return i, last


def _dynamic(source: Source, edits: Edits, first: int, last: int, next_line: int) -> None:
    """`next_line` is not 0 at namespace scope: the number of the line on which the declaration ends."""
    name, _ = _declarator(source, first, last)
    if source.at(name + 1) != "[":
        raise CannotRead(first, "this extern __shared__ declaration")
    _, type_text = _type_of(source, first, name)
    pointer = f"reinterpret_cast<{type_text}*>(::emu::dynamic_shared())"
    if not next_line:
        edits.replace_tokens(first, last, f"{type_text}* {source.at(name)} = {pointer}")
        return
    # No thread runs yet where the declaration stands, so that each use must look the memory up.
    text = f"\n#define {source.at(name)} ({pointer})\n#line {next_line}\n"
    edits.replace(source.tokens[first].start, source.tokens[last].end, text)


def _static(source: Source, edits: Edits, first: int, last: int) -> None:
    parts = source.split(first, last)
    name, _ = _declarator(source, *parts[0])
    if source.tokens[name].kind != "name" or name <= first:
        raise CannotRead(first, "this __shared__ declaration")
    alignment, type_text = _type_of(source, first, name)
    declared = [(name, parts[0][1])] + [(_declarator(source, *part)[0], part[1]) for part in parts[1:]]
    texts = []
    for at, end in declared:
        variable = source.at(at)
        tag = f"emu_shared_{source.tokens[at].start}_{variable}"
        bounds = one_line(source.slice(at + 1, end))
        texts.append(
            f"struct {tag} {{ {alignment}{type_text} {variable}{bounds}; }}; "
            f"auto& {variable} = ::emu::shared<{tag}>().{variable}"
        )
    edits.replace_tokens(first, last, "; ".join(texts))


def rewrite(source: Source, edits: Edits, first_line: int) -> None:
    """Rewrite all declarations of shared variables; the source begins at line `first_line` of its file."""
    scopes = at_namespace_scope(source)
    for i, token in enumerate(source.tokens):
        if token.text != "__shared__":
            continue
        first, last = source.statement_start(i), i
        while last < len(source.tokens) and source.at(last) != ";":
            last = source.partner.get(last, last) + 1 if source.at(last) in ("(", "[", "{") else last + 1
        if last == len(source.tokens):
            raise CannotRead(i, "this __shared__ declaration")
        if any(source.at(k) == "extern" for k in range(first, last)):
            line = source.line(last) + first_line - 1
            _dynamic(source, edits, first, last, line if scopes[i] else 0)
        else:
            _static(source, edits, first, last)
