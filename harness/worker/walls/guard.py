"""Operators that a submission must not run: in its process they do not exist.

The normalisation operators are replaced in PyTorch's dispatcher, with all of their overloads and wherever the
CPU or CUDA has a kernel for them, dense tensors or not, by a function that records the operator's name and raises.
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

from harness.errors import KernelgateError

# ATen operators that normalise, by the names that reach a backend: everything higher decomposes to these.
NORMALISATION_OPS = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "batch_norm_stats",
    "batch_norm_update_stats",
    "batch_norm_elemt",
    "_fused_rms_norm",
    "native_layer_norm_backward",
    "native_group_norm_backward",
    "native_batch_norm_backward",
    "_fused_rms_norm_backward",
    "cudnn_batch_norm_backward",
    "miopen_batch_norm_backward",
    "batch_norm_backward",
    "batch_norm_backward_reduce",
    "batch_norm_backward_elemt",
)

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

# What every way into inductor imports.
COMPILER = "torch._inductor.compile_fx"

# TorchScript's second interpreter calls kernels without the dispatcher; these are the ways into it.
STATIC_RUNTIME = ("_jit_to_static_module", "_fuse_to_static_module")


class ForbiddenOperator(KernelgateError, RuntimeError):
    """Raised in the submission when it calls a forbidden operator."""


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


def _file_refusal(module: str, refuse: Callable[..., Any]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that calls `refuse` when `module`'s file is opened, compiled or not: unlike a finder of modules it
    cannot be taken out of a list."""
    folder, _, name = module.replace(".", "/").rpartition("/")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and folder in arguments[0] and f"/{name}." in arguments[0]:
            refuse()

    return hook


class Guard:
    """Installs the replacements and remembers what was called."""

    def __init__(self, allowed: Iterable[str] = (), also: Iterable[str] = ()) -> None:
        """`allowed` normalisation operators may be called after all; those in `also` may not either."""
        self._calls: list[str] = []
        # Registrations last as long as this object, which torch.library would show to whoever looks for it.
        self._registrations = torch._C._dispatch_library("IMPL", "aten", "", __file__, 0)
        allowed = set(allowed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overriding a kernel is what this is for
            for name in (*NORMALISATION_OPS, *also):
                if name.split(".")[0] not in allowed:
                    self._forbid(name)
        self._forbid_compile()
        _keep_for_ever(self._registrations)
        del self._registrations

    def take_calls(self) -> list[str]:
        """The forbidden names called since the last time, each once, in order."""
        calls, self._calls = list(dict.fromkeys(self._calls)), []
        return calls

    def _forbid(self, name: str) -> None:
        """An overload, or all that an operator has; none where this version of torch does not have it."""
        operator, _, asked = name.partition(".")
        packet = getattr(torch.ops.aten, operator, None)
        for overload in packet.overloads() if packet else ():
            if asked and overload != asked:
                continue
            full = operator if overload == "default" else f"{operator}.{overload}"
            refuse = self._refusal(f"aten::{full}")
            for key in (*DENSE_KEYS, *LAYOUT_KEYS):
                if key in DENSE_KEYS or torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{full}", key):
                    self._registrations.impl(full, key, refuse)

    def _forbid_compile(self) -> None:
        refuse = self._refusal("torch.compile")
        torch.compile = refuse
        sys.meta_path.insert(0, _Refusing(COMPILER, refuse))
        sys.addaudithook(_file_refusal(COMPILER, refuse))
        for name in STATIC_RUNTIME:
            setattr(torch._C, name, self._refusal("TorchScript's static runtime"))

    def _refusal(self, name: str) -> Callable[..., Any]:
        def refuse(*_args: Any, **_kwargs: Any) -> Any:
            self._calls.append(name)
            raise ForbiddenOperator(f"{name} must not run in a submission: it is what the submission replaces")

        return refuse
