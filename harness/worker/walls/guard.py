"""Operators that a submission must not run: in its process they do not exist.

The normalisation operators are replaced in PyTorch's dispatcher, with all of their overloads and wherever the
CPU or CUDA has a kernel for them, dense tensors or not, by a function that tells the judge the operator's name and
raises.
Python, C++, other threads and timed calls all go through the dispatcher, so there is nothing to detect: a submission
that calls one gets no result from it, and a fallback inside `try` is reported all the same. Inductor, the compiler
behind torch.compile, cannot be imported, and TorchScript's interpreters whose operators are their own cannot be
entered. The baselines run in other processes.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.build.doors import why_not
from harness.norms import NORMALISATIONS, ONEDNNS_LAYOUT, ONEDNNS_LAYOUT_WITHOUT_VALUES, RELATIVES, RMS_NORM
from harness.protocol.testimony import Witness
from harness.worker.walls.refusals import Refusals
from harness.worker.walls.torchscript import remove_operators

# Dense tensors' keys, and those of other layouts, such as oneDNN's and nested tensors, that have kernels of their own.
DENSE_KEYS = ("CPU", "CUDA")
LAYOUT_KEYS = (
    "MkldnnCPU",  # the only one that Python has no member for
    "Meta",  # some are Python that computes on whatever it gets
    *(
        key
        for key in torch._C.DispatchKey.__members__
        if key.endswith(DENSE_KEYS) and not key.startswith(("Auto", *DENSE_KEYS))
    ),
)


def _is_known(key: str) -> bool:
    """Whether this torch has a key of that name."""
    try:
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", key)
    except RuntimeError:
        return False
    return True


# A kernel that stands for all keys without one of their own, of backends that are not here among them, runs on a CPU's
# and a GPU's tensors as well.
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
FOR_ALL = tuple(filter(_is_known, (*_COMPOSITE, "FuncTorchBatchedDecomposition")))

# As they are now: a submission may replace them.
_dispatch_dump = torch._C._dispatch_dump

# What every way into inductor imports, or whoever has a copy of the first.
COMPILER, COMPILERS_MODULES = "torch._inductor", ("compile_fx", "graph", "lowering", "scheduler")

# TorchScript's static runtime, and oneDNN's graphs, have operators of their own. These are the ways into them: by name,
# and by a graph that is written as such, where a node of theirs holds what it runs.
OTHER_INTERPRETERS = (
    "_jit_to_static_module",
    "_fuse_to_static_module",
    "_jit_set_llga_enabled",
    "_create_function_from_graph",
    "_jit_pass_custom_pattern_based_rewrite",
    "_jit_pass_custom_pattern_based_rewrite_graph",
    "parse_ir",
)

# What makes kernels of a graph or of loops without the dispatcher, in torch._C._te.
GENERATORS = ("TensorExprKernel", "LoopNest", "CodeGen")

# TorchScript's executor makes such kernels itself where its fuser is on. These turn it on and off; those fuse a graph.
FUSERS_SWITCHES = (
    "_jit_set_texpr_fuser_enabled",
    "_jit_override_can_fuse_on_cpu",
    "_jit_override_can_fuse_on_cpu_legacy",
    "_jit_override_can_fuse_on_gpu",
)
FUSERS_PASSES = ("_jit_pass_fuse", "_jit_pass_fuse_tensorexprs")

# Of the operators that are forbidden.
_NAMESPACES = ("aten", "mkldnn", "onednn")


def _keep_for_ever(thing: object) -> None:
    """Never free `thing`, and leave no name through which a submission could find and undo it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _Refusing:
    """A finder of modules that calls `refuse` when one of `modules` is to be imported."""

    def __init__(self, modules: Collection[str], refuse: Callable[..., Any]) -> None:
        self._modules = modules
        self._refuse = refuse

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name in self._modules:
            self._refuse()


class Guard:
    """Installs the replacements and remembers what was called."""

    def __init__(self, witness: Witness, allowed: Iterable[str] = (), also: Iterable[str] = ()) -> None:
        """`allowed` normalisation operators may be called after all; those in `also` may not either. `witness` is told
        of each call before it raises."""
        self._witness = witness
        self._refusals = Refusals(witness)
        self._operators: tuple[str, ...] = ()
        # Registrations last as long as this object, which torch.library would show to whoever looks for it.
        self._registrations = {
            namespace: torch._C._dispatch_library("IMPL", namespace, "", __file__, 0) for namespace in _NAMESPACES
        }
        allowed, also = set(allowed), tuple(also)
        if allowed & RMS_NORM:
            allowed |= RMS_NORM
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overriding a kernel is what this is for
            for name in (*NORMALISATIONS, *ONEDNNS_LAYOUT, *also):
                if name.split(".")[0] not in allowed:
                    for each in (name, *RELATIVES.get(name, ())):
                        self._forbid(each)
            if not allowed.issuperset(ONEDNNS_LAYOUT):
                full, key = ONEDNNS_LAYOUT_WITHOUT_VALUES
                self._registrations["aten"].impl(full, key, self._refusals.of(f"aten::{full} in oneDNN's layout"))
        self._forbid_compile()
        refuse_symbol = self._refusals.of("a function of a library that does what is forbidden")
        why = partial(why_not, allowed=allowed, also=also)
        sys.addaudithook(self._refusals.looking_up(why, refuse_symbol))
        _keep_for_ever(self._registrations)
        del self._registrations
        self._kernels = self._registered()

    def take_calls(self) -> list[str]:
        """The forbidden names called since the last time, each once, in order."""
        return self._refusals.take_calls()

    def check(self) -> None:
        """Tell the witness when what stands in the operators' place is not what was put there. Takes milliseconds."""
        if not self._refusals.are_intact():
            self._witness.tampered("the functions that refuse operators were changed")
        if self._registered() != self._kernels:
            self._witness.tampered("the dispatcher's entries for forbidden operators were changed")

    def _forbid(self, name: str) -> None:
        """An overload, or all that an operator has; none where this version of torch does not have it."""
        of, _, name = name.rpartition("::")
        namespace = of or "aten"
        operator, _, asked = name.partition(".")
        packet = getattr(getattr(torch.ops, namespace), operator, None)
        for overload in packet.overloads() if packet else ():
            if asked and overload != asked:
                continue
            full = operator if overload == "default" else f"{operator}.{overload}"
            named = f"{namespace}::{full}"
            refuse = self._refusals.of(named)
            self._operators += (named,)
            for key in (*DENSE_KEYS, *LAYOUT_KEYS, *FOR_ALL):
                if key in DENSE_KEYS or torch._C._dispatch_has_kernel_for_dispatch_key(named, key):
                    self._registrations[namespace].impl(full, key, refuse)

    def _forbid_compile(self) -> None:
        refuse = self._refusals.of("torch.compile")
        torch.compile = refuse
        sys.meta_path.insert(0, _Refusing([f"{COMPILER}.{module}" for module in COMPILERS_MODULES], refuse))
        folder = Path(torch.__file__).with_name("_inductor")
        sys.addaudithook(self._refusals.opening(folder, COMPILERS_MODULES, refuse))
        refuse_graph = self._refusals.of("TorchScript's static runtime or a graph for it")
        for name in OTHER_INTERPRETERS:
            if hasattr(torch._C, name):
                setattr(torch._C, name, refuse_graph)
        remove_operators()
        setattr(torch._C.Graph, "create", refuse_graph)  # noqa: B010 (a method, to the type checker)
        refuse_generated = self._refusals.of("TorchScript's generator of kernels")
        if generators := getattr(torch._C, "_te", None):
            for kind in GENERATORS:  # the class itself, which is found without its name as well
                setattr(getattr(generators, kind), "__init__", refuse_generated)  # noqa: B010
            generators.construct_codegen = refuse_generated
        for name in FUSERS_SWITCHES:
            if switch := getattr(torch._C, name, None):
                switch(False)
        for name in (*FUSERS_SWITCHES, *FUSERS_PASSES):
            if hasattr(torch._C, name):
                setattr(torch._C, name, refuse_generated)

    def _registered(self) -> tuple[str, ...]:
        """Where each kernel of the forbidden operators comes from, by the dispatcher: the first line of a key is in
        use. One that a submission adds under another key is given the operator, with its list of kernels."""
        return tuple(
            line for name in self._operators for line in _dispatch_dump(name).splitlines() if ": registered at " in line
        )
