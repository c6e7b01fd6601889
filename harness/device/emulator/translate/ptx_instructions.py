"""What each instruction of PTX becomes in C++. Unknown instructions and modifiers are refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.device.emulator.translate.ptx_arithmetic import ARITHMETIC, result
from harness.device.emulator.translate.ptx_operands import SPACES, TYPES, Block, Instruction, Unknown, plain


def _space(instruction: Instruction) -> str:
    return next((word for word in instruction.words if word in SPACES), "")


def _width(instruction: Instruction) -> int:
    return next((int(w[1:]) for w in instruction.words if re.fullmatch(r"v[248]", w)), 1)


def _order(instruction: Instruction) -> str:
    if {"volatile", "cv"} & set(instruction.words):
        return "::emu::ptx::Order::Volatile"
    strong = {"relaxed", "acquire", "release"} & set(instruction.words)
    return f"::emu::ptx::Order::{'Strong' if strong else 'Weak'}"


_ACCESS = ("v2", "v4", "v8", "volatile", "relaxed", "acquire", *SPACES)


def _load(b: Block, i: Instruction) -> str:
    i.allow(*_ACCESS, "cv")
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


def _move(b: Block, i: Instruction) -> str:
    i.allow()
    i.need(2)
    to, source = i.operands
    kind = i.type()
    if len(to) == 1 and len(source) == 1:
        return result(b, i, b.read(source[0], kind))
    bits = {"b32": 32, "b64": 64}.get(kind, 0)
    many = to if len(to) > 1 else source
    if not bits or bits // len(many) < 16:
        raise Unknown(i.text)
    part = bits // len(many)
    if len(source) > 1:
        terms = " | ".join(f"uint64_t({b.read(s, f'b{part}')}) << {k * part}" for k, s in enumerate(source))
        return result(b, i, f"uint{bits}_t({terms})")
    value = b.read(source[0], kind)
    parts = "".join(f" ::emu::ptx::put({b.target(t)}, uint{part}_t(emu_v >> {k * part}));" for k, t in enumerate(to))
    return f"{{ const auto emu_v = {value};{parts} }}"


def _branch(b: Block, i: Instruction) -> str:
    i.allow("uni")
    return f"goto emu_l_{plain(i.operands[0][0])};"


def _to_window(b: Block, i: Instruction) -> str:
    i.allow("to", *SPACES)
    i.need(2)
    value = f"::emu::ptx::as<uint64_t>({b.value(i.operands[1][0])})"
    if not _space(i).startswith("shared"):
        return result(b, i, value)
    if "to" in i.words:
        return result(b, i, f"uint64_t(::emu::shared_window(::emu::ptx::generic({value})))")
    return result(b, i, f"reinterpret_cast<uint64_t>(::emu::ptx::shared({value}))")


_ATOMIC = {"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax", "and": "atomicAnd", "or": "atomicOr",
           "xor": "atomicXor", "exch": "atomicExch", "cas": "atomicCAS", "inc": "atomicInc",
           "dec": "atomicDec"}  # fmt: skip


def _atomic(b: Block, i: Instruction) -> str:
    i.allow("relaxed", "acquire", "acq_rel", "v2", "v4", *_ATOMIC, *SPACES)
    function = next((_ATOMIC[w] for w in i.words if w in _ATOMIC), "")
    kind, count, is_red = i.type(), _width(i), i.words[0] == "red"
    operands = i.operands if is_red else i.operands[1:]
    if not function or (count > 1 and (not is_red or len(operands) != 2 or len(operands[1]) != count)):
        raise Unknown(i.text)
    target = f"static_cast<{TYPES[kind]}*>({b.address(operands[0], _space(i))})"
    function += "_block" if "cta" in i.words else ""
    if count > 1:  # each part is an atomic of its own
        calls = "".join(
            f" {function}({target} + {k}, {b.read(value, kind)}, ::emu::Line{{__LINE__}});"
            for k, value in enumerate(operands[1])
        )
        return f"{{ {_releasing(b, i)}{calls} }}"
    values = ", ".join(b.read(o[0], kind) for o in operands[1:])
    call = f"{function}({target}, {values}, ::emu::Line{{__LINE__}})"
    return _releasing(b, i) + (f"{call};" if is_red else result(b, i, call))


def _barrier(b: Block, i: Instruction) -> str:
    words = i.without_hints()
    if words == ["warp", "sync"]:
        return f"__syncwarp({b.read(i.operands[0][0], 'u32')}, ::emu::Line{{__LINE__}});"
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
    return result(b, i, f"::emu::ptx::map_rank({address}, {rank}, __LINE__)")


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
        relaxed = "true" if "relaxed" in i.words else "false"
        return result(b, i, f"::emu::mbarrier_arrive({address}, {count}, {size}, __LINE__, {relaxed})")
    if i.words[1] in ("test_wait", "try_wait"):
        call = "mbarrier_parity_passed" if "parity" in i.words else "mbarrier_passed"
        phase = b.read(i.operands[2][0], "u32" if "parity" in i.words else "u64")
        return result(b, i, f"::emu::{call}({b.address(i.operands[1], space)}, {phase}, __LINE__)")
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


def _vote(b: Block, i: Instruction) -> str:
    i.allow("sync", "ballot", "any", "all", "uni")
    i.need(3)
    mode = next((w for w in i.words if w in ("ballot", "any", "all", "uni")), "")
    if "sync" not in i.words or not mode:
        raise Unknown(i.text)
    call = f"__{mode}_sync({b.read(i.operands[2][0], 'b32')}, {b.predicate(i.operands[1])}, ::emu::Line{{__LINE__}})"
    return result(b, i, call)


def _active(b: Block, i: Instruction) -> str:
    i.allow()
    return result(b, i, "__activemask(::emu::Line{__LINE__})")


def _match(b: Block, i: Instruction) -> str:
    i.allow("any", "all", "sync")
    i.need(3)
    value, mask = b.read(i.operands[1][0], i.type()), b.read(i.operands[2][0], "b32")
    if "any" in i.words:
        return result(b, i, f"__match_any_sync({mask}, {value}, ::emu::Line{{__LINE__}})")
    targets = [w for w in i.operands[0] if w != "|"]
    same = f" ::emu::ptx::put({b.target(targets[1])}, emu_p != 0);" if len(targets) > 1 else ""
    call = f"__match_all_sync({mask}, {value}, &emu_p, ::emu::Line{{__LINE__}})"
    return f"{{ int emu_p; ::emu::ptx::put({b.target(targets[0])}, {call});{same} }}"


def _reduce(b: Block, i: Instruction) -> str:
    i.allow("sync", "add", "min", "max", "and", "or", "xor")
    i.need(3)
    mode = next((w for w in i.words if w in ("add", "min", "max", "and", "or", "xor")), "")
    kind = i.type()
    if not mode or kind not in ("u32", "s32", "b32"):
        raise Unknown(i.text)
    value, mask = b.read(i.operands[1][0], kind), b.read(i.operands[2][0], "b32")
    return result(b, i, f"__reduce_{mode}_sync({mask}, {value}, ::emu::Line{{__LINE__}})")


def _policy(b: Block, i: Instruction) -> str:
    return result(b, i, "uint64_t(0)")


def _elect(b: Block, i: Instruction) -> str:
    i.allow("sync")
    targets = [w for w in i.operands[0] if w != "|"]
    mask = b.read(i.operands[1][0], "b32")
    first = f"__builtin_ctz({mask})"
    lane = f"::emu::ptx::put({b.target(targets[0])}, uint32_t({first}));"
    leader = f"::emu::ptx::put({b.target(targets[-1])}, ::emu::current->lane == unsigned({first}));"
    return f"{{ {lane} {leader} __syncwarp({mask}, ::emu::Line{{__LINE__}}); }}"


def _trap(b: Block, i: Instruction) -> str:
    return "__trap(::emu::Line{__LINE__});"


EMITTERS: dict[str, Callable[[Block, Instruction], str]] = {
    "ld": _load, "st": _store, "ldu": _load, "mov": _move, "cvta": _to_window,
    "mapa": _map, "atom": _atomic, "red": _atomic, "bar": _barrier, "barrier": _barrier, "cp": _copy,
    "mbarrier": _mbarrier, "fence": _fence, "membar": _fence, "createpolicy": _policy, "prefetch": _nothing,
    "prefetchu": _nothing, "applypriority": _nothing, "discard": _nothing, "griddepcontrol": _dependency,
    "setmaxnreg": _nothing, "nanosleep": _sleep, "pragma": _nothing, "bra": _branch, "shfl": _shuffle, "elect": _elect,
    "vote": _vote, "activemask": _active, "match": _match, "redux": _reduce, "trap": _trap, **ARITHMETIC,
}  # fmt: skip
