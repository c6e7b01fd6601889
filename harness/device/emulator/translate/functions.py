"""The functions that a source declares, by where they run. Only what is plain: nothing that a macro may have marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.device.emulator.translate.kernels import name_index
from harness.device.emulator.translate.lexer import MACRO_NAME, Source, defined_macros, in_directives, last_outside
from harness.device.emulator.translate.scopes import at_namespace_scope

_DEVICE_MARKS = {"__device__", "__global__", "constexpr", "consteval", "__managed__", "__constant__", "__shared__"}
_ONLY_WHERE_USED = {"template", "static", "inline", "__inline__", "__forceinline__"}
_NAMES_OTHERS = {"struct", "class", "union", "enum", "typename", "namespace", "using", "concept"}
_NOT_FUNCTIONS = {"return", "if", "while", "for", "switch", "operator", "using", "typedef", "struct", "class", "enum"}

# Functions of C's library, all of which CUDA has for the device.
_C_FUNCTIONS = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfinv exp exp10 exp2
    expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan labs ldexp lgamma llabs log log10
    log1p log2 logb max min modf nearbyint nextafter norm pow rcbrt remainder rhypot rint round rsqrt signbit sin
    sincos sincospi sinh sinpi sqrt swap tan tanh tgamma trunc memcpy memset memmove printf malloc free assert
"""


@dataclass(frozen=True)
class Body:
    """Tokens of a function: its name, its opening and its closing brace."""

    name: int
    opening: int
    end: int


@dataclass(frozen=True)
class Functions:
    """Those of one source. `host` and `device` are names that are declared for that side alone, at namespace scope;
    `host_bodies` are of functions there that are no templates, and `device_bodies` wherever they stand, those that run
    on both sides being `shared_bodies`."""

    host: set[str]
    device: set[str]
    host_bodies: list[Body]
    device_bodies: list[Body]
    shared_bodies: list[Body]


def find(source: Source) -> Functions:
    skipped, scopes, macros = in_directives(source), at_namespace_scope(source), defined_macros(source)
    unmarked: set[str] = set()
    marked: set[str] = set()
    host_bodies: list[Body] = []
    for name, marks in _declared(source):
        if marks & _DEVICE_MARKS or _may_hide_marks(source, name, marks, macros, skipped):
            marked.add(source.at(name))
        elif scopes[name] and not skipped[name] and _is_function(source, name, marks):
            unmarked.add(source.at(name))
            host_bodies += [] if "template" in marks else _bodies(source, name, skipped)
    alone, for_both = _of_device(source, skipped, macros)
    times = Counter(token.text for token in source.tokens)
    device = {source.at(name) for name in alone if scopes[name] and _may_be_called(source, name)}
    both = {source.at(name) for name in for_both}
    others = macros | _library() | _of_other_things(source)
    return Functions(
        host=unmarked - marked - others,
        device=device - unmarked - both - others,
        host_bodies=host_bodies,
        device_bodies=_compiled_bodies(source, alone, skipped, times),
        shared_bodies=_compiled_bodies(source, for_both, skipped, times),
    )


@cache
def _library() -> set[str]:
    """Names that may mean a function of CUDA's, whatever else the source declares of that name."""
    folder = Path(__file__).resolve().parent.parent / "include" / "emu"
    names = {name for file in folder.glob("*.h") for name in re.findall(r"(\w+)\(", file.read_text())}
    in_c = set(_C_FUNCTIONS.split())
    return names | in_c | {f"{name}f" for name in in_c}


def _declared(source: Source) -> Iterator[tuple[int, set[str]]]:
    """Each name that parentheses follow, and the words before it in its statement."""
    for i, token in enumerate(source.tokens):
        if token.kind == "name" and source.at(i + 1) == "(" and i + 1 in source.partner:
            yield i, _marks(source, i)


def _marks(source: Source, name: int) -> set[str]:
    """The words of its statement before the name; of a template's parameters none."""
    i, found = source.statement_start(name), set()
    while i < name:
        found.add(source.at(i))
        is_template = source.at(i) == "template" and source.at(i + 1) == "<"
        i = max(i, source.closing_angle(i + 1) if is_template else i) + 1
    return found


def _may_hide_marks(source: Source, name: int, marks: set[str], macros: set[str], skipped: list[bool]) -> bool:
    """Whether a macro, an attribute or what a condition of the preprocessor leaves may mark the function."""
    if "__attribute__" in marks or marks & macros or any(MACRO_NAME.fullmatch(mark) for mark in marks):
        return True
    return source.at(last_outside(skipped, source.statement_start(name))) not in ("", ";", "{", "}", ":", ">")


def _of_other_things(source: Source) -> set[str]:
    """Names that the source also gives to types and namespaces."""
    return {source.at(i) for i in range(1, len(source.tokens)) if source.at(i - 1) in _NAMES_OTHERS}


def _compiled_bodies(source: Source, names: list[int], skipped: list[bool], times: Counter[str]) -> list[Body]:
    """Bodies of functions that the compiler makes code of: of a template, or of one that is for this file alone, it
    does only where the name is used. `times` says how often each word stands in the source."""
    compiled = (n for n in names if times[source.at(n)] > 1 or not _marks(source, n) & _ONLY_WHERE_USED)
    return [body for name in compiled for body in _bodies(source, name, skipped)]


def _is_function(source: Source, name: int, marks: set[str]) -> bool:
    after = source.at(source.partner[name + 1] + 1)
    is_declared = after in ("{", ";") and source.statement_start(name) < name and "=" not in marks
    return is_declared and not marks & _NOT_FUNCTIONS and source.at(name - 1) not in ("::", ".", "~")


def _may_be_called(source: Source, name: int) -> bool:
    """Whether a name behind `__device__` is a function's whose address a host may not take: a kernel is launched."""
    marks = _marks(source, name)
    return not marks & {"__global__", "constexpr", "consteval"} and _is_function(source, name, marks)


def _of_device(source: Source, skipped: list[bool], macros: set[str]) -> tuple[list[int], list[int]]:
    """Names of functions that are marked for the device alone, and for both sides."""
    alone: list[int] = []
    both: list[int] = []
    for i, token in enumerate(source.tokens):
        if token.text not in ("__device__", "__global__") or skipped[i]:
            continue
        name = name_index(source, i)
        if name < 0 or _may_hide_marks(source, name, _marks(source, name), macros, skipped):
            continue
        (both if "__host__" in _marks(source, name) else alone).append(name)
    return alone, both


def _bodies(source: Source, name: int, skipped: list[bool]) -> list[Body]:
    """The body of the function, if it stands there without conditions of the preprocessor: what those leave is not
    known here."""
    opening = source.partner.get(name + 1, -1) + 1
    if source.at(opening) != "{" or opening not in source.partner:
        return []
    body = Body(name, opening, source.partner[opening])
    inside = range(body.opening, body.end)
    directives = (source.at(i + 1) for i in inside if skipped[i] and source.at(i) == "#")
    return [] if any(directive != "pragma" for directive in directives) else [body]
