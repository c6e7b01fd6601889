"""Operators that a submission must not run: in its process they do not exist.

The normalisation operators are replaced in PyTorch's dispatcher, on the CPU and on CUDA, by a function
that records the operator's name and raises. Python, C++, other threads and timed calls all go through
the dispatcher, so there is nothing to detect: a submission that calls one gets no result from it, and a
fallback inside `try` is reported all the same. The baselines run in other processes.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

# ATen operators that normalise, by the names that reach a backend: everything higher decomposes to these.
NORMALISATION_OPS = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_fused_rms_norm",
    "native_layer_norm_backward",
    "native_group_norm_backward",
    "native_batch_norm_backward",
    "_fused_rms_norm_backward",
)

DISPATCH_KEYS = ("CPU", "CUDA")


class ForbiddenOperator(RuntimeError):
    """Raised in the submission when it calls a forbidden operator."""


def _keep_for_ever(thing: object) -> None:
    """Never free `thing`, and leave no name through which a submission could find and undo it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


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
        operator, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, operator, None)
        if packet is None or (overload and overload not in packet.overloads()):
            return  # this version of torch does not have it
        for key in DISPATCH_KEYS:
            self._registrations.impl(name, key, self._refusal(f"aten::{name}"))

    def _forbid_compile(self) -> None:
        torch.compile = self._refusal("torch.compile")

    def _refusal(self, name: str) -> Callable[..., Any]:
        def refuse(*_args: Any, **_kwargs: Any) -> Any:
            self._calls.append(name)
            raise ForbiddenOperator(f"{name} must not run in a submission: it is what the submission replaces")

        return refuse
