"""What the arithmetic of PTX becomes in C++: emu/ptx_arithmetic.h knows what each type's operators are."""

from __future__ import annotations

from collections.abc import Callable

from harness.device.emulator.translate.ptx_operands import TYPES, Block, Instruction, Unknown

_FLOATING = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")


def result(b: Block, i: Instruction, expression: str) -> str:
    """The statement that writes what an instruction gives to its first operand."""
    return f"::emu::ptx::put({b.target(i.operands[0][0])}, {expression});"


def _result(b: Block, i: Instruction, expression: str) -> str:
    return result(b, i, f"::emu::ptx::clamped({expression})" if "sat" in i.words else expression)


def _operation(b: Block, i: Instruction, formula: str, kind: str) -> str:
    """The formula of a, b and c for each part of the operands, which have the type `kind`."""
    values = [b.read(operand[0], kind) for operand in i.operands[1:]]
    names = ", ".join(f"auto {name}" for name, _ in zip("abc", values, strict=False))
    return f"::emu::ptx::by_parts<{TYPES[kind]}>([]({names}) {{ return {formula}; }}, {', '.join(values)})"


def _saturates(i: Instruction) -> bool:
    """Whether `.sat` limits the result to 0 and 1, as it does not for integers."""
    return "sat" not in i.words or i.type() in _FLOATING


def _binary(formula: str, *words: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow("rn", "rz", "lo", "sat", *words)
        i.need(3)
        if not _saturates(i):
            raise Unknown(i.text)
        return _result(b, i, _operation(b, i, formula, i.type()))

    return emit


def _unary(formula: str, *words: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow("approx", "rn", *words)
        i.need(2)
        return _result(b, i, _operation(b, i, formula, i.type()))

    return emit


def _count(function: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow()
        i.need(2)
        return result(b, i, f"{function}{'ll' if i.type() == 'b64' else ''}({b.read(i.operands[1][0], i.type())})")

    return emit


def _multiply(b: Block, i: Instruction) -> str:
    """mul and mad of integers: the low half, the high half, or all of the product."""
    half = next((w for w in i.words if w in ("lo", "hi", "wide")), "lo")
    kind = i.type()
    x, y = (b.read(operand[0], kind) for operand in i.operands[1:3])
    of_twice = {"16": "32", "32": "64"}.get(kind[1:], "")
    if half == "lo":
        product, kind_of_product = f"::emu::ptx::low({x}, {y})", kind
    elif half == "hi":
        product, kind_of_product = f"::emu::ptx::high({x}, {y})", kind
    elif of_twice:
        kind_of_product = kind[0] + of_twice
        product = f"{TYPES[kind_of_product]}({x}) * {TYPES[kind_of_product]}({y})"
    else:
        raise Unknown(i.text)
    added = f" + {b.read(i.operands[3][0], kind_of_product)}" if len(i.operands) > 3 else ""
    return result(b, i, f"{TYPES[kind_of_product]}({product}{added})")


def _mul(b: Block, i: Instruction) -> str:
    if i.type() in _FLOATING:
        return _binary("a * b")(b, i)
    i.allow("lo", "hi", "wide")
    i.need(3)
    return _multiply(b, i)


def _fma(b: Block, i: Instruction) -> str:
    i.need(4)
    if i.type() not in _FLOATING:
        i.allow("lo", "hi", "wide")
        return _multiply(b, i)
    i.allow("rn", "sat", "relu")
    formula = "std::fma(a, b, c)" if i.type() in ("f32", "f64") else "::emu::fma_once(a, b, c)"
    formula = f"::emu::ptx::relu({formula})" if "relu" in i.words else formula
    return _result(b, i, _operation(b, i, formula, i.type()))


def _extreme(name: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow("NaN", "relu")
        i.need(3)
        formula = f"::emu::ptx::{name}<{'true' if 'NaN' in i.words else 'false'}>(a, b)"
        formula = f"::emu::ptx::relu({formula})" if "relu" in i.words else formula
        return result(b, i, _operation(b, i, formula, i.type()))

    return emit


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
            "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_JOINED = {"and": "&&", "or": "||", "xor": "!="}


def _comparison(b: Block, i: Instruction, kind: str, left: str, right: str) -> str:
    """Whether two operands compare; with a NaN that is false, or true where the name says so."""
    word = next((w for w in i.words if w in _COMPARE or w in _UNORDERED or w in ("num", "nan")), "")
    if not word or kind in ("f16x2", "bf16x2"):
        raise Unknown(i.text)
    x, y = (f"::emu::ptx::number({b.read(text, kind)})" for text in (left, right))
    if kind not in _FLOATING:
        if word not in _COMPARE:
            raise Unknown(i.text)
        return f"({x} {_COMPARE[word]} {y})"
    unordered = f"::emu::ptx::unordered({x}, {y})"
    if word in ("num", "nan"):
        return f"({'!' * (word == 'num')}{unordered})"
    if word in _UNORDERED:
        return f"({unordered} || {x} {_UNORDERED[word]} {y})"
    return f"(!{unordered} && {x} {_COMPARE[word]} {y})"


def _setp(b: Block, i: Instruction) -> str:
    i.allow(*_COMPARE, *_UNORDERED, "num", "nan", *_JOINED)
    joined = next((_JOINED[w] for w in i.words if w in _JOINED), "")
    i.need(4 if joined else 3)
    holds = _comparison(b, i, i.type(), i.operands[1][0], i.operands[2][0])
    with_other = f" {joined} {b.predicate(i.operands[3])}" if joined else ""
    targets = [w for w in i.operands[0] if w != "|"]
    second = f" ::emu::ptx::put({b.target(targets[1])}, !emu_p{with_other});" if len(targets) > 1 else ""
    first = f"::emu::ptx::put({b.target(targets[0])}, emu_p{with_other});"
    if second and with_other:  # the other predicate may be a target
        first = f"const bool emu_first = emu_p{with_other}, emu_second = !emu_p{with_other}; "
        first += f"::emu::ptx::put({b.target(targets[0])}, emu_first);"
        second = f" ::emu::ptx::put({b.target(targets[1])}, emu_second);"
    return f"{{ const bool emu_p = {holds}; {first}{second} }}"


def _select(b: Block, i: Instruction) -> str:
    i.allow()
    i.need(4)
    kind = i.type()
    yes, no = b.read(i.operands[1][0], kind), b.read(i.operands[2][0], kind)
    return result(b, i, f"({b.predicate(i.operands[3])} ? {yes} : {no})")


def _convert(b: Block, i: Instruction) -> str:
    i.allow("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "sat", "relu", "tf32")
    types = [w for w in i.words if w in TYPES]
    if len(types) == 2 and types[0] in ("f16x2", "bf16x2") and len(i.operands) == 3:
        make = "__floats2half2_rn" if types[0] == "f16x2" else "__floats2bfloat162_rn"
        high, low = (b.read(o[0], "f32") for o in i.operands[1:])
        if "relu" in i.words:
            high, low = f"::emu::ptx::relu({high})", f"::emu::ptx::relu({low})"
        return result(b, i, f"{make}({low}, {high})")
    if "tf32" in i.words and types == ["f32"] and "rna" in i.words:
        i.need(2)
        return result(b, i, f"::emu::ptx::to_tf32({b.read(i.operands[1][0], 'f32')})")
    if len(types) != 2 or "relu" in i.words or "tf32" in i.words or "rna" in i.words:
        raise Unknown(i.text)
    i.need(2)
    to, source = types
    rounded = {"rni": "nearbyint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
    value = f"::emu::ptx::number({b.read(i.operands[1][0], source)})"
    rounding = next((rounded[w] for w in i.words if w in rounded), "")
    if rounding or (source in _FLOATING and to not in _FLOATING):
        value = f"std::{rounding or 'trunc'}({value})"
    limited = "true" if "sat" in i.words else "false"
    return result(b, i, f"::emu::ptx::converted<{TYPES[to]}, {limited}>({value})")


def _prmt(b: Block, i: Instruction) -> str:
    i.allow()
    values = ", ".join(b.read(o[0], "b32") for o in i.operands[1:])
    return result(b, i, f"__byte_perm({values})")


def _lop3(b: Block, i: Instruction) -> str:
    i.allow()
    values = ", ".join(b.read(o[0], "b32") for o in i.operands[1:])
    return result(b, i, f"::emu::ptx::lop3({values})")


def _shift(function: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow()
        i.need(3)
        value, by = b.read(i.operands[1][0], i.type()), b.read(i.operands[2][0], "u32")
        return result(b, i, f"::emu::ptx::{function}({value}, {by})")

    return emit


def _bits(function: str) -> Callable[[Block, Instruction], str]:
    """bfe and bfi: their last two operands are a place and a length."""

    def emit(b: Block, i: Instruction) -> str:
        i.allow()
        i.need(4 if function == "field" else 5)
        values = [b.read(o[0], i.type()) for o in i.operands[1:-2]] + [b.read(o[0], "u32") for o in i.operands[-2:]]
        return result(b, i, f"::emu::ptx::{function}({', '.join(values)})")

    return emit


def _funnel(b: Block, i: Instruction) -> str:
    i.allow("l", "r", "wrap", "clamp")
    i.need(4)
    side = "l" if "l" in i.words else "r"
    values = ", ".join(b.read(o[0], "b32") for o in i.operands[1:])
    return result(b, i, f"__funnelshift_{side}{'c' if 'clamp' in i.words else ''}({values})")


ARITHMETIC: dict[str, Callable[[Block, Instruction], str]] = {
    "setp": _setp, "selp": _select, "cvt": _convert, "prmt": _prmt, "lop3": _lop3, "fma": _fma, "mad": _fma,
    "add": _binary("a + b"), "sub": _binary("a - b"), "mul": _mul, "div": _binary("a / b", "approx", "full"),
    "rem": _binary("a % b"), "and": _binary("a & b"), "or": _binary("a | b"), "xor": _binary("a ^ b"),
    "min": _extreme("smaller"), "max": _extreme("larger"), "shl": _shift("shift_left"), "shr": _shift("shift_right"),
    "not": _unary("::emu::ptx::inverted(a)"), "neg": _unary("-a"), "abs": _unary("std::abs(a)"),
    "rcp": _unary("1 / a"), "sqrt": _unary("std::sqrt(a)"), "rsqrt": _unary("::rsqrt(a)"),
    "ex2": _unary("std::exp2(a)"), "lg2": _unary("std::log2(a)"), "sin": _unary("std::sin(a)"),
    "cos": _unary("std::cos(a)"), "tanh": _unary("std::tanh(a)"), "copysign": _binary("std::copysign(b, a)"),
    "popc": _count("__popc"), "clz": _count("__clz"), "brev": _count("__brev"), "bfe": _bits("field"),
    "bfi": _bits("inserted"), "shf": _funnel,
}  # fmt: skip
