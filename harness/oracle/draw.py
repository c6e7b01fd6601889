"""A case with its data: the reference, its weights, the inputs, and what must come out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.device.base import Device
from harness.errors import UsageError, out_of_memory
from harness.inputs import strides
from harness.oracle.differentiate import Differentiated, differentiation, output_names
from harness.oracle.error_bound import expect, expect_more
from harness.oracle.outputs import Expected, outputs_of
from harness.problem import Case, Problem
from harness.protocol.values import encode_value
from harness.protocol.wire import Differentiation
from harness.settings import sub_seed


@dataclass(frozen=True)
class Drawn:
    """A case with its data: everything is private to the judge until it is laid out in the arena."""

    case: Case
    scaled: bool
    model: torch.nn.Module
    init: tuple[object, ...]
    inputs: list[torch.Tensor]
    expected: list[Expected]
    """Of the outputs, and where the problem has gradients of these after them."""
    differentiation: Differentiation | None = None
    upstream: tuple[torch.Tensor, ...] = ()
    """One for each differentiated output."""
    random: dict[int, float] = field(default_factory=dict)
    """Outputs that dropout makes random in training, and its p. `model` and `expected` are those of evaluation."""
    training: bool = False
    """Whether `expected` is what dropout keeps, see `in_training`."""
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    """Values that stand for the model's own."""

    @property
    def call(self) -> str:
        """What one observed call of a worker does, see wire.Stage."""
        return "step" if self.differentiation else "forward"

    @property
    def timed_parts(self) -> tuple[str, ...]:
        """What of a call is timed, each alone; the first is the whole of it."""
        return ("step", "forward", "backward") if self.differentiation and not self.random else ("forward",)

    def expected_of(self, part: str) -> list[Expected]:
        """What is expected of one part: outputs come first, gradients after them."""
        wanted = self.differentiation
        if part == "step" or wanted is None:
            return self.expected
        outputs = len(self.expected) - len(wanted.inputs) - len(wanted.parameters)
        return self.expected[outputs:] if part == "backward" else self.expected[:outputs]

    @property
    def given(self) -> list[torch.Tensor]:
        """What a buffer holds: inputs and upstream gradients."""
        return [*self.inputs, *self.upstream]

    @property
    def layouts(self) -> list[str]:
        """How each of `given` lies in memory."""
        return [self.case.layout] * len(self.inputs) + [self.case.upstream] * len(self.upstream)

    def function(self, part: str = "step") -> torch.nn.Module:
        """The reference as a function of what a buffer holds, see Differentiated."""
        if self.training and part == "forward":
            return _Kept(self.model, self.random)
        return Differentiated(self.model, self.differentiation, part) if self.differentiation else self.model

    def without_data(self) -> Drawn:
        """The same without values, of which timing draws its own: they may be of many GiB."""
        expected = [replace(e, values=e.values.new_empty(0)) for e in self.expected]
        return replace(self, inputs=[t.to("meta") for t in self.inputs], expected=expected)

    def in_training(self) -> Drawn:
        """As calls in training see it: what dropout keeps is scaled, and all else may be 0."""
        scaled = [_kept(e, self.random[i]) if i in self.random else e for i, e in enumerate(self.expected)]
        return replace(self, expected=scaled, training=True)

    def expected_after_masking(self) -> list[Expected]:
        """`expected` with gradients of the upstream gradients that are here now, in float64 where they are."""
        laid_out = [in_layout(tensor, layout) for tensor, layout in zip(self.given, self.layouts, strict=True)]
        found = expect_more(self.function("backward"), laid_out, 0, self.expected_of("backward"), stores=True)
        return [*self.expected_of("forward"), *found]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        tensors = {name: self.parameters.get(name, p).detach() for name, p in self.model.named_parameters()}
        return tensors | {name: b for name, b in self.model.named_buffers() if b.is_floating_point()}


def draw_case(problem: Problem, case: Case, device: Device, seed: int) -> Drawn:
    """Draw a case's weights and inputs and compute what must come out.

    Raises UsageError when the reference cannot be run on them."""
    chosen = case.on(device.name)
    where = device.torch_device
    try:
        model = problem.build_model(chosen, sub_seed(seed, case.name, "weights"), where)
        inputs = problem.draw_inputs(chosen, sub_seed(seed, case.name, "inputs"), where)
        init = problem.init_args(chosen, sub_seed(seed, case.name, "weights"))
        drawn = Drawn(chosen, chosen is not case, model, init, inputs, expected=[])
        drawn = replace(drawn, random={i: _dropout_of(model, name) for i, name in problem.random.items()})
        if problem.random:
            model.eval()
        if problem.gradients is not None:
            drawn = _with_backward(drawn, problem.gradients, sub_seed(seed, case.name, "upstream"))
        encode_value(init)
        return replace(drawn, expected=_expect(drawn, sub_seed(seed, case.name, "signs")))
    except UsageError:
        raise
    except Exception as error:  # whatever a problem's author may have written
        if out_of_memory(error):
            raise
        raise UsageError(
            f"The reference of {problem.path} cannot be run on case '{case.name}': {type(error).__name__}: {error}"
        ) from error


def _dropout_of(model: torch.nn.Module, name: str) -> float:
    """The p of the reference's dropout module `name`. Raises ValueError when it is another kind of module."""
    module = dict(model.named_modules()).get(name)
    if type(module) is not torch.nn.Dropout:
        raise ValueError(f"RANDOM names '{name}', which is not an nn.Dropout of Model but {type(module).__name__}")
    return module.p


class _Kept(torch.nn.Module):
    """A model in evaluation, its random outputs scaled as what dropout keeps of them in training."""

    def __init__(self, model: torch.nn.Module, random: dict[int, float]) -> None:
        super().__init__()
        self.model = model
        self.random = random

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        outputs = outputs_of(self.model(*inputs))
        return [o * _scale(self.random[i]) if i in self.random else o for i, o in enumerate(outputs)]


def _scale(p: float) -> float:
    """What dropout multiplies by where it keeps."""
    return 1 / (1 - p) if p < 1 else 0.0


def _kept(expected: Expected, p: float) -> Expected:
    """What is left of an output where dropout keeps it."""
    scale = _scale(p)
    form = replace(expected.form, dropout=p)
    values, tolerance = expected.values * scale, expected.tolerance * max(scale, 1.0)
    return replace(expected, values=values, tolerance=tolerance, form=form)


# Cases that need less memory than this are kept for the next submission.
KEPT_BYTES = 8 << 20

# Weights and upstream gradients of a case that are kept for its timing.
KEPT_STATE_BYTES = 256 << 20


class Draws:
    """The cases of one problem, drawn from one seed. Small ones are drawn once, for several submissions share them; of
    the others all is kept but their data."""

    def __init__(self, problem: Problem, device: Device, seed: int) -> None:
        self._problem = problem
        self._device = device
        self._seed = seed
        self._kept: dict[str, Drawn] = {}
        self._without_data: dict[str, Drawn] = {}

    def draw(self, case: Case) -> Drawn:
        """As `draw_case`."""
        drawn = self._kept.get(case.name) or draw_case(self._problem, case, self._device, self._seed)
        if sum(expected.values.nbytes for expected in drawn.expected) <= KEPT_BYTES:
            self._kept[case.name] = drawn
        if case.timed and sum(t.nbytes for t in (*drawn.state.values(), *drawn.upstream)) <= KEPT_STATE_BYTES:
            self._without_data[case.name] = drawn.without_data()
        return drawn

    def draw_without_data(self, case: Case) -> Drawn:
        """What timing needs of it. Raises as `draw_case`."""
        return self._without_data.get(case.name) or self.draw(case).without_data()

    def draw_ahead(self, cases: Sequence[Case], stop: Callable[[], bool]) -> None:
        """Draw the small ones while there is nothing else to do. What cannot be drawn is for `draw` to say."""
        for case in cases:
            if stop():
                return
            shapes = case.on(self._device.name).shapes
            if case.name not in self._kept and 8 * sum(map(math.prod, shapes)) <= KEPT_BYTES:
                with contextlib.suppress(UsageError):
                    self.draw(case)


def _expect(drawn: Drawn, seed: int) -> list[Expected]:
    function = drawn.function()
    laid_out = [in_layout(tensor, layout) for tensor, layout in zip(drawn.given, drawn.layouts, strict=True)]
    names = function.names if isinstance(function, Differentiated) else output_names
    return expect(function, laid_out, seed, names, stores=drawn.differentiation is not None)


def _with_backward(drawn: Drawn, only: Sequence[str], seed: int) -> Drawn:
    """`drawn` with what is differentiated and the upstream gradients, N(0, 1)."""
    laid_out = [in_layout(tensor, drawn.case.layout) for tensor in drawn.inputs]
    wanted, outputs = differentiation(drawn.model, laid_out, only)
    upstream = draw_upstream([outputs[i] for i in wanted.outputs], drawn.case.upstream, seed)
    return replace(drawn, differentiation=wanted, upstream=upstream)


def draw_upstream(outputs: Sequence[torch.Tensor], layout: str, seed: int) -> tuple[torch.Tensor, ...]:
    """An upstream gradient for each output, N(0, 1); where it is `expanded` one number for all elements."""
    upstream = []
    for position, output in enumerate(outputs):
        generator = torch.Generator(output.device).manual_seed(sub_seed(seed, position))
        shape = () if layout == "expanded" else output.shape
        number = torch.randn(shape, generator=generator, device=output.device).to(output.dtype)
        upstream.append(number.expand(output.shape))
    return tuple(upstream)


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """`tensor` with the strides that `layout` gives it, in memory of its own."""
    if layout == "expanded":
        return tensor
    return torch.empty_strided(tensor.shape, strides(tuple(tensor.shape), layout), dtype=tensor.dtype,
                               device=tensor.device).copy_(tensor)  # fmt: skip
