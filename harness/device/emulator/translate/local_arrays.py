"""Local arrays of a size that is known at run time, which a host compiler has and nvcc refuses on the device."""

from __future__ import annotations

from harness.device.emulator.translate import functions
from harness.device.emulator.translate.lexer import Edits, Source

_REFUSED = ' _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic error \\"-Wvla\\"")'
_AS_BEFORE = ' _Pragma("GCC diagnostic pop")'


def refuse(source: Source, edits: Edits) -> None:
    """Have the compiler, which knows what is constant, refuse them in functions of the device."""
    found = functions.find(source)
    for body in (*found.device_bodies, *found.shared_bodies):
        if any(_may_declare(source, i) for i in range(body.opening, body.end)):
            edits.insert_behind(body.opening, _REFUSED)
            edits.insert_behind(body.end, _AS_BEFORE)


def _may_declare(source: Source, bracket: int) -> bool:
    """Whether an array of a size with a name in it may be declared by the bracket that opens here."""
    if source.at(bracket) != "[" or bracket not in source.partner or source.tokens[bracket - 1].kind != "name":
        return False
    is_behind_a_type = source.tokens[bracket - 2].kind == "name" or source.at(bracket - 2) in (">", "*", ",", "&")
    return is_behind_a_type and any(source.tokens[i].kind == "name" for i in range(bracket, source.partner[bracket]))
