"""An instruction of PTX and its operands, as C++ sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from harness.errors import KernelgateError

TYPES = {
    "f32": "float", "f64": "double", "pred": "bool",
    "u8": "uint8_t", "s8": "int8_t", "b8": "uint8_t",
    "u16": "uint16_t", "s16": "int16_t", "b16": "uint16_t",
    "u32": "uint32_t", "s32": "int32_t", "b32": "uint32_t",
    "u64": "uint64_t", "s64": "int64_t", "b64": "uint64_t",
    "f16": "__half", "f16x2": "__half2", "bf16": "__nv_bfloat16", "bf16x2": "__nv_bfloat162",
}  # fmt: skip
REGISTERS = {
    "pred": "bool", "b8": "uint8_t", "u8": "uint8_t", "s8": "uint8_t",
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), "uint16_t"),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2"), "uint32_t"),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), "uint64_t"),
}  # fmt: skip
_SPECIAL = {
    "laneid": "::emu::current->lane", "warpid": "::emu::current->warp", "smid": "0u", "nsmid": "132u",
    "clock": "uint32_t(::emu::clock_ticks())", "clock64": "::emu::clock_ticks()",
    "globaltimer": "::emu::clock_ticks()", "globaltimer_lo": "uint32_t(::emu::clock_ticks())", "WARP_SZ": "32u",
    "nwarpid": "((::emu::block_threads() + 31) / 32)",
    "lanemask_lt": "::emu::ptx::lanes_below()", "lanemask_eq": "(1u << ::emu::current->lane)",
    "lanemask_le": "(::emu::ptx::lanes_below() << 1 | 1u)",
    "lanemask_gt": "~(::emu::ptx::lanes_below() << 1 | 1u)", "lanemask_ge": "~::emu::ptx::lanes_below()",
    "cluster_ctarank": "::emu::current->block->cluster_rank",
    "dynamic_smem_size": "uint32_t(::emu::current->block->dynamic_bytes)",
    **{f"tid.{a}": f"threadIdx.{a}" for a in "xyz"},
    **{f"ctaid.{a}": f"blockIdx.{a}" for a in "xyz"},
    **{f"ntid.{a}": f"::emu::block_dim().{a}" for a in "xyz"},
    **{f"nctaid.{a}": f"::emu::grid_dim().{a}" for a in "xyz"},
    **{f"cluster_nctaid.{a}": f"::emu::current->block->cluster.{a}" for a in "xyz"},
    **{f"cluster_ctaid.{a}": f"(blockIdx.{a} % ::emu::current->block->cluster.{a})" for a in "xyz"},
    **{f"clusterid.{a}": f"(blockIdx.{a} / ::emu::current->block->cluster.{a})" for a in "xyz"},
    **{f"nclusterid.{a}": f"(::emu::grid_dim().{a} / ::emu::current->block->cluster.{a})" for a in "xyz"},
}  # fmt: skip
SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "const")
# What only advises caches, or says how far an order reaches, changes nothing here.
_HINT = re.compile(
    r"ca|cg|cs|lu|wb|wt|nc|weak|cta|cluster|gpu|sys|noftz|ftz|aligned|release|"
    r"L1::\w+|L2::\w+|L2::cache_hint|evict_\w+|level::\w+"
)


class Unknown(KernelgateError):
    """An instruction or modifier without emulation; the text is the instruction."""


@dataclass(frozen=True)
class Operand:
    """An operand of the asm statement."""

    number: int
    constraint: str
    expression: str


@dataclass
class Instruction:
    """One instruction: its words between dots, its operands, each a list for {a, b}, and its guard."""

    text: str
    words: list[str]
    operands: list[list[str]]
    guard: str = ""

    def type(self, default: str = "") -> str:
        """The last type in the instruction's name."""
        for word in reversed(self.words):
            if word in TYPES:
                return word
        if default:
            return default
        raise Unknown(self.text)

    def allow(self, *words: str) -> None:
        """Refuse a modifier that is neither one of `words`, a type nor a hint."""
        for word in self.words[1:]:
            if word not in words and word not in TYPES and not _HINT.fullmatch(word):
                raise Unknown(self.text)

    def without_hints(self) -> list[str]:
        """The words behind the first that change what the instruction does."""
        return [word for word in self.words[1:] if not _HINT.fullmatch(word)]

    def need(self, count: int) -> None:
        """Refuse another number of operands."""
        if len(self.operands) != count:
            raise Unknown(self.text)


@dataclass
class Block:
    """The block under translation: names that mean something in it."""

    operands: dict[str, Operand]
    registers: set[str] = field(default_factory=set)
    labels: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def value(self, text: str) -> str:
        """C++ for an operand that is read."""
        if text in self.operands:
            return f"emu_{self.operands[text].number}"
        if text in self.registers:
            return f"emu_r_{plain(text)}"
        if text.startswith("%") and text[1:] in _SPECIAL:
            return _SPECIAL[text[1:]]
        if text == "WARP_SZ":
            return "32u"
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return f"uint32_t(0x{text[2:]}u)"
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
            return f"uint64_t(0x{text[2:]}ull)"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            return f"int64_t({text.rstrip('U')}ll)"
        if re.fullmatch(r"-?\d+\.\d*(?:[eE][+-]?\d+)?", text):
            return f"double({text})"
        raise Unknown(f"operand {text}")

    def read(self, text: str, type_name: str) -> str:
        """C++ for an operand read as the PTX type `type_name`."""
        value = self.value(text)
        if value.startswith("double("):
            return f"{TYPES[type_name]}({value})"
        return f"::emu::ptx::as<{TYPES[type_name]}>({value})"

    def predicate(self, operand: list[str]) -> str:
        """C++ for a predicate that is read, p or !p."""
        return "!" * (operand[0] == "!") + self.read(operand[-1], "pred")

    def target(self, text: str) -> str:
        """C++ for an operand that is written."""
        return "::emu::ptx::Sink{}" if text == "_" else self.value(text)

    def address(self, operand: list[str], space: str) -> str:
        """C++ for [register + offset]."""
        inner = [word for word in operand if word not in ("[", "]", "+")]
        terms = " + ".join(f"::emu::ptx::as<uint64_t>({self.value(word)})" for word in inner)
        return f"::emu::ptx::{'shared' if space.startswith('shared') else 'generic'}({terms})"


def plain(name: str) -> str:
    """A name of PTX as part of a C++ name."""
    return re.sub(r"\W", "_", name)
