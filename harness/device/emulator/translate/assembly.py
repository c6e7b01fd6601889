"""`asm` statements: the template and its operands, handed to the PTX translator."""

from __future__ import annotations

import ast
import re

from harness.device.emulator.translate import ptx
from harness.device.emulator.translate.errors import CannotRead, NvccRefuses
from harness.device.emulator.translate.lexer import Edits, Source, one_line

_KEYWORDS = ("asm", "__asm__", "__asm")
_QUALIFIERS = ("volatile", "__volatile__", "__volatile", "inline", "goto")


def _text(source: Source, index: int) -> str:
    token = source.tokens[index]
    if token.kind == "raw":
        return token.text[token.text.index("(") + 1 : token.text.rindex(")")]
    literal = token.text[token.text.index('"') :].replace("\\\n", "")
    return str(ast.literal_eval(literal))


def _sections(source: Source, first: int, last: int) -> list[tuple[int, int]]:
    """The parts between colons; `::` is two of them."""
    parts, begin, i = [], first, first
    while i < last:
        if source.at(i) in ("(", "["):
            i = source.partner[i]
        elif source.at(i) in (":", "::"):
            parts.append((begin, i))
            if source.at(i) == "::":
                parts.append((i, i))
            begin = i + 1
        i += 1
    return [*parts, (begin, last)]


def _operands(source: Source, part: tuple[int, int], first_number: int) -> list[ptx.Operand]:
    found: list[ptx.Operand] = []
    for begin, _end in source.split(*part):
        if source.at(begin) == "[":
            message = "an operand of asm has a name in brackets: nvcc refuses this. Number it, as in %0."
            raise NvccRefuses(begin, message)
        if source.at(begin + 1) != "(" or source.tokens[begin].kind not in ("string", "raw"):
            raise CannotRead(begin, "this operand of an asm statement")
        constraint = _text(source, begin)
        expression = one_line(source.slice(begin + 2, source.partner[begin + 1]))
        found.append(ptx.Operand(first_number + len(found), constraint, expression))
    return found


def _template(source: Source, begin: int, end: int) -> str:
    text = ""
    for i in range(begin, end):
        if source.tokens[i].kind not in ("string", "raw"):
            raise CannotRead(i, f"the macro {source.at(i)} in an asm statement")
        text += _text(source, i)
    return text


def _barrier(outputs: list[ptx.Operand], inputs: list[ptx.Operand]) -> str:
    """What holds no instruction is a barrier for the compiler, here too. A host's registers have other letters."""
    written = ", ".join(f'"+m"({operand.expression})' for operand in outputs)
    read = ", ".join(f'"g"({operand.expression})' for operand in inputs)
    return f'asm volatile("" : {written} : {read} : "memory")'


def _rewrite(source: Source, edits: Edits, index: int) -> None:
    opening = index + 1
    while source.at(opening) in _QUALIFIERS:
        opening += 1
    if source.at(opening) != "(" or opening not in source.partner:
        return
    close = source.partner[opening]
    sections = _sections(source, opening + 1, close)
    template = _template(source, *sections[0])
    outputs = _operands(source, sections[1], 0) if len(sections) > 1 else []
    inputs = _operands(source, sections[2], len(outputs)) if len(sections) > 2 else []
    if not re.sub(r"//.*|/\*.*?\*/", "", template).strip():
        return edits.replace_tokens(index, close + 1, _barrier(outputs, inputs))
    try:
        text = ptx.translate(template, outputs, inputs)
    except ptx.Unknown as error:
        raise CannotRead(index, f"the PTX instruction {error}") from None
    edits.replace_tokens(index, close + 1, f"do {text} while (false)")  # one statement, also between if and else


def rewrite(source: Source, edits: Edits) -> None:
    """Rewrite all asm statements that hold PTX."""
    for i, token in enumerate(source.tokens):
        if token.text in _KEYWORDS and token.kind == "name":
            _rewrite(source, edits, i)
