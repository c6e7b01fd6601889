"""memcpy and its kin, in whose place a compiler may put moves that no hook sees."""

from __future__ import annotations

from harness.device.emulator.translate.lexer import Edits, Source

_BYTES = {"memcpy": "copy_bytes", "memmove": "move_bytes", "memset": "set_bytes"}
_FUNCTIONS = {prefix + name: own for name, own in _BYTES.items() for prefix in ("", "__builtin_")}
_BEFORE_A_CALL = {"return", "else", "do"}


def _start(source: Source, i: int) -> int:
    """First token of the qualified name, or -1 where it is another function of this name."""
    if source.at(i - 1) == "::":
        if source.at(i - 2) == "std":
            return i - 3 if source.at(i - 3) == "::" else i - 2
        return i - 1 if source.tokens[i - 2].kind != "name" or source.at(i - 2) in _BEFORE_A_CALL else -1
    before = source.tokens[i - 1] if i else None
    declared = before is not None and before.kind == "name" and before.text not in _BEFORE_A_CALL
    returns_pointer = source.at(i - 1) == "*" and source.at(i - 2) not in (",", "(", "=")
    return -1 if declared or returns_pointer or source.at(i - 1) in (".", "->") else i


def _is_meant_by_macro(source: Source, i: int) -> bool:
    """Whether the token is all that a macro without parameters stands for, as in `#define COPY memcpy`."""
    alone = i + 1 == len(source.tokens) or source.line(i + 1) > source.line(i)
    return alone and source.at(i - 2) == "define" and source.at(i - 3) == "#"


def rewrite(source: Source, edits: Edits) -> None:
    """Name the emulator's own functions in all calls."""
    for i, token in enumerate(source.tokens):
        if token.text not in _FUNCTIONS or token.kind != "name":
            continue
        first = _start(source, i) if source.at(i + 1) == "(" else -1
        if first >= 0 or _is_meant_by_macro(source, i):
            edits.replace_tokens(first if first >= 0 else i, i + 1, f"::emu::{_FUNCTIONS[token.text]}")
