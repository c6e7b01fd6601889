"""PTX of an asm statement as a C++ block."""

from __future__ import annotations

import re

from harness.device.emulator.translate.ptx_instructions import EMITTERS
from harness.device.emulator.translate.ptx_operands import REGISTERS, Block, Instruction, Operand, Unknown, plain

__all__ = ["Operand", "Unknown", "translate"]

# Of a number of registers. More than 9999 no asm statement needs, and each becomes a variable.
_MOST_DIGITS = 4

_CONSTRAINTS = {"h": "uint16_t", "r": "uint32_t", "l": "uint64_t", "f": "float", "d": "double"}
_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<word>%?[A-Za-z_$.%][\w$.%:]*|0[fFdD][0-9a-fA-F]+|0[xX][0-9a-fA-F]+U?|"
    r"-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+U?|%\d+)|(?P<mark>[@!{}\[\],;:+|()<>-])",
    re.DOTALL,
)


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise Unknown(text[at : at + 30].strip())
        if match["word"] or match["mark"]:
            found.append(match.group())
        at = match.end()
    return found


def _split_operands(words: list[str]) -> list[list[str]]:
    """Operands at commas; {a, b} is one operand of several words, brackets of vectors and addresses removed."""
    operands: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += word in "{[" and len(word) == 1
        depth -= word in "}]" and len(word) == 1
        if word == "," and not depth:
            operands.append([])
        elif word not in (",", "{", "}"):
            operands[-1].append(word)
    return [operand for operand in operands if operand]


def _statement(b: Block, words: list[str]) -> None:
    guard = ""
    if words[0] == "@":
        negated = words[1] == "!"
        name = words[2 if negated else 1]
        guard = f"if ({'!' if negated else ''}{b.value(name)}) "
        words = words[3 if negated else 2 :]
    name = words[0]
    parts = name.split(".")
    if name.startswith(".reg"):
        return _declare(b, words)
    instruction = Instruction(
        " ".join([name, *words[1:2]]) if len(words) > 1 else name, parts, _split_operands(words[1:])
    )
    emit = EMITTERS.get(parts[0])
    if emit is None:
        raise Unknown(name)
    try:
        text = emit(b, instruction)
    except (IndexError, KeyError):
        raise Unknown(name) from None
    b.lines.append(f"{guard}{{ {text} }}" if guard else text)


def _declare(b: Block, words: list[str]) -> None:
    kind = words[0].rsplit(".", 1)[-1] if words[0].count(".") > 1 else words[1].lstrip(".")
    if kind not in REGISTERS:
        raise Unknown(" ".join(words))
    for name in _register_names(words):
        if name in b.registers:
            continue
        b.registers.add(name)
        b.declared.append(f"{REGISTERS[kind]} emu_r_{plain(name)};")


def _register_names(words: list[str]) -> list[str]:
    """The names in a declaration of registers; `r<3>` are r0, r1 and r2."""
    names: list[str] = []
    rest = [word for word in words[1:] if word != "," and not word.startswith(".")]
    while rest:
        name = rest.pop(0)
        if rest[:1] != ["<"]:
            names.append(name)
            continue
        if rest[2:3] != [">"] or not rest[1].isdecimal() or len(rest[1]) > _MOST_DIGITS:
            raise Unknown(" ".join(words))
        names += [f"{name}{number}" for number in range(int(rest[1]))]
        del rest[:3]
    return names


def _statements(words: list[str]) -> list[list[str]]:
    """Statements at semicolons; labels and the braces of scopes stand alone."""
    found: list[list[str]] = []
    current: list[str] = []
    for word in words:
        if not current and word in "{}":
            continue
        if word == ";":
            if current:
                found.append(current)
            current = []
        elif not current and word.endswith(":") and len(word) > 1:
            found.append([word[:-1], ":"])
        elif word == ":" and len(current) == 1:
            found.append([current[0], ":"])
            current = []
        else:
            current.append(word)
    if current and any(word not in "{}" for word in current):
        found.append(current)
    return found


def _numbered(template: str, operands: list[Operand]) -> tuple[str, dict[str, Operand]]:
    names = {f"%{o.number}": o for o in operands}
    return template.replace("%=", "").replace("%%", "%"), names


def _bind(operand: Operand, output: bool) -> str:
    letter = operand.constraint.lstrip("=+&")
    if output:
        return f"auto& emu_{operand.number} = {operand.expression};"
    if letter == "n":
        return f"const int64_t emu_{operand.number} = int64_t({operand.expression});"
    if letter not in _CONSTRAINTS:
        raise Unknown(f"constraint {operand.constraint!r}")
    kind = _CONSTRAINTS[letter]
    return f"const {kind} emu_{operand.number} = ::emu::ptx::as<{kind}>({operand.expression});"


def translate(template: str, outputs: list[Operand], inputs: list[Operand]) -> str:
    """The C++ block that does what the PTX says. Raises Unknown."""
    text, names = _numbered(template, [*outputs, *inputs])
    b = Block(names)
    statements = _statements(_tokens(text))
    for words in statements:
        if len(words) == 2 and words[1] == ":":
            b.labels.append(words[0])
    for words in statements:
        if len(words) == 2 and words[1] == ":":
            b.lines.append(f"emu_l_{plain(words[0])}:;")
        else:
            _statement(b, words)
    labels = ", ".join(dict.fromkeys(f"emu_l_{plain(name)}" for name in b.labels))
    head = f"__label__ {labels};" if labels else ""
    bound = [_bind(o, True) for o in outputs] + [_bind(o, False) for o in inputs]
    return "{ " + " ".join([head, *bound, *b.declared, *b.lines]) + " }"
