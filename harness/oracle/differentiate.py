"""A reference and its backward as one function: outputs and gradients of inputs and upstream gradients.

The oracle and the clock's data then treat a training step as any other reference: inputs, parameters and
upstream gradients are perturbed, and each tensor that comes out is compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Sequence
from typing import Any

import torch

from harness.errors import out_of_memory
from harness.oracle.copies import copied
from harness.oracle.outputs import outputs_of
from harness.protocol.wire import Differentiation


class _Joined(torch.autograd.Function):
    """A number whose gradient by each of `roots` is one of `upstream`. Given upstream gradients itself,
    torch.autograd.grad loads PyTorch's symbolic shapes to compare sizes: half a second of an evaluation."""

    @staticmethod
    def forward(ctx: Any, upstream: Sequence[torch.Tensor], *roots: torch.Tensor) -> torch.Tensor:
        ctx.upstream = upstream
        return torch.zeros((), dtype=roots[0].dtype, device=roots[0].device)

    @staticmethod
    def backward(ctx: Any, _one: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        return (None, *ctx.upstream)


class Differentiated(torch.nn.Module):
    """Takes the inputs of `model` and an upstream gradient for each differentiated output.

    Returns the outputs and then the gradients of `wanted`'s inputs and parameters, each of the shape and in
    the layout of what it belongs to; with `part` "forward" or "backward" only the first or the second of these.
    """

    def __init__(self, model: torch.nn.Module, wanted: Differentiation, part: str = "step") -> None:
        super().__init__()
        self.model = model
        self.wanted = wanted
        self.part = part

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        count = len(tensors) - (len(self.wanted.outputs) if self.part != "forward" else 0)
        inputs, upstream = tensors[:count], tensors[count:]
        if self.part == "forward":
            return outputs_of(self.model(*inputs))
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(i in self.wanted.inputs) for i, t in enumerate(inputs)]
            outputs = outputs_of(self.model(*leaves))
            gradients = self._gradients(leaves, outputs, upstream)
        return [*([] if self.part == "backward" else [o.detach() for o in outputs]), *gradients]

    def _gradients(
        self, leaves: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        parameters = dict(self.model.named_parameters())
        wanted = [leaves[i] for i in self.wanted.inputs] + [parameters[name] for name in self.wanted.parameters]
        roots = [outputs[i] for i in self.wanted.outputs]
        found = torch.autograd.grad(_Joined.apply(upstream, *roots), wanted)
        return [torch.empty_like(leaf).copy_(g) for leaf, g in zip(wanted, found, strict=True)]

    def names(self, count: int) -> list[str]:
        """How reports call the `count` tensors that come out of a step."""
        arguments = argument_names(self.model)
        return [
            *output_names(count - len(self.wanted.inputs) - len(self.wanted.parameters)),
            *(f"the gradient of '{arguments[i]}'" for i in self.wanted.inputs),
            *(f"the gradient of '{name}'" for name in self.wanted.parameters),
        ]


def needs_no_output(model: torch.nn.Module, wanted: Differentiation, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a backward of `model` gives the same once its outputs have been changed in place, as by `y += residual`.
    Where one was kept for it autograd refuses, or a Function that keeps it by itself gives something else."""
    leaves = [t.detach().clone().requires_grad_(i in wanted.inputs) for i, t in enumerate(inputs)]
    with torch.enable_grad():
        outputs = outputs_of(model(*leaves))
    upstream = [torch.ones_like(outputs[i]) for i in wanted.outputs]
    own = dict(model.named_parameters())
    needed = [leaves[i] for i in wanted.inputs] + [own[name] for name in wanted.parameters]
    try:
        with torch.enable_grad():
            joined = _Joined.apply(upstream, *(outputs[i] for i in wanted.outputs))
            before = torch.autograd.grad(joined, needed, retain_graph=True)
        with torch.no_grad():
            for output in outputs:
                output.zero_()
        with torch.enable_grad():
            joined = _Joined.apply(upstream, *(outputs[i] for i in wanted.outputs))
            after = torch.autograd.grad(joined, needed)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        return False
    return all(torch.allclose(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))


def led_to(
    model: torch.nn.Module,
    leaves: Sequence[int],
    parameters: Container[int | str],
    outputs: Sequence[int],
    inputs: Sequence[torch.Tensor],
) -> list[int]:
    """Which of `outputs` carry a gradient where the inputs at `leaves` need one, and the parameters of these names."""
    frozen = copied(model)
    for name, parameter in frozen.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name in parameters)
    with torch.enable_grad():
        found = outputs_of(frozen(*(t.detach().clone().requires_grad_(i in leaves) for i, t in enumerate(inputs))))
    return [i for i in outputs if found[i].requires_grad]


def output_names(count: int) -> list[str]:
    """How reports call the outputs of a forward."""
    return [f"output {i}" for i in range(count)] if count > 1 else ["the output"] * count


def argument_names(model: torch.nn.Module) -> list[str]:
    """The names of forward's arguments."""
    return list(inspect.signature(model.forward).parameters)


def differentiation(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor], only: Sequence[str]
) -> tuple[Differentiation, list[torch.Tensor]]:
    """What of `model` can be differentiated: outputs that carry a gradient, with respect to floating inputs and
    parameters that have one; of these the ones named in `only`, if any are. Also the outputs themselves.

    Raises ValueError with a sentence for a name that is not among them, or when nothing is left.
    """
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
        outputs = outputs_of(model(*leaves))
        roots = [i for i, output in enumerate(outputs) if output.requires_grad]
        names = dict(zip(argument_names(model), leaves, strict=False)) | dict(model.named_parameters())
        able = {name: leaf for name, leaf in names.items() if leaf.requires_grad}
        unknown = [name for name in only if name not in able]
        if not roots or unknown:
            raise ValueError(_nothing(roots, unknown, able))
        upstream = [torch.zeros_like(outputs[i]) for i in roots]
        joined = _Joined.apply(upstream, *(outputs[i] for i in roots))
        found = torch.autograd.grad(joined, list(able.values()), allow_unused=True)
    chosen = [n for n, gradient in zip(able, found, strict=True) if gradient is not None and (not only or n in only)]
    arguments = argument_names(model)
    if only:
        roots = led_to(model, [arguments.index(n) for n in chosen if n in arguments], chosen, roots, inputs)
    wanted = Differentiation(
        outputs=roots,
        inputs=[arguments.index(name) for name in chosen if name in arguments],
        parameters=[name for name in chosen if name not in arguments],
    )
    return wanted, [output.detach() for output in outputs]


def _nothing(roots: Sequence[int], unknown: Sequence[str], able: dict[str, Any]) -> str:
    if not roots:
        return "GRADIENTS is set, but no output of Model requires a gradient"
    return f"GRADIENTS names {', '.join(unknown)}; what can be differentiated is {', '.join(able)}"
