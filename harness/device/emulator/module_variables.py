"""All variables of a compiled module, from its assembly, which names what templates, macros and functions declare.

Each gets space around it that is nobody's, so that a kernel which leaves it does not end in another one, and the
runtime is told where each lies before the first launch. The text is GNU assembler's, as g++ writes it for x86-64."""

from __future__ import annotations

import re

GAP_BYTES = 64  # half of it before a variable and half behind another; kGap of csrc/runtime/variables.cpp is the half

_SECTION = re.compile(r"\t\.(?:push)?section\t([^,\s]+)|\t\.(data|bss|text)\b")
_LABELLED = re.compile(r"\t\.size\t(\S+), (\d+)")
_COMMON = re.compile(r"\t\.comm\t(\S+),(\d+),(\d+)")
_ALIGNED = re.compile(r"\t\.align (\d+)")
_IN_SPACE = (".data", ".bss", ".rodata")
_CONSTANT = (".data.rel.ro", ".rodata")  # the loader's tables and what never changes
_NO_VARIABLE = ("_ZGV", "_ZTV", "_ZTI", "_ZTS", "_ZTT")  # guards and tables of classes


def _space(alignment: str) -> str:
    return f"\t.zero\t{GAP_BYTES}\n\t.balign\t{alignment}"


def _own_place(symbol: str, size: str, alignment: str) -> str:
    """A variable that the linker would place, among the others instead."""
    return (
        f"\t.pushsection .bss\n{_space(alignment)}\n\t.type\t{symbol}, @object\n\t.size\t{symbol}, {size}\n{symbol}:\n"
        f"\t.zero\t{size}\n\t.popsection"
    )


def _table(found: list[tuple[str, str]]) -> str:
    """Lists the variables (ModuleEntry of variables.cpp), and has them registered when the module is loaded."""
    entries = "".join(f"\t.quad\t{symbol}, {size}, .Lemu_name_{i}\n" for i, (symbol, size) in enumerate(found))
    names = "".join(f'.Lemu_name_{i}:\n\t.string\t"{symbol}"\n' for i, (symbol, _) in enumerate(found))
    return f"""
\t.section .data.rel.ro.emu_variables,"aw",@progbits
\t.balign 8
.Lemu_variables:
{entries}\t.section .rodata.emu_names,"a",@progbits
{names}\t.text
.Lemu_register:
\tleaq\t.Lemu_variables(%rip), %rdi
\tmovl\t${len(found)}, %esi
\tjmp\temu_add_module_variables@PLT
\t.section .init_array,"aw",@init_array
\t.balign 8
\t.quad\t.Lemu_register
"""


def rewrite(assembly: str) -> str:
    """The same module with space around its variables, and with a table of those that can be written."""
    lines = assembly.splitlines()
    section, alignment = ".text", "1"
    found: list[tuple[str, str]] = []
    for i, line in enumerate(lines):
        if not line.startswith("\t."):
            continue
        if match := _SECTION.match(line):
            section, alignment = match[1] or f".{match[2]}", "1"
        elif match := _ALIGNED.match(line):
            alignment = match[1]
        elif match := _COMMON.match(line):
            lines[i] = _own_place(*match.groups())
            found.append((match[1], match[2]))
        elif (match := _LABELLED.match(line)) and lines[i + 1] == f"{match[1]}:" and section.startswith(_IN_SPACE):
            lines[i] = f"{line}\n{_space(alignment)}"
            found += [(match[1], match[2])] if not section.startswith(_CONSTANT) else []
            alignment = "1"
    variables = [(symbol, size) for symbol, size in found if not symbol.startswith(_NO_VARIABLE)]
    return "\n".join(lines) + "\n" + (_table(variables) if variables else "")
