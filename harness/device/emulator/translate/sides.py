"""What nvcc refuses because it stands on the wrong side, host or device, and what a host compiler cannot see.

Only what is plain is reported: a function or variable at namespace scope, used by its bare name.
"""

from __future__ import annotations

from harness.device.emulator.translate import functions, hidden, variables
from harness.device.emulator.translate.errors import NvccRefuses
from harness.device.emulator.translate.functions import Body, Functions
from harness.device.emulator.translate.lexer import Source, in_directives
from harness.device.emulator.translate.scopes import at_namespace_scope

_BEFORE_A_CALL = {"return", "else", "do", "case", "co_return", "throw"}
_UNEVALUATED = {"decltype", "sizeof", "noexcept", "alignof"}

# What torch and C++ have for the host alone, and what stands for it on the device.
_MESSAGES = "printf says it, assert stops the kernel"
_HOSTS_OWN = {
    ("TORCH_CHECK",): _MESSAGES,
    ("TORCH_INTERNAL_ASSERT",): _MESSAGES,
    ("std", "::", "cout"): _MESSAGES,
    ("std", "::", "cerr"): _MESSAGES,
    ("std", "::", "vector"): "an array of a fixed length takes its place",
    ("std", "::", "string"): "printf takes a text as it is",
}


def check(source: Source) -> None:
    """Raise NvccRefuses at the first use of a function, a variable or an exception where nvcc has none."""
    found = functions.find(source)
    _check_calls(source, found)
    for body in (*found.device_bodies, *found.shared_bodies):
        _check_exceptions(source, body)
    for body in found.device_bodies:
        _check_hosts_own(source, body)
    _check_variables(source, found.device_bodies)


def _check_calls(source: Source, found: Functions) -> None:
    for body in found.device_bodies if found.host else []:
        for call in _calls(source, body.name, body.end, found.host):
            caller, function = source.at(body.name), source.at(call)
            raise NvccRefuses(
                call,
                f"{caller} runs on the device and calls {function}, which is a host function: nvcc refuses this. "
                f"Declare {function} as __device__.",
            )
    for body in found.host_bodies if found.device else []:
        if any(source.at(i) == "__device__" for i in range(body.opening, body.end)):
            continue  # a lambda of the device
        for call in _calls(source, body.name, body.end, found.device):
            caller, function = source.at(body.name), source.at(call)
            raise NvccRefuses(
                call,
                f"{caller} runs on the host and calls {function}, which is a __device__ function: nvcc refuses this. "
                f"Declare {function} as __host__ __device__, or call it in a kernel.",
            )


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
                raise NvccRefuses(
                    i,
                    f"{source.at(body.name)} runs on the device and uses {''.join(words)}, which is the host's: nvcc "
                    f"refuses this. On the device {instead}.",
                )


def _check_variables(source: Source, bodies: list[Body]) -> None:
    scopes, skipped = at_namespace_scope(source), in_directives(source)
    around = hidden.openings(source)
    outside = [scope and (k < 0 or source.at(k) == "{") for scope, k in zip(scopes, around, strict=True)]
    inside = [body for body in bodies if scopes[body.name]]  # a class may have a member of that name
    in_directive = {source.at(i) for i in range(len(source.tokens)) if skipped[i]}
    names = set(variables.of_the_host(source, outside, skipped)) - in_directive if inside else set()
    for body in inside:
        for i in range(body.opening, body.end):
            if source.at(i) not in names or not _is_a_use(source, i):
                continue
            if not any(begin <= i <= end for begin, end in hidden.ranges(source, source.at(i), scopes)):
                raise NvccRefuses(
                    i,
                    f"{source.at(body.name)} runs on the device and uses {source.at(i)}, which is a variable of the "
                    f"host: nvcc refuses this. Pass it as an argument, or declare it as constexpr or __constant__.",
                )


def _is_a_use(source: Source, i: int) -> bool:
    """Whether the name stands by itself, and not where only its type counts."""
    is_asked_for = source.at(i - 1) == "(" and source.at(i - 2) in _UNEVALUATED
    return source.at(i - 1) not in (".", "->", "::", "goto", "sizeof") and source.at(i + 1) != "::" and not is_asked_for


def _calls(source: Source, name: int, end: int, wanted: set[str]) -> list[int]:
    """Tokens between the parameters and `end` that call one of `wanted` by its bare name."""
    found, shadowed = [], set()
    for i in range(name + 1, end):
        if source.at(i) not in wanted or source.tokens[i].kind != "name":
            continue
        after = i + 1
        if source.at(after) == "<":
            after = source.closing_angle(after) + 1
        before = source.tokens[i - 1]
        if source.at(after) != "(":
            shadowed.add(source.at(i))
        elif before.text in _BEFORE_A_CALL or (before.kind == "mark" and before.text not in (".", "->", "::", ">")):
            if not (before.text == "(" and source.at(i - 2) in _UNEVALUATED):
                found.append(i)
        else:
            shadowed.add(source.at(i))
    return [i for i in found if source.at(i) not in shadowed]
