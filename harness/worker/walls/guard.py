"""Operators that a submission must not run: in its process they do not exist.

The normalisation operators are replaced in PyTorch's dispatcher, with all of their overloads and wherever the
CPU or CUDA has a kernel for them, dense tensors or not, by a function that tells the judge the operator's name and
raises.
Python, C++, other threads and timed calls all go through the dispatcher, so there is nothing to detect: a submission
that calls one gets no result from it, and a fallback inside `try` is reported all the same. Inductor, the compiler
behind torch.compile, cannot be imported, and TorchScript's static runtime, whose operators are its own, cannot be
entered. The baselines run in other processes.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from harness.norms import NORMALISATIONS
from harness.protocol.testimony import Witness
from harness.worker.walls.refusals import Refusals

# Dense tensors' keys, and those of other layouts, such as oneDNN's and nested tensors, that have kernels of their own.
DENSE_KEYS = ("CPU", "CUDA")
LAYOUT_KEYS = (
    "MkldnnCPU",  # the only one that Python has no member for
    *(
        key
        for key in torch._C.DispatchKey.__members__
        if key.endswith(DENSE_KEYS) and not key.startswith(("Auto", *DENSE_KEYS))
    ),
)

KEYS = frozenset({*DENSE_KEYS, *LAYOUT_KEYS})

# As they are now: a submission may replace them.
_dispatch_dump = torch._C._dispatch_dump

# What every way into inductor imports.
COMPILER = "torch._inductor.compile_fx"

# TorchScript's second interpreter calls kernels without the dispatcher; these are the ways into it.
STATIC_RUNTIME = ("_jit_to_static_module", "_fuse_to_static_module")


def _keep_for_ever(thing: object) -> None:
    """Never free `thing`, and leave no name through which a submission could find and undo it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _Refusing:
    """A finder of modules that calls `refuse` when `module` is to be imported."""

    def __init__(self, module: str, refuse: Callable[..., Any]) -> None:
        self._module = module
        self._refuse = refuse

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == self._module:
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
        self._registrations = torch._C._dispatch_library("IMPL", "aten", "", __file__, 0)
        allowed = set(allowed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overriding a kernel is what this is for
            for name in (*NORMALISATIONS, *also):
                if name.split(".")[0] not in allowed:
                    self._forbid(name)
        self._forbid_compile()
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
        operator, _, asked = name.partition(".")
        packet = getattr(torch.ops.aten, operator, None)
        for overload in packet.overloads() if packet else ():
            if asked and overload != asked:
                continue
            full = operator if overload == "default" else f"{operator}.{overload}"
            refuse = self._refusals.of(f"aten::{full}")
            self._operators += (f"aten::{full}",)
            for key in (*DENSE_KEYS, *LAYOUT_KEYS):
                if key in DENSE_KEYS or torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{full}", key):
                    self._registrations.impl(full, key, refuse)

    def _forbid_compile(self) -> None:
        refuse = self._refusals.of("torch.compile")
        torch.compile = refuse
        sys.meta_path.insert(0, _Refusing(COMPILER, refuse))
        sys.addaudithook(self._refusals.opening(COMPILER, refuse))
        for name in STATIC_RUNTIME:
            setattr(torch._C, name, self._refusals.of("TorchScript's static runtime"))

    def _registered(self) -> tuple[str, ...]:
        """Where each kernel that was replaced comes from, by the dispatcher: the first line of a key is in use."""
        return tuple(
            line
            for name in self._operators
            for line in _dispatch_dump(name).splitlines()
            if line.partition(":")[0].removesuffix(" (inactive)") in KEYS
        )
