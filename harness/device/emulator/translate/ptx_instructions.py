"""What each instruction of PTX becomes in C++. Unknown instructions and modifiers are refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.device.emulator.translate.ptx_operands import SPACES, TYPES, Block, Instruction, Unknown, plain


def _space(instruction: Instruction) -> str:
    return next((word for word in instruction.words if word in SPACES), "")


def _width(instruction: Instruction) -> int:
    return next((int(w[1:]) for w in instruction.words if re.fullmatch(r"v[248]", w)), 1)


def _order(instruction: Instruction) -> str:
    if "volatile" in instruction.words:
        return "::emu::ptx::Order::Volatile"
    strong = {"relaxed", "acquire", "release"} & set(instruction.words)
    return f"::emu::ptx::Order::{'Strong' if strong else 'Weak'}"


_ACCESS = ("v2", "v4", "v8", "volatile", "relaxed", "acquire", *SPACES)


def _load(b: Block, i: Instruction) -> str:
    i.allow(*_ACCESS)
    count, kind = _width(i), TYPES[i.type()]
    targets = i.operands[0]
    if len(targets) != count or len(i.operands) < 2:
        raise Unknown(i.text)
    stores = "".join(f" ::emu::ptx::put({b.target(t)}, emu_v[{k}]);" for k, t in enumerate(targets))
    return (
        f"{{ {kind} emu_v[{count}]; ::emu::ptx::load({b.address(i.operands[1], _space(i))}, emu_v, {_order(i)}, "
        f"__LINE__);{stores} }}"
    )


def _store(b: Block, i: Instruction) -> str:
    i.allow(*_ACCESS)
    count, kind = _width(i), i.type()
    if len(i.operands) < 2 or len(i.operands[1]) != count:
        raise Unknown(i.text)
    values = ", ".join(b.read(t, kind) for t in i.operands[1])
    return (
        f"{{ {_releasing(b, i)}const {TYPES[kind]} emu_v[{count}] = {{{values}}}; "
        f"::emu::ptx::store({b.address(i.operands[0], _space(i))}, emu_v, {_order(i)}, __LINE__); }}"
    )


def _nothing(b: Block, i: Instruction) -> str:
    return ""


def _fence(b: Block, i: Instruction) -> str:
    return "__threadfence_block();" if "cta" in i.words else "__threadfence();"


def _dependency(b: Block, i: Instruction) -> str:
    return "::emu::wait_for_earlier_launch();" if "wait" in i.words else ""


def _sleep(b: Block, i: Instruction) -> str:
    return "__nanosleep(0);"


def _releasing(b: Block, i: Instruction) -> str:
    """A fence before a write that publishes what came before it."""
    return f"{_fence(b, i)} " if {"release", "acq_rel"} & set(i.words) else ""


def _result(b: Block, i: Instruction, expression: str) -> str:
    return f"::emu::ptx::put({b.target(i.operands[0][0])}, {expression});"


def _move(b: Block, i: Instruction) -> str:
    i.allow()
    i.need(2)
    to, source = i.operands
    kind = i.type()
    if len(to) == 1 and len(source) == 1:
        return _result(b, i, b.read(source[0], kind))
    bits = {"b32": 32, "b64": 64}.get(kind, 0)
    many = to if len(to) > 1 else source
    if not bits or bits // len(many) < 16:
        raise Unknown(i.text)
    part = bits // len(many)
    if len(source) > 1:
        terms = " | ".join(f"uint64_t({b.read(s, f'b{part}')}) << {k * part}" for k, s in enumerate(source))
        return _result(b, i, f"uint{bits}_t({terms})")
    value = b.read(source[0], kind)
    parts = "".join(f" ::emu::ptx::put({b.target(t)}, uint{part}_t(emu_v >> {k * part}));" for k, t in enumerate(to))
    return f"{{ const auto emu_v = {value};{parts} }}"


def _binary(operator: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow("rn", "rz", "lo")
        i.need(3)
        kind = i.type()
        left, right = (b.read(operand[0], kind) for operand in i.operands[1:])
        return _result(b, i, f"{TYPES[kind]}({operator.format(a=left, b=right)})")

    return emit


def _unary(expression: str, *words: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow("approx", "rn", *words)
        i.need(2)
        kind = i.type()
        return _result(b, i, f"{TYPES[kind]}({expression.format(a=b.read(i.operands[1][0], kind))})")

    return emit


def _fma(b: Block, i: Instruction) -> str:
    i.allow("rn", "lo")
    i.need(4)
    kind = i.type()
    x, y, z = (b.read(operand[0], kind) for operand in i.operands[1:])
    if kind in ("f32", "f64"):
        return _result(b, i, f"std::fma({x}, {y}, {z})")
    if kind in ("f16", "bf16"):
        return _result(b, i, f"__hfma({x}, {y}, {z})")
    if kind in ("f16x2", "bf16x2"):
        return _result(b, i, f"__hfma2({x}, {y}, {z})")
    return _result(b, i, f"{TYPES[kind]}({x} * {y} + {z})")


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
            "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip


def _setp(b: Block, i: Instruction) -> str:
    i.allow(*_COMPARE)
    i.need(3)
    kind = i.type()
    sign = next((_COMPARE[w] for w in i.words if w in _COMPARE), "")
    if not sign or "|" in i.operands[0]:
        raise Unknown(i.text)
    return _result(b, i, f"{b.read(i.operands[1][0], kind)} {sign} {b.read(i.operands[2][0], kind)}")


def _select(b: Block, i: Instruction) -> str:
    i.allow()
    i.need(4)
    kind = i.type()
    yes, no = b.read(i.operands[1][0], kind), b.read(i.operands[2][0], kind)
    return _result(b, i, f"({b.value(i.operands[3][0])} ? {yes} : {no})")


def _branch(b: Block, i: Instruction) -> str:
    i.allow("uni")
    return f"goto emu_l_{plain(i.operands[0][0])};"


def _convert(b: Block, i: Instruction) -> str:
    i.allow("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "sat")
    types = [w for w in i.words if w in TYPES]
    if len(types) == 2 and types[0] in ("f16x2", "bf16x2") and len(i.operands) == 3:
        make = "__floats2half2_rn" if types[0] == "f16x2" else "__floats2bfloat162_rn"
        high, low = (b.read(o[0], "f32") for o in i.operands[1:])
        return _result(b, i, f"{make}({low}, {high})")
    if len(types) != 2:
        raise Unknown(i.text)
    i.need(2)
    to, source = types
    value = b.read(i.operands[1][0], source)
    rounded = {"rni": "nearbyint", "rn": "", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
    rounding = next((rounded[w] for w in i.words if w in rounded), "")
    if source in ("f32", "f64") and to not in ("f32", "f64", "f16", "bf16"):
        return _result(b, i, f"::emu::saturate<{TYPES[to]}>(std::{rounding or 'trunc'}({value}))")
    if source in ("f32", "f64") and rounding:
        value = f"std::{rounding}({value})"
    if source in ("f16", "bf16"):
        value = f"static_cast<float>({value})"
    return _result(b, i, f"static_cast<{TYPES[to]}>({value})")


def _to_window(b: Block, i: Instruction) -> str:
    i.allow("to", *SPACES)
    i.need(2)
    value = f"::emu::ptx::as<uint64_t>({b.value(i.operands[1][0])})"
    if not _space(i).startswith("shared"):
        return _result(b, i, value)
    if "to" in i.words:
        return _result(b, i, f"uint64_t(::emu::shared_window(::emu::ptx::generic({value})))")
    return _result(b, i, f"reinterpret_cast<uint64_t>(::emu::ptx::shared({value}))")


_ATOMIC = {"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax", "and": "atomicAnd", "or": "atomicOr",
           "xor": "atomicXor", "exch": "atomicExch", "cas": "atomicCAS"}  # fmt: skip


def _atomic(b: Block, i: Instruction) -> str:
    i.allow("relaxed", "acquire", "acq_rel", *_ATOMIC, *SPACES)
    function = next((_ATOMIC[w] for w in i.words if w in _ATOMIC), "")
    kind = i.type()
    if not function or _width(i) > 1:
        raise Unknown(i.text)
    operands = i.operands if i.words[0] == "red" else i.operands[1:]
    values = ", ".join(b.read(o[0], kind) for o in operands[1:])
    target = f"static_cast<{TYPES[kind]}*>({b.address(operands[0], _space(i))})"
    function += "_block" if "cta" in i.words else ""
    call = f"{function}({target}, {values}, ::emu::Line{{__LINE__}})"
    return _releasing(b, i) + (f"{call};" if i.words[0] == "red" else _result(b, i, call))


def _barrier(b: Block, i: Instruction) -> str:
    words = i.without_hints()
    if i.words[1:2] == ["cluster"]:
        if "arrive" in i.words:
            return "::emu::cluster_arrive(__LINE__);"
        if "wait" in i.words:
            return "::emu::cluster_wait(__LINE__);"
        raise Unknown(i.text)
    if words not in (["sync"], ["arrive"]):
        raise Unknown(i.text)
    number = b.read(i.operands[0][0], "u32")
    if len(i.operands) == 1:
        if i.operands[0][0] == "0" and words == ["sync"]:
            return "__syncthreads(::emu::Line{__LINE__});"
        count = "::emu::block_threads()"
    else:
        count = b.read(i.operands[1][0], "u32")
    return f"::emu::named_barrier({number}, {count}, {'true' if words == ['sync'] else 'false'}, __LINE__);"


def _map(b: Block, i: Instruction) -> str:
    i.allow("shared::cluster")
    i.need(3)
    if _space(i) != "shared::cluster" or i.type() != "u32":
        raise Unknown(i.text)
    address, rank = (b.read(o[0], "u32") for o in i.operands[1:])
    return _result(b, i, f"::emu::ptx::map_rank({address}, {rank}, __LINE__)")


def _copy(b: Block, i: Instruction) -> str:
    words = i.without_hints()
    if words == ["async", "commit_group"] or words == ["async", "bulk", "commit_group"]:
        return "::emu::async_commit();"
    if words[-1] in ("wait_group", "read") and "wait_group" in words:
        return f"::emu::async_wait({b.read(i.operands[0][0], 'u32')});"
    if words == ["async", "wait_all"]:
        return "::emu::async_wait_all();"
    if words == ["async", "shared", "global"] or words == ["async", "shared::cta", "global"]:
        return _small_copy(b, i)
    if words[:2] == ["async", "bulk"]:
        return _bulk_copy(b, i, words[2:])
    raise Unknown(i.text)


def _small_copy(b: Block, i: Instruction) -> str:
    to, source = b.address(i.operands[0], "shared"), b.address(i.operands[1], "global")
    size = b.read(i.operands[2][0], "u32")
    given = b.read(i.operands[3][0], "u32") if len(i.operands) > 3 and "cache_hint" not in i.text else size
    if len(i.operands) > 4 or ("cache_hint" in i.text and len(i.operands) > 4):
        raise Unknown(i.text)
    return f"::emu::async_copy({to}, {source}, {given}, {size} - {given}, __LINE__);"


def _bulk_copy(b: Block, i: Instruction, words: list[str]) -> str:
    if words[:1] == ["prefetch"]:
        return ""
    if words[:1] in (["shared::cluster"], ["shared::cta"]) and words[1:2] == ["global"]:
        if words[2:] != ["mbarrier::complete_tx::bytes"]:
            raise Unknown(i.text)
        to, source = b.address(i.operands[0], "shared"), b.address(i.operands[1], "global")
        barrier = b.address(i.operands[3], "shared")
        size = b.read(i.operands[2][0], "u32")
        return f"::emu::bulk_copy_to_shared({to}, {source}, {size}, {barrier}, __LINE__);"
    if words == ["global", "shared::cta", "bulk_group"]:
        to, source = b.address(i.operands[0], "global"), b.address(i.operands[1], "shared")
        return f"::emu::bulk_copy_to_global({to}, {source}, {b.read(i.operands[2][0], 'u32')}, __LINE__);"
    raise Unknown(i.text)


def _mbarrier(b: Block, i: Instruction) -> str:
    i.allow(
        "init",
        "inval",
        "arrive",
        "expect_tx",
        "test_wait",
        "try_wait",
        "parity",
        "acquire",
        "relaxed",
        *SPACES,
    )
    if not _space(i).startswith("shared") and _space(i):
        raise Unknown(i.text)
    space = _space(i)
    if i.words[1] in ("init", "expect_tx"):
        function = "mbarrier_init" if i.words[1] == "init" else "mbarrier_expect"
        number = b.read(i.operands[1][0], "u32")
        return f"::emu::{function}({b.address(i.operands[0], space)}, {number}, __LINE__);"
    if i.words[1] == "inval":
        return f"::emu::mbarrier_invalidate({b.address(i.operands[0], space)}, __LINE__);"
    if i.words[1] == "arrive":
        address = b.address(i.operands[1], space)
        extra = b.read(i.operands[2][0], "u32") if len(i.operands) > 2 else ""
        count, size = ("1", extra) if "expect_tx" in i.words else (extra or "1", "0")
        return _result(b, i, f"::emu::mbarrier_arrive({address}, {count}, {size}, __LINE__)")
    if i.words[1] in ("test_wait", "try_wait"):
        call = "mbarrier_parity_passed" if "parity" in i.words else "mbarrier_passed"
        phase = b.read(i.operands[2][0], "u32" if "parity" in i.words else "u64")
        return _result(b, i, f"::emu::{call}({b.address(i.operands[1], space)}, {phase}, __LINE__)")
    raise Unknown(i.text)


def _shuffle(b: Block, i: Instruction) -> str:
    i.allow("sync", "idx", "up", "down", "bfly")
    i.need(5)
    mode = next((w[0] if w != "bfly" else "x" for w in i.words if w in ("idx", "up", "down", "bfly")), "")
    value, lane, clamp, mask = (b.read(o[0], "b32") for o in i.operands[1:])
    targets = [w for w in i.operands[0] if w != "|"]
    extra = f" ::emu::ptx::put({b.target(targets[1])}, emu_p);" if len(targets) > 1 else ""
    call = f"::emu::ptx::shuffle('{mode}', {value}, {lane}, {clamp}, {mask}, &emu_p, __LINE__)"
    return f"{{ bool emu_p; ::emu::ptx::put({b.target(targets[0])}, {call});{extra} }}"


def _policy(b: Block, i: Instruction) -> str:
    return _result(b, i, "uint64_t(0)")


def _elect(b: Block, i: Instruction) -> str:
    i.allow("sync")
    targets = [w for w in i.operands[0] if w != "|"]
    mask = b.read(i.operands[1][0], "b32")
    first = f"__builtin_ctz({mask})"
    lane = f"::emu::ptx::put({b.target(targets[0])}, uint32_t({first}));"
    leader = f"::emu::ptx::put({b.target(targets[-1])}, ::emu::current->lane == unsigned({first}));"
    return f"{{ {lane} {leader} __syncwarp({mask}, ::emu::Line{{__LINE__}}); }}"


def _prmt(b: Block, i: Instruction) -> str:
    i.allow()
    values = ", ".join(b.read(o[0], "b32") for o in i.operands[1:])
    return _result(b, i, f"__byte_perm({values})")


def _lop3(b: Block, i: Instruction) -> str:
    i.allow()
    values = ", ".join(b.read(o[0], "b32") for o in i.operands[1:])
    return _result(b, i, f"::emu::ptx::lop3({values})")


def _shift(function: str) -> Callable[[Block, Instruction], str]:
    def emit(b: Block, i: Instruction) -> str:
        i.allow()
        i.need(3)
        value, by = b.read(i.operands[1][0], i.type()), b.read(i.operands[2][0], "u32")
        return _result(b, i, f"::emu::ptx::{function}({value}, {by})")

    return emit


def _trap(b: Block, i: Instruction) -> str:
    return "__trap(::emu::Line{__LINE__});"


EMITTERS: dict[str, Callable[[Block, Instruction], str]] = {
    "ld": _load, "st": _store, "ldu": _load, "mov": _move, "cvt": _convert, "cvta": _to_window,
    "mapa": _map, "atom": _atomic, "red": _atomic, "bar": _barrier, "barrier": _barrier, "cp": _copy,
    "mbarrier": _mbarrier, "fence": _fence, "membar": _fence, "createpolicy": _policy, "prefetch": _nothing,
    "prefetchu": _nothing, "applypriority": _nothing, "discard": _nothing, "griddepcontrol": _dependency,
    "setmaxnreg": _nothing, "nanosleep": _sleep, "pragma": _nothing, "setp": _setp, "selp": _select, "bra": _branch,
    "shfl": _shuffle, "elect": _elect, "prmt": _prmt, "lop3": _lop3, "trap": _trap, "fma": _fma, "mad": _fma,
    "add": _binary("{a} + {b}"), "sub": _binary("{a} - {b}"), "mul": _binary("{a} * {b}"),
    "div": _binary("{a} / {b}"), "rem": _binary("{a} % {b}"), "and": _binary("{a} & {b}"),
    "or": _binary("{a} | {b}"), "xor": _binary("{a} ^ {b}"), "min": _binary("min({a}, {b})"),
    "max": _binary("max({a}, {b})"), "shl": _shift("shift_left"), "shr": _shift("shift_right"),
    "not": _unary("~{a}"), "neg": _unary("-{a}"), "abs": _unary("std::abs({a})"),
    "rcp": _unary("::emu::ptx::rcp({a})"), "sqrt": _unary("std::sqrt({a})"), "rsqrt": _unary("rsqrt({a})"),
    "ex2": _unary("::emu::ptx::ex2({a})"), "lg2": _unary("::emu::ptx::lg2({a})"), "sin": _unary("std::sin({a})"),
    "cos": _unary("std::cos({a})"), "tanh": _unary("std::tanh({a})"), "popc": _unary("__popc({a})"),
    "clz": _unary("__clz({a})"), "brev": _unary("__brev({a})"),
}  # fmt: skip
