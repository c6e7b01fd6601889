"""The worker's side of shared memory: it maps the judge's parameters and inputs, and says where its outputs lie."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Protocol

import torch

from harness.device.views import view_bytes
from harness.errors import a_type
from harness.protocol.wire import ArenaRef, OutputRef, TensorRef

_TENSOR = torch.Tensor  # as it is before a submission is loaded


def describe(tensor: object) -> OutputRef:
    """Where a returned value lies. Raises TypeError for what is not a dense tensor."""
    # The type itself is compared, as CPython does it: a class may give itself the name of another, or lie as __class__.
    name = "torch.Tensor" if type(tensor) is _TENSOR else _own_name(type(tensor))
    if not isinstance(tensor, _TENSOR):
        raise TypeError(f"forward returned {a_type(tensor)}; a torch.Tensor was expected")
    if tensor.layout is not torch.strided:
        raise TypeError(f"forward returned a tensor of layout {tensor.layout}; torch.strided was expected")
    if tensor.is_neg() or tensor.is_conj():  # the judge reads memory, which holds other values than such a view
        raise TypeError(
            "forward returned a view that negates or conjugates what lies in memory; call resolve_neg() or "
            "resolve_conj() on it"
        )
    return OutputRef(
        address=tensor.data_ptr() if tensor.numel() else 0,
        shape=list(tensor.shape),
        stride=list(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=tensor.device.type,
        type=name,
    )


def _own_name(kind: type) -> str:
    """What a class that is not torch.Tensor calls itself; said to be another where that is what it says."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    return "another class of the name torch.Tensor" if name == "torch.Tensor" else name


class Memory(Protocol):
    """How a device's worker sees the arena and shows its outputs."""

    device: torch.device

    def tensor(self, arena: ArenaRef, ref: TensorRef) -> torch.Tensor:
        """The tensor on the worker's device."""
        ...

    def rewritten(self, tensor: torch.Tensor, arena: ArenaRef, ref: TensorRef) -> None:
        """The judge wrote other data to the place that `tensor` was made of."""
        ...

    def export(self, tensors: Sequence[object], handles: dict[str, int]) -> list[OutputRef]:
        """References to tensors. Adds the IPC handles that they need to `handles`, each with its position there."""
        ...

    def synchronize(self) -> None:
        """Wait until everything that was launched has happened."""
        ...

    def wake(self) -> None:
        """Give the device a trivial task: the first one after a pause is slow."""
        ...

    def poison(self, results: Sequence[TensorRef]) -> None:
        """Make the next allocations of the results' sizes hold NaN."""
        ...

    def unpoison(self) -> None:
        """End what `poison` began."""
        ...

    def trim(self) -> None:
        """Give cached memory back where memory is scarce."""
        ...

    def release(self, *, everything: bool = False) -> None:
        """Let go of the arena, and give memory back: where it is scarce, or `everything` that is kept for later."""
        ...


class HostMemory:
    """The arena is a file descriptor mapped into the process; tensors are views of it."""

    def __init__(self, arena_fd: int) -> None:
        self.device = torch.device("cpu")
        self._fd = arena_fd
        self._raw: torch.Tensor | None = None

    def _bytes(self, arena: ArenaRef) -> torch.Tensor:
        if self._raw is None or self._raw.numel() != arena.nbytes:
            self._raw = torch.frombuffer(mmap.mmap(self._fd, arena.nbytes), dtype=torch.uint8)
        return self._raw

    def tensor(self, arena: ArenaRef, ref: TensorRef) -> torch.Tensor:
        return view_bytes(self._bytes(arena), ref)

    def rewritten(self, tensor: torch.Tensor, arena: ArenaRef, ref: TensorRef) -> None:
        pass  # a view shows it

    def export(self, tensors: Sequence[object], handles: dict[str, int]) -> list[OutputRef]:
        return [describe(tensor) for tensor in tensors]

    def synchronize(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def poison(self, results: Sequence[TensorRef]) -> None:
        """glibc fills what malloc returns with the complement of the byte: 0xFF everywhere is a NaN."""
        _mallopt_perturb(_FILL_WITH_FF)

    def unpoison(self) -> None:
        _mallopt_perturb(0)

    def trim(self) -> None:
        pass

    def release(self, *, everything: bool = False) -> None:
        pass


_M_PERTURB = -6  # glibc's malloc.h
_FILL_WITH_FF = 0x100  # any value but 0 switches it on; its low byte is complemented


def _mallopt_perturb(value: int) -> None:
    ctypes.CDLL(None).mallopt(_M_PERTURB, value)
