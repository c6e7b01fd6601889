"""A case with its data: the reference, its weights, the inputs, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness import oracle
from harness.device.base import Device
from harness.errors import UsageError
from harness.inputs import strides
from harness.problem import Case, Problem
from harness.settings import sub_seed
from harness.wire import encode_value


@dataclass(frozen=True)
class Drawn:
    """A case with its data: everything is private to the judge until it is laid out in the arena."""

    case: Case
    scaled: bool
    model: torch.nn.Module
    init: tuple[object, ...]
    inputs: list[torch.Tensor]
    expected: list[oracle.Expected]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        tensors = {name: p.detach() for name, p in self.model.named_parameters()}
        return tensors | {name: b for name, b in self.model.named_buffers() if b.is_floating_point()}


def draw_case(problem: Problem, case: Case, device: Device, seed: int) -> Drawn:
    """Draw a case's weights and inputs and compute what must come out.

    Raises UsageError when the reference cannot be run on them."""
    chosen = case.on_cpu() if device.is_cpu else case
    where = device.torch_device
    try:
        model = problem.build_model(chosen, sub_seed(seed, case.name, "weights"), where)
        inputs = problem.draw_inputs(chosen, sub_seed(seed, case.name, "inputs"), where)
        laid_out = [in_layout(tensor, chosen.layout) for tensor in inputs]
        expected = oracle.expect(model, laid_out, sub_seed(seed, case.name, "signs"))
        init = problem.init_args(chosen, sub_seed(seed, case.name, "weights"))
        encode_value(init)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"The reference of {problem.path} cannot be run on case '{case.name}': {type(error).__name__}: {error}"
        ) from error
    return Drawn(chosen, chosen is not case, model, init, inputs, expected)


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """`tensor` with the strides that `layout` gives it, in memory of its own."""
    return torch.empty_strided(tensor.shape, strides(tuple(tensor.shape), layout), dtype=tensor.dtype,
                               device=tensor.device).copy_(tensor)  # fmt: skip
