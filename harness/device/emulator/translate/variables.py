"""Variables at namespace scope. Of `__device__`, `__constant__` and `__managed__` ones the runtime is told where each
lies and which are constant.

What a macro, a template or a function declares is found in the assembly (module_variables.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.device.emulator.translate.lexer import (
    MACRO_NAME,
    WITH_ARGUMENTS,
    Edits,
    Source,
    defined_macros,
    in_directives,
)
from harness.device.emulator.translate.scopes import at_namespace_scope

_WORDS = ("__device__", "__constant__", "__managed__")
_NO_VARIABLE = {"extern", "template", "using", "typedef", "friend", "operator", "struct", "class", "union", "enum"}
# What a variable is declared with that is not the host's, or may not be; `auto` may be a lambda.
_CONSTANT = {"const", "constexpr"}
_NOT_THE_HOSTS = {"constinit", "auto", "__shared__", "namespace", "concept", "goto", "__attribute__", *_WORDS}
_CONSTANT_BYTES = 65_536
_TOO_LARGE = "__constant__ variables have 64 KiB in all, which this one alone exceeds: nvcc refuses it"
_BEHIND_A_VARIABLE = ("=", ";", "[", "{", ",")


def _head_end(source: Source, first: int) -> int:
    """Index of the first mark that ends the words of a declaration: one of ( { = [ ; and the comma."""
    i = first
    while i < len(source.tokens) and source.at(i) not in ("(", "{", "=", "[", ";", ","):
        if source.at(i) in WITH_ARGUMENTS and source.at(i + 1) == "(":
            i = source.partner.get(i + 1, i + 1)
        elif source.at(i) == "<":
            i = max(i, source.closing_angle(i))
        i += 1
    return i


def _statement_end(source: Source, i: int) -> int:
    while i < len(source.tokens) and source.at(i) != ";":
        i = source.partner.get(i, i) + 1 if source.at(i) in ("(", "[", "{") else i + 1
    return i


def _name(source: Source, first: int, last: int) -> int:
    """Index of the name that the declarator in these tokens declares, or -1."""
    i = min(_head_end(source, first), last) - 1
    return i if i >= first and source.tokens[i].kind == "name" else -1


def _declared(source: Source, first: int, end: int) -> list[int]:
    names = [_name(source, *part) for part in source.split(first, end)]
    return names if names and min(names) >= 0 else []


def _is_variable(source: Source, first: int, word: int) -> bool:
    head = _head_end(source, first)
    words = {source.at(i) for i in range(first, head)}
    return word < head and source.at(head) not in ("(", "") and not words & _NO_VARIABLE


def of_the_device(source: Source) -> Iterator[tuple[int, int, list[int]]]:
    """Declarations at namespace scope that are marked for the device: the first token, the last, and the names."""
    scopes, skipped = at_namespace_scope(source), in_directives(source)
    found: dict[int, tuple[int, list[int]]] = {}
    for i, token in enumerate(source.tokens):
        if token.text not in _WORDS:
            continue
        first = source.statement_start(i)
        end = _statement_end(source, i)
        names = _declared(source, first, end) if scopes[i] and not skipped[i] and end < len(source.tokens) else []
        if names and _is_variable(source, first, i):
            found[first] = (end, names)
    for first, (end, names) in found.items():
        yield first, end, names


def rewrite(source: Source, edits: Edits) -> None:
    """Write a registration behind each declaration at namespace scope."""
    for first, end, names in of_the_device(source):
        constant = any(source.at(k) == "__constant__" for k in range(first, names[0]))
        edits.insert_behind(end, "".join(_registration(source, name, constant) for name in names))


def _registration(source: Source, name: int, constant: bool) -> str:
    variable = source.at(name)
    values = f'{variable}, "{variable}", {str(constant).lower()}'
    fits = f' static_assert(sizeof({variable}) <= {_CONSTANT_BYTES}, "{_TOO_LARGE}");' if constant else ""
    return f"{fits} static ::emu::ModuleVariable emu_variable_{source.tokens[name].start}_{variable}({values});"


@dataclass(frozen=True)
class Variable:
    """One of the host's: the token of its name. `is_constant` says that kernels may read it where the compiler knows
    the value, as it does not for an array's element at a place that is known at run time."""

    token: int
    is_constant: bool


def of_the_host(source: Source, outside: list[bool], skipped: list[bool]) -> Iterator[Variable]:
    """Variables at namespace scope that kernels cannot reach: without a mark of the device, and either not constant or
    an array. Of each statement the first one. `outside` and `skipped` say for each token whether it stands at
    namespace scope and in no parenthesis, and whether in a directive."""
    macros = defined_macros(source)
    for i, token in enumerate(source.tokens):
        if token.kind != "name" or not outside[i] or skipped[i] or source.at(i + 1) not in _BEHIND_A_VARIABLE:
            continue
        first = source.statement_start(i)
        words = {source.at(k) for k in range(first, i)}
        is_declared = first < i and source.tokens[first].kind == "name" and _head_end(source, first) == i + 1
        if not is_declared or source.at(i - 1) == "::" or words & (_NO_VARIABLE | _NOT_THE_HOSTS):
            continue
        is_constant = bool(words & _CONSTANT)
        is_marked = any(MACRO_NAME.fullmatch(word) for word in words) or words & macros
        if (
            not is_marked
            and source.at(first - 1) in ("", ";", "{", "}")
            and (not is_constant or source.at(i + 1) == "[")
        ):
            yield Variable(i, is_constant)
