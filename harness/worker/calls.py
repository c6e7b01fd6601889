"""What one call of a model does: its forward, a training step, or steps that add up in `.grad`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from harness.device.views import is_dense
from harness.errors import KernelgateError
from harness.protocol.arguments import arguments
from harness.protocol.wire import Differentiation

# The tensors of a buffer, upstream gradients last, to the tensors that the judge reads.
Call = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


# What the upstream gradients are multiplied by in the passes that add up in `.grad`; harness.judging.backward knows
# the sum. Powers of two, which no dtype rounds: three times an upstream in 16 bits is off in every element, and the sum
# over many rows by more than one of the upstream itself may be.
ACCUMULATED = (1, 2)


class InAContainer(KernelgateError):
    """A forward returned a tuple or list where the reference returns a tensor; the text says so."""


class NoGradient(KernelgateError):
    """Something that the reference differentiates has no gradient here; the text says what and what to do."""


def listed(result: object) -> list[torch.Tensor]:
    """The outputs that a forward returned, one or several."""
    return list(result) if isinstance(result, tuple | list) else [result]  # type: ignore[list-item]


def only(result: object) -> list[torch.Tensor]:
    """The output of a forward that returns one as it is. Raises InAContainer for others."""
    if isinstance(result, tuple | list):
        kind, count = type(result).__name__, len(result)
        raise InAContainer(f"forward returned a {kind} of {count}; the reference returns a tensor. Return it alone.")
    return [result]  # type: ignore[list-item]


def forward(model: torch.nn.Module, constants: Mapping[int, Any], *, alone: bool) -> Call:
    """The outputs, and nothing to differentiate; with `alone` it has to be one that is in no tuple or list."""
    outputs_of = only if alone else listed
    if constants:
        return lambda inputs: outputs_of(model(*arguments(inputs, constants)))
    return lambda inputs: outputs_of(model(*inputs))


class Training:
    """Calls of a model that is differentiated."""

    def __init__(
        self,
        model: torch.nn.Module,
        wanted: Differentiation,
        places: Mapping[str, str],
        constants: Mapping[int, Any],
    ) -> None:
        """`places` are the model's names of the reference's parameters, `constants` the arguments of forward that are
        no tensors. Raises NoGradient for a parameter that is none there."""
        self._model = model
        self._constants = constants
        self._wanted = wanted
        parameters = dict(model.named_parameters())
        self._parameters = [_parameter(parameters, name, places[name]) for name in wanted.parameters]
        self._prepared: dict[int, list[torch.Tensor]] = {}
        self._upstream_count = len(wanted.outputs)

    def call(self, kind: str) -> Call:
        """The call of this name, see harness.protocol.wire.Stage."""
        self._upstream_count = 0 if kind == "forward" else len(self._wanted.outputs)
        return {
            "forward": self._forward,
            "step": self._step,
            "backward": self._backward,
            "accumulate": self._accumulate,
            "interleaved": self._interleaved,
            "overwritten": self._overwritten,
        }[kind]

    def leaves(self, buffer: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A buffer's tensors, the inputs among them ready to be differentiated."""
        return [tensor.detach().requires_grad_(i in self._wanted.inputs) for i, tensor in enumerate(buffer)]

    def prepare(self, buffers: Sequence[Sequence[torch.Tensor]]) -> None:
        """Do the forward of these buffers; `backward` calls start from there, one for each buffer."""
        self._prepared.clear()
        for buffer in buffers:
            self._prepared[id(buffer)] = self._forward(buffer)

    def _backward(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self._gradients(self._prepared.pop(id(tensors)), tensors)

    def _forward(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return listed(self._model(*arguments(self._inputs(tensors), self._constants)))

    def _step(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = self._forward(tensors)
        return [*outputs, *self._gradients(outputs, tensors)]

    def _interleaved(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A step with a forward of the same numbers in reverse order between its forward and its backward, as where a
        network calls a layer twice: what a backward needs belongs to its own forward. The backward comes twice
        (`retain_graph`): it leaves what it needs as it is. Integers stay, which may be places and have an order."""
        outputs = self._forward(tensors)
        return [*outputs, *self._gradients_after_another(outputs, tensors)]

    def _overwritten(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """As `_interleaved`, for outputs that are changed in place before the backward, as `y += residual` does. Where
        autograd refuses that, no program gets a wrong result, and they are left alone."""
        outputs = self._forward(tensors)
        copies = [output.detach().clone() for output in outputs]
        for output in outputs:
            output.detach().zero_()
        try:
            return [*copies, *self._gradients_after_another(outputs, tensors)]
        except RuntimeError as error:
            if "inplace" not in str(error):
                raise
        return self._interleaved(tensors)

    def _gradients_after_another(
        self, outputs: list[torch.Tensor], tensors: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The gradients that a second backward on `outputs` gives, once another forward was done."""
        between = [
            tensor.detach().flip(tuple(range(tensor.dim()))).requires_grad_(tensor.requires_grad)
            if tensor.is_floating_point()
            else tensor
            for tensor in self._inputs(tensors)
        ]
        later = self._model(*arguments(between, self._constants))
        self._gradients(outputs, tensors, again=True)
        gradients = self._gradients(outputs, tensors)
        del later  # not before: it keeps its own activations
        return gradients

    def _accumulate(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        leaves = self._differentiated(tensors)
        for leaf in leaves:
            leaf.grad = None
        # Not the same twice: of a buffer that both passes write into, twice the second would be left.
        for factor in ACCUMULATED:
            upstream = [factor * tensor for tensor in self._upstream(tensors)]
            torch.autograd.backward(self._roots(self._forward(tensors)), upstream)
        gradients = [self._required(leaf.grad, position) for position, leaf in enumerate(leaves)]
        for leaf in leaves:
            leaf.grad = None
        return gradients

    def _gradients(
        self, outputs: list[torch.Tensor], tensors: Sequence[torch.Tensor], *, again: bool = False
    ) -> list[torch.Tensor]:
        """Gradients in the layout of what they belong to, as in `.grad`; they may be asked for `again`."""
        leaves, roots = self._differentiated(tensors), self._roots(outputs)
        found = torch.autograd.grad(roots, leaves, self._upstream(tensors), allow_unused=True, retain_graph=again)
        places = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in self._upstream(tensors)]
        return [
            _apart(_like(self._required(gradient, position), leaf), places)
            for position, (gradient, leaf) in enumerate(zip(found, leaves, strict=True))
        ]

    def _inputs(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return tensors[: len(tensors) - self._upstream_count]

    def _upstream(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return tensors[len(tensors) - self._upstream_count :]

    def _differentiated(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [*(tensors[i] for i in self._wanted.inputs), *self._parameters]

    def _roots(self, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        roots = outputs[: max(self._wanted.outputs) + 1]
        roots = [roots[i] for i in self._wanted.outputs if i < len(roots)]
        for position, root in zip(self._wanted.outputs, roots, strict=False):
            if not isinstance(root, torch.Tensor) or not root.requires_grad:
                raise NoGradient(
                    f"Output {position} of ModelNew.forward carries no gradient (requires_grad is False), and the "
                    "problem is judged with its backward. Let a torch.autograd.Function call the kernels."
                )
        if len(roots) != len(self._wanted.outputs):
            raise NoGradient(f"ModelNew.forward returned {len(outputs)} tensors; the reference returns more.")
        return roots

    def _required(self, gradient: torch.Tensor | None, position: int) -> torch.Tensor:
        if gradient is None:
            count = len(self._wanted.inputs)
            name = f"input {self._wanted.inputs[position]}" if position < count else (
                f"the parameter '{self._wanted.parameters[position - count]}'")  # fmt: skip
            raise NoGradient(f"ModelNew gives no gradient for {name}; the reference does.")
        return gradient


def _parameter(parameters: Mapping[str, torch.Tensor], name: str, place: str) -> torch.Tensor:
    if place not in parameters or not parameters[place].requires_grad:
        raise NoGradient(
            f"The reference's parameter '{name}' is ModelNew's '{place}', which is not an nn.Parameter that "
            "requires a gradient; the problem is judged with its backward."
        )
    return parameters[place]


def _apart(gradient: torch.Tensor, places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """A gradient that is part of what lies at one of `places`, as autograd gives the upstream of `x + y` to both, in
    memory of its own, as `.grad` would have it."""
    address = gradient.data_ptr()
    return gradient.clone() if any(begin <= address < end for begin, end in places) else gradient


def _like(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    if gradient.shape != leaf.shape:
        return gradient  # a wrong shape is the judge's to name
    if gradient.stride() == leaf.stride() and (leaf.is_contiguous() or is_dense(leaf)):
        return gradient
    return torch.empty_like(leaf, dtype=gradient.dtype).copy_(gradient)
