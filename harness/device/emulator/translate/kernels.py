"""What the source declares as `__global__`, and the pass over the bodies of its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from harness.device.emulator.translate.errors import NvccRefuses
from harness.device.emulator.translate.lexer import Edits, Source, one_line

# Attributes with an argument list that may stand between __global__ and the kernel's name.
_ATTRIBUTES = {
    "__launch_bounds__",
    "__cluster_dims__",
    "__maxnreg__",
    "__attribute__",
    "__align__",
    "alignas",
}


@dataclass(frozen=True)
class Kernel:
    """One declaration: how many template parameters it has (-1 when it takes a pack)."""

    name: str
    template_parameters: int
    cluster: str = ""


@dataclass
class Kernels:
    """All kernels of a submission by name; a name may be declared several times."""

    by_name: dict[str, list[Kernel]]

    def has_address(self, name: str, explicit_arguments: int) -> bool:
        """Whether `name` with that many explicit template arguments denotes one function."""
        known = self.by_name.get(name, [])
        counts = {kernel.template_parameters for kernel in known}
        return counts == {explicit_arguments} and len({k.name for k in known}) == 1

    def cluster(self, name: str) -> str:
        """The arguments of `__cluster_dims__`, or nothing."""
        return next((k.cluster for k in self.by_name.get(name, []) if k.cluster), "")


def _template_parameters(source: Source, first: int, last: int) -> int:
    for i in range(first, last):
        if source.at(i) != "template" or source.at(i + 1) != "<":
            continue
        close = source.closing_angle(i + 1)
        parts = source.split(i + 2, close)
        if any(source.at(k) == "." for a, b in parts for k in range(a, b)):
            return -1
        return len(parts)
    return 0


def name_index(source: Source, index: int) -> int:
    """Index of the declared name, which is the first one followed by a parameter list."""
    i = index + 1
    while i < len(source.tokens) and source.at(i) not in (";", "{"):
        if source.tokens[i].kind == "name" and source.at(i + 1) == "(":
            if source.at(i) not in _ATTRIBUTES:
                return i
            i = source.partner.get(i + 1, i + 1)
        i += 1
    return -1


def _cluster(source: Source, first: int, last: int) -> str:
    for i in range(first, last):
        if source.at(i) == "__cluster_dims__" and source.at(i + 1) == "(":
            return one_line(source.slice(i + 2, source.partner[i + 1]))
    return ""


def collect(source: Source, into: Kernels) -> None:
    """Add the kernels that `source` declares."""
    for i, token in enumerate(source.tokens):
        if token.text != "__global__":
            continue
        name = name_index(source, i)
        if name < 0:
            continue
        first = source.statement_start(i)
        kernel = Kernel(source.at(name), _template_parameters(source, first, i), _cluster(source, first, name))
        if kernel not in into.by_name.setdefault(kernel.name, []):
            into.by_name[kernel.name].append(kernel)


def refuse_references(source: Source) -> None:
    """Raise NvccRefuses at the first parameter of a kernel that is a reference."""
    for i, token in enumerate(source.tokens):
        name = name_index(source, i) if token.text == "__global__" else -1
        if name < 0 or name + 1 not in source.partner:
            continue
        for first, last in source.split(name + 2, source.partner[name + 1]):
            reference = _reference(source, first, last)
            if reference >= 0:
                raise NvccRefuses(
                    reference,
                    f"{source.at(name)} is a kernel and takes a parameter by reference ({source.slice(first, last)}), "
                    f"which CUDA does not allow: the address would be the host's. Pass it by value, or pass a pointer "
                    f"to memory of the device.",
                )


def _reference(source: Source, first: int, last: int) -> int:
    """Index of the `&` that makes the parameter in these tokens a reference, or -1: one in the arguments of a template
    or among the parameters of a function that it points to does not."""
    i = first
    while i < last and source.at(i) != "=":
        if source.at(i) == "&" or (source.at(i) == "(" and source.at(i + 1) == "&"):
            return i
        if source.at(i) == "<":
            i = max(i, source.closing_angle(i))
        elif source.at(i) in ("(", "[", "{"):
            i = source.partner.get(i, i)
        i += 1
    return -1


def _launch_bounds(source: Source, first: int, last: int) -> str:
    for i in range(first, last):
        if source.at(i) == "__launch_bounds__" and source.at(i + 1) == "(":
            return one_line(source.slice(i + 2, source.partner[i + 1]))
    return ""


def mark_bodies(source: Source, edits: Edits) -> None:
    """Make a kernel check its launch bounds, and its `return;` tell the runtime that threads left on purpose.

    Bounds may depend on template parameters, so that only the kernel itself knows them. Threads that return do
    not count at later barriers.
    """
    for i, token in enumerate(source.tokens):
        if token.text != "__global__":
            continue
        name = name_index(source, i)
        body = source.partner.get(name + 1, -1) + 1 if name >= 0 else 0
        if not body or source.at(body) != "{":
            continue
        bounds = _launch_bounds(source, source.statement_start(i), name)
        if bounds:
            edits.replace_tokens(body, body + 1, f"{{ ::emu::launch_bound({bounds});")
        for k in range(body, source.partner.get(body, body)):
            if source.at(k) == "return" and source.at(k + 1) == ";":
                edits.replace_tokens(k, k + 1, "return ::emu::early_return()")
