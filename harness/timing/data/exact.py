"""The reference in float64, for data of timed rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from harness import oracle
from harness.oracle.copies import copied

Exact = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
"""From inputs to outputs in float64."""

# Compute at most so many bytes of float64 inputs at a time: what the reference keeps meanwhile and what it returns take
# several times as much.
TOGETHER_BYTES = 2 << 30


def in_float64(model: torch.nn.Module) -> Exact:
    """A copy of `model`, the reference, that computes in float64 and keeps no graph."""
    model64 = copied(model).double()

    @torch.no_grad()
    def outputs(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        widened = oracle.may_be_widened([*inputs, *model.parameters(), *model.buffers()])
        return oracle.exact_outputs(model64, inputs, widened=widened)

    return outputs
