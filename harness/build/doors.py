"""Symbols by which native code does what a submission must not, past PyTorch's dispatcher: a list with reasons."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from harness.build.symbols import defined, demangled, undefined
from harness.errors import KernelgateError
from harness.norms import RELATIVES


class ForbiddenSymbol(KernelgateError):
    """An extension takes a symbol from another library that does what it must not; the text says which and why."""


# Namespaces of functions that lead to a kernel without the dispatcher's entry for it.
_PAST_THE_DISPATCHER = re.compile(
    r"(?:^|[\s*&])at::(native|cpu|cuda|meta|compositeexplicitautograd\w*|compositeimplicitautograd\w*|_ops::\w+::redispatch)\b"
)

# What inductor's code calls: kernels by C names.
_SHIMS = re.compile(r"^aoti_torch_[a-z]+_\w")

_NORMALISES = re.compile(
    r"(layer|batch|group|instance|rms|weight)_?norm|(?<![a-z])renorm|dense_to_mkldnn", re.IGNORECASE
)

# TorchScript's interpreters whose operators are not the dispatcher's, and graphs that may hold a node of theirs.
_INTERPRETERS = re.compile(
    r"\btorch::jit::(Static(Module|Runtime)|BlockRunner|ProcessedNode|parseIR|Graph::create\b|\w*StaticSubgraphs?|fuser::"
    r"|RegisterCustom|\w*LlgaFuser|\w*Llga|getOperation|getAll(Sorted)?Operators)|\bdnnl::(graph|impl)::|^dnnl_graph_"
)

# TorchScript's fuser, whose kernels never ask the dispatcher.
_FUSERS = re.compile(
    r"\btorch::jit::(tensorexpr::|\w*TensorExpr\w*|overrideCanFuse\w*|canFuse\w*|CustomFuseGraph|FuseGraph\w*|getTEMustUse)"
)

# What an operator was before its entry was replaced stands in the dispatcher's list, behind that. A fallback is given
# the operator with its list.
_LISTS = re.compile(
    r"\bc10::Dispatcher::(realSingleton|find)|\btorch::jit::(findOperatorFor|getOperatorForLiteral)"
    r"|\btorch::Library::_fallback"
)

# Normalisations of vendors' libraries, by their C names.
_VENDORS = re.compile(r"^(cudnn\w*Norm(alization)?\w*|miopen\w*Norm\w*|dnnl_\w*normalization\w*)")

# What finds any function by a name that need not be among the symbols.
_FINDERS = frozenset(
    {
        "dlopen", "dlmopen", "dlsym", "dlvsym", "_dl_sym", "__libc_dlsym", "__libc_dlopen_mode",
        "dl_iterate_phdr", "dladdr1", "dlinfo", "_r_debug",
    }
)  # fmt: skip

# The same, as classes of libtorch.
_FINDERS_CLASSES = re.compile(r"\bat::DynamicLibrary::")

_GRAPHS = frozenset({"cudnnBackendExecute", "cudnnBackendFinalize"})


def require_no_door(library: Path, allowed: Collection[str] = (), also: Iterable[str] = ()) -> None:
    """Raises ForbiddenSymbol for the first symbol of `library` that does a forbidden operator without PyTorch's
    dispatcher: a normalisation whose operator is not in `allowed`, or an operator in `also`. One that `library` defines
    itself counts: at the loader's will another library's takes its place."""
    others = _others(also)
    for symbol in (*undefined(library), *defined(library)):
        why = _why(symbol, demangled(symbol), allowed, others)
        if why:
            raise ForbiddenSymbol(f"The extension uses {demangled(symbol)}: {why}")


def why_not(symbol: str, allowed: Collection[str] = (), also: Iterable[str] = ()) -> str:
    """Why Python must not look `symbol` up in a library, as `require_no_door` has it; '' where it may. What only finds
    other functions is looked up by honest packages, too, but for dlsym itself."""
    if symbol in _FINDERS and "sym" not in symbol:
        return ""
    return _why(symbol, demangled(symbol) if symbol.startswith("_Z") else symbol, allowed, _others(also))


def _others(also: Iterable[str]) -> set[str]:
    """Operators in `also`, and those that have one of them inside."""
    return {_plain(each.rpartition("::")[2]) for name in also for each in (name, *RELATIVES.get(name, ()))}


def _why(symbol: str, text: str, allowed: Collection[str], also: Collection[str]) -> str:
    if symbol in _FINDERS or _FINDERS_CLASSES.search(text):
        return (
            "it finds any function by its name, forbidden ones among them. Link to what you call; functions of the "
            "CUDA driver come by cudaGetDriverEntryPoint."
        )
    if symbol in _GRAPHS:
        return "a graph of cuDNN's can hold the operator that the submission replaces."
    if _INTERPRETERS.search(text):
        return "it runs graphs by operators of its own, and what the submission replaces is among them."
    if _FUSERS.search(text):
        return "it makes kernels of a graph, and what the submission replaces may be in it."
    if _LISTS.search(text):
        return (
            "it leads to kernels that the dispatcher has replaced. Call operators by their names: at::add(x, y), or "
            "torch.ops in Python."
        )
    normalises = _NORMALISES.search(text) and not any(_plain(name) in _plain(text) for name in allowed)
    if _VENDORS.match(text) and not allowed:
        return "it is a library's own normalisation, which the submission replaces."
    # With its arguments: a variable's type may have some before its name.
    is_one = normalises or any(name in _plain(text.replace(".", "")) for name in also)
    if is_one and (_PAST_THE_DISPATCHER.search(text) or _SHIMS.match(text)):
        return "it is a kernel of PyTorch that does what the submission replaces."
    return ""


def _plain(name: str) -> str:
    """'native_layer_norm.out' and 'LayerNorm' in one spelling: 'layernorm'."""
    return name.partition(".")[0].replace("native_", "").replace("_", "").lower()
