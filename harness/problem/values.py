"""A problem and its cases, as values."""

from __future__ import annotations

import difflib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.errors import UsageError
from harness.inputs import draw
from harness.problem.kernelbench import call_get_inputs, fewer_samples, sorted_out, with_constants
from harness.settings import SHORT_DTYPE_NAMES

# At most four times what the error bound allows.
DEFAULT_TOLERANCE_FACTOR = 4.0

# The emulator judges a batch of no more rows, each of an innermost dimension, unless so few samples have more.
EMULATED_ROWS, FEWEST_BATCH = 48, 2


@dataclass(frozen=True)
class Case:
    """One set of shapes and data on which a submission is judged.

    `shapes` are the shapes of the inputs, all of one `dtype`, `distribution` and `layout`. `init` are the constructor's
    arguments. `upstream` says how upstream gradients lie in memory, `gradcheck` whether torch.autograd.gradcheck runs.
    `batch` says that the first dimension of all inputs is a batch: with the same constructor's arguments it may have
    another size. On a CPU `scaled`, a smaller case, stands in for this one, and on the emulator `emulated`, a still
    smaller one; where there are many rows, with a smaller batch. With `from_functions` the problem's own `get_inputs`
    and `get_init_inputs` give the data; `dtypes` are then those of the inputs, and `constants` the inputs that are no
    tensors, by position.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    init: tuple[Any, ...] = ()
    dtype: torch.dtype = torch.float32
    parameter_dtype: torch.dtype = torch.float32
    distribution: str = "normal"
    layout: str = "contiguous"
    contiguous: frozenset[int] = frozenset()
    """Positions of inputs that are contiguous, whatever `layout` says."""
    upstream: str = "contiguous"
    gradcheck: bool = False
    batch: bool = False
    timed: bool = False
    scaled: Case | None = None
    emulated: Case | None = None
    from_functions: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    constants: Mapping[int, Any] = field(default_factory=dict)
    whole_batch: int = 0
    """Where `shapes` have fewer samples than get_inputs() gives by itself: how many it gives."""

    def layout_of(self, position: int) -> str:
        """How the input at that position lies in memory."""
        return "contiguous" if position in self.contiguous else self.layout

    def on(self, device: str) -> Case:
        """The case that `device` runs in its place: what a CPU times in milliseconds takes the emulator seconds."""
        if device == "cuda":
            return self
        if device == "emulator":
            return (self.emulated or self.scaled or self)._with_few_rows()
        return self.scaled or self

    def _with_few_rows(self) -> Case:
        """The same with a smaller batch, if it has a batch and many rows: on the emulator each takes a block's time,
        however short it is."""
        rows = max((math.prod(shape[:-1]) for shape in self.shapes), default=0)
        if not self.batch or rows <= EMULATED_ROWS:
            return self
        batch = max(min(self.shapes[0][0], FEWEST_BATCH), self.shapes[0][0] * EMULATED_ROWS // rows)
        return replace(self, shapes=tuple((batch, *shape[1:]) for shape in self.shapes))

    @property
    def shape_text(self) -> str:
        return ", ".join("×".join(map(str, shape)) or "scalar" for shape in self.shapes)

    @property
    def dtype_text(self) -> str:
        """The dtype of the inputs by torch's name; several stand with commas between them."""
        return ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in self.dtypes or (self.dtype,)}))


@dataclass(frozen=True)
class Problem:
    """A loaded problem file."""

    name: str
    path: Path
    model: type[torch.nn.Module]
    cases: tuple[Case, ...]
    allowed_ops: frozenset[str]
    """Normalisation operators that a submission may call although others may not, by their ATen names."""
    forbidden_ops: frozenset[str]
    """Further operators that a submission must not call, by their ATen names."""
    gradients: tuple[str, ...] | None
    """What is differentiated, by the names of inputs and parameters; empty for all that can be, None for a
    problem without a backward."""
    deterministic: bool
    """Whether results have to be bitwise equal from run to run."""
    random: dict[int, str]
    """Outputs that are random in training, and the name of the reference's module that makes each so."""
    tolerance_factor: float
    """How many error bounds a result may be off."""
    get_inputs: Callable[[], Sequence[Any]] | None
    get_init_inputs: Callable[[], Sequence[Any]] | None

    def matching(self, pattern: str) -> list[Case]:
        """Cases whose name contains `pattern`, or is it exactly when one is; maybe none."""
        exact = [case for case in self.cases if case.name == pattern]
        return exact or [case for case in self.cases if pattern.lower() in case.name.lower()]

    def init_args(self, case: Case, seed: int) -> tuple[Any, ...]:
        """The constructor's arguments for `case`."""
        if not case.from_functions or self.get_init_inputs is None:
            return case.init
        torch.manual_seed(seed)
        return tuple(self.get_init_inputs())

    def draw_inputs(self, case: Case, seed: int, device: torch.device) -> list[torch.Tensor]:
        """The inputs of `case`, drawn from `seed`, contiguous, on `device`."""
        if case.from_functions:
            tensors = [tensor.detach().to(device) for tensor in self._called(case, seed, device)]
            for position, tensor in enumerate(tensors):
                if not tensor.is_contiguous():
                    raise UsageError(
                        f"{self.path}: get_inputs() gave input {position} with the strides {tensor.stride()} for the "
                        f"shape {tuple(tensor.shape)}, and its tensors are given contiguous. Return it contiguous and "
                        "transpose it in forward, or say its layout in CASES."
                    )
            return tensors
        generator = torch.Generator(device).manual_seed(seed)
        return [draw(case.distribution, shape, case.dtype, generator) for shape in case.shapes]

    def _called(self, case: Case, seed: int, device: torch.device) -> list[torch.Tensor]:
        """The tensors of get_inputs(). Raises UsageError when its constants are not the case's."""
        assert self.get_inputs is not None
        with fewer_samples(case.whole_batch, case.shapes):
            tensors, constants = sorted_out(self.path, call_get_inputs(self.get_inputs, seed, device))
        for position in {*constants, *case.constants}:
            now, before = constants.get(position, "a tensor"), case.constants.get(position, "a tensor")
            if now != before:
                raise UsageError(
                    f"{self.path}: get_inputs() gave {now!r} as input {position}, and {before!r} before; what is no "
                    "tensor must be the same in each call. Make it a constant, or a tensor without dimensions."
                )
        return tensors

    def other_defaults(self, defaults: Sequence[tuple[str, Any]]) -> list[str]:
        """Of these names and `defaults` of a constructor's arguments, those that are others than Model's own."""
        own = {name: argument.default for name, argument in inspect.signature(self.model).parameters.items()}
        plain = {name: value for name, value in own.items() if isinstance(value, bool | int | float | str | None)}
        return [
            f"{name}={value!r} (Model: {plain[name]!r})"
            for name, value in defaults
            if name in plain and value != plain[name]
        ]

    def new_model(self, case: Case, init: Sequence[Any]) -> torch.nn.Module:
        """The reference as its constructor makes it of the arguments `init`."""
        return with_constants(self.model, case.constants)(*init)

    def build_model(self, case: Case, seed: int, device: torch.device) -> torch.nn.Module:
        """The reference on `device`, its weights and saved statistics random: drawn from `seed`, never all ones or
        zeros."""
        _seed_torch(seed, device)
        model = self.new_model(case, self.init_args(case, seed))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point() and _is_constant(parameter):
                    parameter.add_(torch.randn(parameter.shape), alpha=0.5)
            for buffer in _saved_statistics(model):
                if buffer.any():  # a variance stays one
                    buffer.mul_(torch.rand(buffer.shape) + 0.5)
                else:
                    buffer.add_(torch.randn(buffer.shape), alpha=0.5)
        if not case.from_functions:
            model = model.to(case.parameter_dtype)
        return model.to(device)


def select_cases(problem: Problem, pattern: str) -> list[Case]:
    """`Problem.matching`. Raises UsageError for none."""
    if chosen := problem.matching(pattern):
        return chosen
    raise no_case_fits(problem, pattern)


def no_case_fits(problem: Problem, pattern: str, dtype: str = "") -> UsageError:
    """The error, with the cases that there are, or their dtypes where one alone was asked for."""
    if dtype and not pattern:
        counts = Counter(SHORT_DTYPE_NAMES.get(name, name) for c in problem.cases for name in c.dtype_text.split(", "))
        dtypes = ", ".join(f"{name} ({count})" for name, count in counts.items())
        of = f"No case of {problem.name} matches {asked_for(pattern, dtype)}."
        return UsageError(f"{of} Its dtypes, and how many cases have each: {dtypes}.")
    names = ", ".join(f"'{case.name}' ({case.dtype_text})" if dtype else f"'{case.name}'" for case in problem.cases)
    near = difflib.get_close_matches(pattern, [case.name for case in problem.cases], 1)
    meant = f" Did you mean '{near[0]}'?" if near else ""
    return UsageError(f"No case of {problem.name} matches {asked_for(pattern, dtype)}.{meant} Its cases: {names}.")


def asked_for(pattern: str, dtype: str) -> str:
    """What chose cases, as the command line has it."""
    of_dtype = [f"--dtype {SHORT_DTYPE_NAMES.get(dtype, dtype)}"] if dtype else []
    return " ".join([*([f"-k '{pattern}'"] if pattern or not dtype else []), *of_dtype])


def _seed_torch(seed: int, device: torch.device) -> None:
    """Seed what draws without a generator. torch.manual_seed does more than that: for each kind of accelerator that is
    not there it formats the stack, in case one should come."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _saved_statistics(model: torch.nn.Module) -> list[torch.Tensor]:
    """The buffers of a state dict that hold one number throughout, such as a batch norm's mean and variance. One of a
    single element may be a constant of the formula."""
    saved = model.state_dict(keep_vars=True)
    named = [buffer for name, buffer in model.named_buffers() if name in saved]
    return [b for b in named if b.is_floating_point() and b.numel() > 1 and _is_constant(b)]


def _is_constant(parameter: torch.Tensor) -> bool:
    return parameter.numel() == 0 or bool((parameter == parameter.flatten()[0]).all())
