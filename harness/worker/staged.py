"""What is ready to be called: a model with the reference's parameters, its buffers, and what one call of it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.errors import a_type
from harness.protocol.arguments import arguments
from harness.protocol.values import decode_constants
from harness.protocol.wire import (
    ArenaRef,
    Construct,
    Done,
    Failed,
    NamedTensor,
    Prepare,
    Reply,
    Reweigh,
    Reweighing,
    Stage,
    TensorRef,
)
from harness.reasons import Reason
from harness.worker import implementations
from harness.worker.calls import Call, Training, forward
from harness.worker.loading import Implementation
from harness.worker.memory import Memory
from harness.worker.parameters import carry, set_by_load_state_dict, set_in_place, set_once_moved
from harness.worker.placement import Placement
from harness.worker.wrong_arguments import require_fit

_WAYS: dict[Reweighing, Callable[[Mapping[str, torch.Tensor], torch.nn.Module, Mapping[str, str]], None]] = {
    "load_state_dict": set_by_load_state_dict, "in_place": set_in_place, "moved": set_once_moved,
}  # fmt: skip


@dataclass(frozen=True)
class _Built:
    """A model, its names of the reference's parameters, and the request that it was built for; None where that does not
    matter."""

    model: torch.nn.Module
    places: dict[str, str]
    request: Construct | None = None
    placement: Placement | None = None
    """Where its parameters move between rounds; None where they stay."""
    evaluating: tuple[torch.nn.Module, ...] = ()
    """Modules within one that trains which its constructor put into evaluation. They stay in it."""


class Staged:
    """Models, of which one is staged with the buffers that it can be called on."""

    def __init__(self, implementation: Implementation, memory: Memory) -> None:
        self._implementation = implementation
        self._memory = memory
        self._built: list[_Built] = []
        self._standing_by: list[torch.nn.Module] = []
        self._places: dict[str, str] = {}
        self._training: Training | None = None
        self._frozen: list[torch.Tensor] = []
        self._staged: Stage | None = None
        self.model: torch.nn.Module | None = None
        self.call: Call | None = None
        self.infers = False
        """Whether a call may return inference tensors in any mode."""
        self.gradients = False
        """Whether a call runs with autograd."""
        self.buffers: list[list[torch.Tensor]] = []
        self.results: list[TensorRef] = []
        """Forms of what a call returns, without a place."""
        self.outputs: list[list[torch.Tensor]] = []
        """What the last calls returned, kept for the judge to read."""
        self.kept: list[list[torch.Tensor]] = []
        """What calls returned that the judge will read once more, later."""

    @property
    def null_kernel(self) -> implementations.NullKernel | None:
        """The model, where it is the null kernel."""
        return self.model if isinstance(self.model, implementations.NullKernel) else None

    @property
    def has_prepared(self) -> bool:
        """Whether a call is a backward, whose forward `prepare` does."""
        return self._staged is not None and self._staged.call == "backward"

    def construct(self, request: Construct) -> Reply:
        """Build the model. Raises CannotCarry when a parameter has no place there, and what its constructor raises."""
        if not request.beside:
            self.forget()
        if self._implementation.is_null_kernel:
            return Done()
        model = self._implementation.model(request.init, request.dtype, request.shapes)
        torch.seed()  # a number that no call would choose: one that seeds the generators is seen by another
        if not isinstance(model, torch.nn.Module):
            return Failed(
                reason=Reason.LOAD_FAILED,
                message=f"ModelNew(...) gave {a_type(model)}; ModelNew must be a torch.nn.Module.",
            )
        if request.stands_by:
            self._standing_by.append(model)
            return Done()
        needless = {item.name for item in request.state if item.needless}
        places = carry(self._tensors(request.arena, request.state), getattr(model, "_orig_mod", model), needless)
        self._memory.synchronize()
        moves = self._memory.device.type == "cuda" and not self._implementation.launches_graphs
        self._built.append(_Built(model, places, request, Placement(model) if moves else None, _evaluating(model)))
        return Done()

    def _tensors(self, arena: ArenaRef, named: Sequence[NamedTensor]) -> dict[str, torch.Tensor]:
        return {item.name: self._memory.tensor(arena, item.tensor) for item in named}

    def reweigh(self, request: Reweigh) -> Reply:
        """Other weights for the model that is staged. Raises what its `load_state_dict` raises."""
        assert self.model is not None
        set_weights = _WAYS[request.how]
        model = getattr(self.model, "_orig_mod", self.model)
        set_weights(self._tensors(request.arena, request.state), model, self._places)
        self._memory.synchronize()
        return Done()

    def stage(self, request: Stage) -> Reply:
        """Lay out buffers and prepare a call. Raises NoGradient for a parameter that cannot be differentiated."""
        self.outputs = []
        self.results = request.results
        self.buffers = [[self._memory.tensor(request.arena, ref) for ref in buffer] for buffer in request.buffers]
        if self._implementation.is_null_kernel:
            self._built = [_Built(implementations.NullKernel(request.results, self._memory.device), {})]
        built = self._built[request.model]
        self.model, self._places = built.model, built.places
        self._staged = request
        self.infers = request.infers
        if self.model.training != request.train:  # as in a program, which says it once
            self.model.train(request.train)
            for module in built.evaluating:
                module.training = False
        self._freeze(request.differentiation.frozen if request.differentiation else [])
        self.gradients = request.differentiation is not None and not self._implementation.is_null_kernel
        self._training = None
        self.call = self._make_call(self.model, request)
        self._memory.synchronize()
        return Done()

    def _freeze(self, names: Sequence[str]) -> None:
        """Have these parameters of the reference need no gradient, and those that were frozen before need one again."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = []
        if not names:
            return
        assert self.model is not None
        own = dict(self.model.named_parameters())
        places = _under(self.model, self._places)
        self._frozen = [own[places[name]].requires_grad_(False) for name in names if places.get(name) in own]

    def _make_call(self, model: torch.nn.Module, request: Stage) -> Call:
        constants = decode_constants(request.constants)
        if not self.gradients or request.differentiation is None:
            return forward(model, constants, alone=request.alone and self._implementation.is_submission)
        self._training = Training(model, request.differentiation, _under(model, self._places), constants)
        self.buffers = [self._training.leaves(buffer) for buffer in self.buffers]
        return self._training.call(request.call)

    def require_fit(self, buffer: Sequence[torch.Tensor]) -> None:
        """Raises WrongArguments where it is forward's arguments that a call on `buffer` failed for."""
        assert self._staged is not None
        upstream = 0
        if self._staged.differentiation is not None and self._staged.call != "forward":
            upstream = len(self._staged.differentiation.outputs)
        given = arguments(buffer[: len(buffer) - upstream], decode_constants(self._staged.constants))
        if self._implementation.is_submission and self.model is not None:
            require_fit(self.model.forward, "forward", given, "forward is")

    def rewritten(self, buffer: int) -> None:
        """The judge wrote other data into a buffer."""
        assert self._staged is not None
        for tensor, ref in zip(self.buffers[buffer], self._staged.buffers[buffer], strict=True):
            self._memory.rewritten(tensor.detach(), self._staged.arena, ref)

    def move_parameters(self) -> bool:
        """Have the model's parameters lie elsewhere. Whether they do: small ones stay, and all do on a CPU."""
        assert self._staged is not None
        placement = self._built[self._staged.model].placement
        return placement is not None and placement.move()

    def prepare(self, request: Prepare) -> Reply:
        """Do the forward of some buffers for a call that is a backward."""
        self.outputs = []
        self.move_parameters()
        if self._training is not None:
            with torch.enable_grad():
                self._training.prepare([self.buffers[buffer] for buffer in request.buffers])
            self._memory.synchronize()
        return Done()

    def forget(self) -> None:
        """Drop the models, the buffers and the outputs."""
        self.model = None
        for built in self._built:
            if (request := built.request) is not None:
                self._implementation.take_back(built.model, request.init, request.dtype, request.shapes)
        self._built = []
        self._standing_by = []
        self._staged = None
        self.call = None
        self._training = None
        self._frozen = []
        self.outputs = []
        self.kept = []
        self.buffers = []


def _evaluating(model: torch.nn.Module) -> tuple[torch.nn.Module, ...]:
    return tuple(module for module in model.modules() if not module.training) if model.training else ()


def _under(model: torch.nn.Module, places: dict[str, str]) -> dict[str, str]:
    """`places`, found in a model, as names in `model`, which may be a compiled module that holds that one."""
    prefix = "_orig_mod." if hasattr(model, "_orig_mod") else ""
    return {name: prefix + place for name, place in places.items()}
