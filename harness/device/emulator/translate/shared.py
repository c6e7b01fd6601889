"""`__shared__` variables: one per block, hence found through the running thread."""

from __future__ import annotations

from collections.abc import Iterator

from harness.device.emulator.translate.errors import CannotRead, NvccRefuses
from harness.device.emulator.translate.lexer import WITH_ARGUMENTS, Edits, Source, one_line

_STORAGE = ("extern", "static", "__shared__")


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


def _defined(source: Source, first: int, last: int) -> tuple[int, int]:
    """First and last token of a type with a name that is defined within these tokens, or -1 twice."""
    for i in range(first, last):
        if source.at(i) in ("struct", "union", "class", "enum") and source.tokens[i + 1].kind == "name":
            brace = next((k for k in range(i + 2, last) if source.at(k) == "{"), -1)
            if brace >= 0:
                return i, source.partner[brace]
    return -1, -1


def _pointers(source: Source, first: int, name: int) -> int:
    """The token that the declarator of `name` begins with: its leftmost asterisk, or the name."""
    start = name
    for i in range(name - 1, first, -1):
        if source.at(i) not in ("*", "const", "volatile", "__restrict__"):
            break
        start = i if source.at(i) == "*" else start
    return start


def _base_type(source: Source, first: int, last: int) -> tuple[str, str, str]:
    """Definition of the type in these tokens if it stands there, for what uses it later; alignment; type."""
    begin, end = _defined(source, first, last)
    if begin < 0:
        return "", *_type_of(source, first, last)
    alignment, words = _type_of(source, first, begin)
    type_text = f"{words} {source.at(begin + 1)} {_type_of(source, end + 1, last)[1]}".strip()
    return f"{one_line(source.slice(begin, end + 1))}; ", alignment, type_text


def _declarator(source: Source, first: int, last: int) -> tuple[int, int]:
    """Token indices of a declarator's name and of the end of its array bounds."""
    i = last - 1
    while i > first and source.at(i) == "]":
        i = source.partner[i] - 1
    return i, last


def _dynamic(source: Source, first: int, last: int) -> tuple[str, str]:
    """Rewrite `extern __shared__`; name and value of what stands for it."""
    name, _ = _declarator(source, first, last)
    if source.at(name + 1) != "[":
        raise CannotRead(first, "this extern __shared__ declaration")
    _, type_text = _type_of(source, first, name)
    rows = one_line(source.slice(source.partner[name + 1] + 1, last))
    pointer = f"{type_text} (*){rows}" if rows else f"{type_text}*"
    return source.at(name), f"reinterpret_cast<{pointer}>(::emu::dynamic_shared())"


def _static(source: Source, first: int, last: int) -> tuple[str, list[tuple[str, str]]]:
    """The structs of the variables in this declaration, and for each its name and where it is."""
    parts = source.split(first, last)
    name, _ = _declarator(source, *parts[0])
    if source.tokens[name].kind != "name" or name <= first:
        raise CannotRead(first, "this __shared__ declaration")
    start = _pointers(source, first, name)
    definition, alignment, type_text = _base_type(source, first, start)
    declared = [(start, parts[0][1]), *parts[1:]]
    structs, variables = definition, []
    for begin, end in declared:
        at, _ = _declarator(source, begin, end)
        variable = source.at(at)
        tag = f"emu_shared_{source.tokens[at].start}_{variable}"
        pointers = "".join(
            f"{source.at(k)} " if source.tokens[k].kind == "name" else source.at(k) for k in range(begin, at)
        )
        bounds = one_line(source.slice(at + 1, end))
        structs += f"struct {tag} {{ {alignment}{type_text} {pointers}{variable}{bounds}; }}; "
        variables.append((variable, f"::emu::shared<{tag}>().{variable}"))
    return structs, variables


def _refuse_initializers(source: Source, first: int, last: int) -> None:
    """nvcc has none for what is shared, not even an empty one."""
    _, defined = _defined(source, first, last)
    for begin, end in source.split(max(first, defined + 1), last):
        found = next((k for k in _outside_brackets(source, begin, end) if _is_assignment(source, k)), -1)
        if found < 0 and _ends_with_value(source, end):
            found = end - 1
        if found >= 0:
            raise NvccRefuses(
                found,
                "a __shared__ variable has an initializer: nvcc refuses this. Let a thread write it, and "
                "__syncthreads() before the others read it.",
            )


def _is_assignment(source: Source, i: int) -> bool:
    return source.at(i) == "=" and source.at(i - 1) not in ("<", ">", "=", "!") and source.at(i + 1) != "="


def _ends_with_value(source: Source, end: int) -> bool:
    """Whether the declarator before this token ends with a value in brackets: `a{1}`, `a[2]{}`, `a(1)`."""
    opening = source.partner.get(end - 1, -1)
    if opening < 0 or source.at(opening) == "[":
        return False
    before = source.tokens[opening - 1]
    return before.text == "]" or (before.kind == "name" and before.text not in WITH_ARGUMENTS)


def _outside_brackets(source: Source, begin: int, end: int) -> Iterator[int]:
    i = begin
    while i < end:
        yield i
        i = source.partner.get(i, i) + 1 if source.at(i) in ("(", "[", "{") else i + 1


def declarations(source: Source) -> list[tuple[int, int]]:
    """First token of each declaration of shared variables, and the semicolon behind it."""
    found = []
    for i, token in enumerate(source.tokens):
        if token.text != "__shared__":
            continue
        last = i
        while last < len(source.tokens) and source.at(last) != ";":
            last = source.partner.get(last, last) + 1 if source.at(last) in ("(", "[", "{") else last + 1
        if last == len(source.tokens):
            raise CannotRead(i, "this __shared__ declaration")
        found.append((source.statement_start(i), last))
    return found


def variables(source: Source, first: int, last: int) -> tuple[str, bool, list[tuple[str, str]]]:
    """What a declaration becomes: types to define in its place, whether it is of dynamic memory, and for each variable
    its name and where it is."""
    _refuse_initializers(source, first, last)
    if any(source.at(k) == "extern" for k in range(first, last)):
        return "", True, [_dynamic(source, first, last)]
    structs, found = _static(source, first, last)
    return structs, False, found


def rewrite(source: Source, edits: Edits) -> None:
    """Rewrite all declarations of shared variables in functions."""
    for first, last in declarations(source):
        structs, dynamic, found = variables(source, first, last)
        declared = [f"auto{'' if dynamic else '&'} {name} = {value}" for name, value in found]
        edits.replace_tokens(first, last, structs + "; ".join(declared))
