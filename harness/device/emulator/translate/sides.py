"""What nvcc refuses because it stands on the wrong side, host or device, and what a host compiler cannot see.

Only what is plain is reported: a function or variable at namespace scope, used by its bare name, where nothing else of
that name could be meant. Whatever may be declared anew, or hidden by a macro, is left to the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.device.emulator.translate import functions, hidden, variables
from harness.device.emulator.translate.errors import NvccRefuses
from harness.device.emulator.translate.functions import Body, Functions
from harness.device.emulator.translate.lexer import MACRO_NAME, Source, defined_macros, in_directives
from harness.device.emulator.translate.scopes import at_namespace_scope

_BEFORE_A_CALL = {"return", "else", "do", "case", "co_return", "throw"}
_UNEVALUATED = {"decltype", "sizeof", "noexcept", "alignof"}
_TYPES = {"bool", "char", "short", "int", "unsigned", "long", "float", "double", "half", "auto", "size_t", "int64_t"}

# Marks before a name that is used and not declared; of `*`, `&`, `,`, `(` and `[` that depends on what is before them.
_BEFORE_A_USE = set("=+-/%?:!|^~<") | {"return"}
_LAMBDA_FLAGS = ("extended-lambda", "expt-extended-lambda")

# What torch and C++ have for the host alone, and what stands for it on the device.
_MESSAGES = "printf says it, assert stops the kernel"
_HOSTS_OWN = {
    ("TORCH_CHECK", "("): _MESSAGES,
    ("TORCH_INTERNAL_ASSERT", "("): _MESSAGES,
    ("std", "::", "cout", "<"): _MESSAGES,
    ("std", "::", "cerr", "<"): _MESSAGES,
}


def check(source: Source, flags: Sequence[str] = ()) -> None:
    """Raise NvccRefuses at the first use of a function, a variable, an exception or a lambda where nvcc has none.
    `flags` are those that nvcc would get."""
    found = functions.find(source)
    around = hidden.openings(source)
    _check_calls(source, found, around)
    for body in (*found.device_bodies, *found.shared_bodies):
        _check_exceptions(source, body)
    for body in found.device_bodies:
        _check_hosts_own(source, body)
    _check_variables(source, found.device_bodies, around)
    _check_assignments(source, found.host_bodies, around)
    _check_lambdas(source, flags)


def _check_calls(source: Source, found: Functions, around: list[int]) -> None:
    for body in found.device_bodies if found.host else []:
        for call in _calls(source, body, found.host, around):
            caller, function = source.at(body.name), source.at(call)
            raise NvccRefuses(
                call,
                f"{caller} runs on the device and calls {function}, which is a host function: nvcc refuses this. "
                f"Declare {function} as __device__.",
            )
    device = {name for name in found.device if not _is_torchs(name)}
    for body in found.host_bodies if device else []:
        if any(source.at(i) == "__device__" for i in range(body.opening, body.end)):
            continue  # a lambda of the device
        for call in _calls(source, body, device, around):
            caller, function = source.at(body.name), source.at(call)
            raise NvccRefuses(
                call,
                f"{caller} runs on the host and calls {function}, which is a __device__ function: nvcc refuses this. "
                f"Declare {function} as __host__ __device__, or call it in a kernel.",
            )


def _is_torchs(name: str) -> bool:
    """Whether a tensor as the argument makes it a function of torch's: it is found in the argument's namespace."""
    import torch

    return hasattr(torch, name) or hasattr(torch.ops.aten, name)


def _check_exceptions(source: Source, body: Body) -> None:
    for i in range(body.opening, body.end):
        if source.tokens[i].kind == "name" and source.at(i) in ("throw", "try"):
            raise NvccRefuses(
                i,
                f"{source.at(body.name)} runs on the device, where nvcc has no exceptions. Check what is given before "
                f"the launch, or use assert.",
            )


def _check_hosts_own(source: Source, body: Body) -> None:
    for i in range(body.opening, body.end):
        for words, instead in _HOSTS_OWN.items():
            if source.at(i - 1) not in (".", "->", "::") and all(source.at(i + k) == w for k, w in enumerate(words)):
                what = "".join(words[:-1])
                raise NvccRefuses(
                    i,
                    f"{source.at(body.name)} runs on the device and uses {what}, which is the host's: nvcc refuses "
                    f"this. On the device {instead}.",
                )


def _check_lambdas(source: Source, flags: Sequence[str]) -> None:
    if any(flag.lstrip("-") in _LAMBDA_FLAGS for flag in flags):
        return
    for i, token in enumerate(source.tokens):
        if token.text == "__device__" and source.at(i - 1) == "]" and source.at(i + 1) == "(":
            raise NvccRefuses(
                i,
                "a lambda is marked __device__, which nvcc takes with --extended-lambda alone: name it in "
                "extra_cuda_cflags.",
            )


def _check_variables(source: Source, bodies: list[Body], around: list[int]) -> None:
    scopes, skipped = at_namespace_scope(source), in_directives(source)
    outside = [scope and (k < 0 or source.at(k) == "{") for scope, k in zip(scopes, around, strict=True)]
    in_directive = {source.at(i) for i in range(len(source.tokens)) if skipped[i]}
    inside = [body for body in bodies if scopes[body.name]]  # a class may have a member of that name
    begins = [source.statement_start(body.name) for body in inside]
    places: dict[str, list[int]] = {}
    for i, token in enumerate(source.tokens):
        places.setdefault(token.text, []).append(i)
    for variable in variables.of_the_host(source, outside, skipped) if inside else ():
        name = source.at(variable.token)
        if len(places[name]) == 1 or name in in_directive:
            continue
        if not _is_declared_once(source, places[name], scopes, around):
            continue
        for first, body in zip(begins, inside, strict=True):
            here = [i for i in places[name] if first <= i < body.end and source.at(i - 1) not in (".", "->")]
            if here and variable.token < first and _encloses(around[variable.token], body.name, around):
                _check_variable(source, variable, body, here, around)


def _check_assignments(source: Source, bodies: list[Body], around: list[int]) -> None:
    """Raise NvccRefuses at the first assignment of a host's function to a variable of the device."""
    scopes = at_namespace_scope(source)
    for first, _, names in variables.of_the_device(source):
        if any(source.at(i) == "__managed__" for i in range(first, names[0])):
            continue
        for token in names:
            name = source.at(token)
            places = [i for i, other in enumerate(source.tokens) if other.text == name]
            if len(places) == 1 or not _is_declared_once(source, places, scopes, around):
                continue
            for body in bodies:
                here = [i for i in places if source.statement_start(body.name) <= i < body.end]
                if body.name > token and _encloses(around[token], body.name, around):
                    _check_assigned(source, body, here, around)


def _check_assigned(source: Source, body: Body, places: list[int], around: list[int]) -> None:
    """Raise NvccRefuses at the first assignment among the `places` where the name stands in a function, if all of them
    are uses."""
    if any(source.at(i) == "__device__" for i in range(body.opening, body.end)):
        return  # a lambda of the device
    assigned = [i for i in places if source.at(i - 1) in (";", "{", "}") and _is_assigned(source, i)]
    if assigned and all(i in assigned or _is_plain(source, i, around) for i in places):
        function, name = source.at(body.name), source.at(assigned[0])
        raise NvccRefuses(
            assigned[0],
            f"{function} runs on the host and assigns to {name}, which is a variable of the device: no kernel sees "
            f"this. Use cudaMemcpyToSymbol, or declare it as __managed__.",
        )


def _is_assigned(source: Source, name: int) -> bool:
    after = name + 1
    while source.at(after) == "[" and after in source.partner:
        after = source.partner[after] + 1
    return source.at(after) == "=" and source.at(after + 1) != "="


def _check_variable(
    source: Source, variable: variables.Variable, body: Body, places: list[int], around: list[int]
) -> None:
    """Raise NvccRefuses at the first use in a function if all of the `places` where the name stands in it are uses."""
    uses = [i for i in places if not _is_unevaluated(source, i, around)]
    if not uses or not all(_is_plain(source, i, around) for i in places):
        return
    caller, name = source.at(body.name), source.at(variable.token)
    if not variable.is_constant:
        raise NvccRefuses(
            uses[0],
            f"{caller} runs on the device and uses {name}, which is a variable of the host: nvcc refuses this. Pass it "
            f"as an argument, or declare it as constexpr or __constant__.",
        )
    for i in uses:
        if _is_found_at_run_time(source, i + 1, body):
            raise NvccRefuses(
                i,
                f"{caller} runs on the device and reads {name} at a place that is known at run time, and {name} is an "
                f"array of the host: nvcc refuses this. Declare it as __constant__ or __device__.",
            )


def _is_found_at_run_time(source: Source, bracket: int, body: Body) -> bool:
    """Whether the subscript that begins here names a thread, or an integer that the function changes."""
    if source.at(bracket) != "[":
        return False
    words = {source.at(i) for i in range(bracket + 1, source.partner[bracket]) if source.tokens[i].kind == "name"}
    if "threadIdx" in words or "blockIdx" in words:
        return True
    for i in range(body.name, body.end):
        is_declared = source.at(i - 1) in _TYPES - {"auto"} and source.at(i + 1) in ("=", ",", ")", ";")
        if source.at(i) in words and is_declared and source.at(i - 2) not in ("const", "constexpr", "<", "unsigned"):
            return True
    return False


def _is_declared_once(source: Source, places: list[int], scopes: list[bool], around: list[int]) -> bool:
    """Whether nothing else outside of functions has the name that stands at `places`: no other variable, and no
    enumerator."""
    declared = 0
    for i in places:
        opening = around[i]
        head = source.statement_start(opening) if opening >= 0 else 0
        if opening >= 0 and source.at(opening) == "{" and any(source.at(k) == "enum" for k in range(head, opening)):
            return False
        in_braces = opening < 0 or source.at(opening) == "{"
        declared += scopes[i] and in_braces and source.at(i - 1) not in ("=", "[", "::")
    return declared == 1


def _encloses(opening: int, token: int, around: list[int]) -> bool:
    """Whether the brace is one of those that the token stands in; -1 is the file."""
    while around[token] >= 0 and around[token] != opening:
        token = around[token]
    return around[token] == opening


def _is_plain(source: Source, i: int, around: list[int]) -> bool:
    """Whether a name is used here for certain, and is not declared."""
    before, behind = source.at(i - 1), source.at(i + 1)
    if before in _BEFORE_A_USE:
        return True
    if before in (";", "}"):
        return behind in ("=", "+", "-", "[") and source.at(i + 2) != "]"
    if before in ("*", "&"):
        factor = source.tokens[i - 2]
        is_product = factor.kind == "name" and source.at(i - 3) in {*_BEFORE_A_USE, "*"}
        return factor.text == "]" or factor.kind == "number" or is_product
    if before == "[":
        indexed = source.tokens[i - 2]
        return (indexed.kind == "name" and indexed.text != "auto") or indexed.text in ("]", ")")
    if before in ("(", ","):
        return _is_argument(source, i, around[i])
    return False


def _is_argument(source: Source, i: int, opening: int) -> bool:
    """Whether the name stands in the parentheses of a call, of a condition, or of a term."""
    if opening < 0 or source.at(opening) != "(":
        return False
    called = source.tokens[opening - 1]
    if called.text == "for" or source.at(i + 1) == "[":
        return False
    if MACRO_NAME.fullmatch(called.text) or called.text in defined_macros(source):
        return False
    return source.at(i - 1) == "(" or called.kind == "name"


def _is_unevaluated(source: Source, i: int, around: list[int]) -> bool:
    """Whether only its type counts."""
    if source.at(i - 1) == "sizeof":
        return True
    opening = around[i]
    while opening >= 0 and source.at(opening) == "(":
        if source.at(opening - 1) in _UNEVALUATED:
            return True
        opening = around[opening]
    return False


def _calls(source: Source, body: Body, wanted: set[str], around: list[int]) -> list[int]:
    """Tokens of a function that call one of `wanted` by its bare name. Whatever else may have the name there, as a
    parameter of its template has, is none of them."""
    found, shadowed = [], set()
    for i in range(source.statement_start(body.name), body.end):
        if i == body.name or source.at(i) not in wanted or source.tokens[i].kind != "name":
            continue
        after = i + 1
        if source.at(after) == "<":
            after = source.closing_angle(after) + 1
        before = source.tokens[i - 1]
        is_call = before.text in _BEFORE_A_CALL or (before.kind == "mark" and before.text not in (".", "->", "::", ">"))
        if source.at(after) != "(" or not is_call:
            shadowed.add(source.at(i))
        elif not _is_unevaluated(source, i, around):
            found.append(i)
    return [i for i in found if source.at(i) not in shadowed]
