"""References that treat maxima as careless kernels do: begin them with 0, or leave them out of a softmax."""

from __future__ import annotations

from typing import Any

import torch

from harness.oracle.operators import Operators

# Operators that take the largest of many elements of their first argument, or say where it stands.
MAXIMA = frozenset({
    "max", "amax", "argmax", "cummax", "topk", "max_pool1d", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool3d",
})  # fmt: skip


class MaximaFromZero(Operators):
    """Maxima of what they are taken of or 0, whichever is larger."""

    def __init__(self) -> None:
        super().__init__()
        self.used = False
        """Whether there was a maximum."""
        self.below_zero = False
        """Whether one was taken of something negative."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in MAXIMA and args[0].dtype is not torch.bool:
            self.used = True
            self.below_zero |= bool((args[0] < 0).any())
            args = (args[0].clamp(min=0), *args[1:])
        return func(*args, **(kwargs or {}))


class ExponentialsAsTheyAre(Operators):
    """Softmax, its logarithm and logsumexp without a maximum taken off first: exp(x) as `dtype` has it."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        self.used = False
        """Whether there was one of the three."""
        self.out_of_range = False
        """Whether an exponential was more, or less, than `dtype` holds."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in ("_softmax", "_log_softmax", "logsumexp"):
            return func(*args, **(kwargs or {}))
        self.used = True
        x, dim, *rest = args
        exponentials = self._exponentials(x)
        sums = exponentials.sum(dim, keepdim=name != "logsumexp" or bool(rest and rest[0]))
        if name == "logsumexp":
            return sums.log()
        return exponentials / sums if name == "_softmax" else x - sums.log()

    def _exponentials(self, x: torch.Tensor) -> torch.Tensor:
        held = x.to(self._dtype).exp()
        lost = held.isinf() | (held == 0)
        self.out_of_range |= bool(lost.any())
        return torch.where(lost, held.to(x.dtype), x.exp())
