"""Calls of the submission's own host functions from its device code, which nvcc refuses and a host compiler cannot.

Only what is plain is reported: a function at namespace scope without any mark that could make it a device
function, called by name from a kernel or a function that is for the device alone.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from harness.device.emulator.translate.kernels import name_index
from harness.device.emulator.translate.lexer import Source, in_directives
from harness.device.emulator.translate.scopes import at_namespace_scope
from harness.errors import KernelgateError

_DEVICE_MARKS = {"__device__", "__global__", "constexpr", "consteval", "__managed__", "__constant__", "__shared__"}
_NOT_FUNCTIONS = {"return", "if", "while", "for", "switch", "operator", "using", "typedef", "struct", "class", "enum"}
_BEFORE_A_CALL = {"return", "else", "do", "case", "co_return", "throw"}
_MACRO_NAME = re.compile(r"[A-Z][A-Z0-9_]+")


class HostCall(KernelgateError):
    """Device code calls a host function; `index` is the token of the call."""

    def __init__(self, index: int, function: str, caller: str):
        super().__init__(
            f"{caller} runs on the device and calls {function}, which is a host function: nvcc refuses this. "
            f"Declare {function} as __device__."
        )
        self.index = index


# Functions of C's library, all of which CUDA has for the device.
_C_FUNCTIONS = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfinv exp exp10 exp2
    expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan labs ldexp lgamma llabs log log10
    log1p log2 logb max min modf nearbyint nextafter norm pow rcbrt remainder rhypot rint round rsqrt signbit sin
    sincos sincospi sinh sinpi sqrt swap tan tanh tgamma trunc memcpy memset memmove printf malloc free assert
"""


@cache
def _library() -> set[str]:
    """Names that may mean a function of CUDA's, whatever else the source declares of that name."""
    folder = Path(__file__).resolve().parent.parent / "include" / "emu"
    names = {name for file in folder.glob("*.h") for name in re.findall(r"(\w+)\(", file.read_text())}
    in_c = set(_C_FUNCTIONS.split())
    return names | in_c | {f"{name}f" for name in in_c}


def _marks(source: Source, first: int, name: int) -> set[str]:
    return {source.at(i) for i in range(first, name)}


def _host_functions(source: Source, skipped: list[bool]) -> set[str]:
    """Names that are declared at namespace scope as functions, and never with a mark of the device."""
    host, device = set(), set()
    scopes = at_namespace_scope(source)
    for i, token in enumerate(source.tokens):
        if token.kind != "name" or source.at(i + 1) != "(" or i + 1 not in source.partner:
            continue
        first = source.statement_start(i)
        marks = _marks(source, first, i)
        if marks & _DEVICE_MARKS or any(_MACRO_NAME.fullmatch(mark) for mark in marks):
            device.add(token.text)
        after = source.at(source.partner[i + 1] + 1)
        is_declared = scopes[i] and not skipped[i] and after in ("{", ";") and first < i and "=" not in marks
        if is_declared and not marks & _NOT_FUNCTIONS and source.at(i - 1) not in ("::", ".", "~"):
            host.add(token.text)
    return host - device - _library()


def _device_bodies(source: Source, skipped: list[bool]) -> list[tuple[int, int, int]]:
    """Name, opening and closing brace of each function that is for the device alone."""
    found = []
    for i, token in enumerate(source.tokens):
        if token.text not in ("__device__", "__global__") or skipped[i]:
            continue
        name = name_index(source, i)
        if name < 0 or "__host__" in _marks(source, source.statement_start(i), name):
            continue
        if any(_MACRO_NAME.fullmatch(mark) for mark in _marks(source, source.statement_start(i), name)):
            continue
        body = source.partner.get(name + 1, -1) + 1
        if source.at(body) == "{" and body in source.partner:
            found.append((name, body, source.partner[body]))
    return found


def _calls(source: Source, name: int, end: int, wanted: set[str]) -> list[int]:
    """Tokens between the parameters and `end` that call one of `wanted` by its bare name."""
    found, shadowed = [], set()
    for i in range(name + 1, end):
        if source.at(i) not in wanted or source.tokens[i].kind != "name":
            continue
        after = i + 1
        if source.at(after) == "<":
            after = source.closing_angle(after) + 1
        before = source.tokens[i - 1]
        if source.at(after) != "(":
            shadowed.add(source.at(i))
        elif before.text in _BEFORE_A_CALL or (before.kind == "mark" and before.text not in (".", "->", "::", ">")):
            found.append(i)
        else:
            shadowed.add(source.at(i))
    return [i for i in found if source.at(i) not in shadowed]


def check(source: Source) -> None:
    """Raise HostCall at the first call of a host function from device code."""
    skipped = in_directives(source)
    host = _host_functions(source, skipped)
    if not host:
        return
    for name, body, end in _device_bodies(source, skipped):
        if any(skipped[body:end]):
            continue  # what the preprocessor leaves of it is not known here
        for call in _calls(source, name, end, host):
            raise HostCall(call, source.at(call), source.at(name))
