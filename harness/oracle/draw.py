"""Drawing a case: its reference with random weights, its data, and what must come out."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.device.base import Device
from harness.errors import ReferenceFault, UsageError, out_of_memory
from harness.oracle.ahead import FEWEST, Ahead, Known
from harness.oracle.comparison import compare
from harness.oracle.data import Data, draw_upstream
from harness.oracle.differentiate import argument_names, differentiation
from harness.oracle.faults import told
from harness.oracle.further import Further, cases_called, draw_further
from harness.oracle.outputs import Expected, Form, form_of
from harness.oracle.reference import Reference
from harness.problem import Case, Problem
from harness.protocol.values import encode_value
from harness.protocol.wire import Differentiation
from harness.settings import sub_seed


@dataclass(frozen=True)
class Drawn:
    """A case as it is judged. `expected` are outputs in evaluation mode and, after them, gradients. `further` is what
    it is called on beside, where there is room."""

    reference: Reference
    data: Data
    expected: list[Expected]
    further: Further | None = None


@dataclass(frozen=True)
class CaseForms:
    """A case as it is timed, on data of timing's own: the forms of its inputs, upstream gradients and results."""

    reference: Reference
    inputs: list[Form]
    upstream: list[Form]
    results: list[Form]


def forms_of(drawn: Drawn) -> CaseForms:
    """The forms of a case's tensors, whose values may be of many GiB."""
    return CaseForms(
        drawn.reference,
        [form_of(tensor) for tensor in drawn.data.inputs],
        [form_of(tensor) for tensor in drawn.data.upstream],
        [expected.form for expected in drawn.expected],
    )


def held_alike(drawn: Drawn) -> dict[str, bool]:
    """Whether weights, and the inputs of a problem's own `get_inputs`, hold the same numbers in another draw, by how
    reports call them."""
    if drawn.further is None:
        return {}
    reference, other = drawn.reference, drawn.further.weights.reference
    found: dict[str, bool] = {}
    if reference.case.from_functions:
        pairs = zip(drawn.data.inputs, drawn.further.inputs.data.inputs, strict=True)
        names = argument_names(reference.model)
        found |= {f"input '{name}'": _are_alike(*pair) for name, pair in zip(names, pairs, strict=False)}
    if other.model is not reference.model:
        weights = {name: held for name, held in reference.state.items() if name not in reference.needless}
        draws = dict(other.state)
        if drawn.further.weights.zeros and reference.differentiation:
            for name in reference.differentiation.parameters:
                draws[name] = torch.where(draws[name] == 0, reference.state[name], draws[name])
        found |= {f"'{name}'": _are_alike(held, draws[name]) for name, held in weights.items()}
    return found


def only_values(drawn: Drawn) -> dict[str, float | None]:
    """By the names of outputs that have elements: the finite number that each element should be, or None."""
    found: dict[str, float | None] = {}
    for expected in drawn.reference.of_part(drawn.expected, "forward"):
        if expected.values.numel():
            least, most = expected.values.aminmax()
            found[expected.form.name] = float(least) if least == most and least.isfinite() else None
    return found


def unseen_shares(drawn: Drawn) -> dict[str, float]:
    """By the names of outputs that have elements: which share of these is not 0 and far below the error bound, so
    that zeros pass for them."""
    return {
        expected.form.name: expected.unseen() / expected.values.numel()
        for expected in drawn.reference.of_part(drawn.expected, "forward")
        if expected.values.numel()
    }


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """A single element may be a constant of the formula."""
    return one.numel() > 1 and torch.equal(one, other)


def draw_case(problem: Problem, case: Case, device: Device, seed: int, known: Known | None = None) -> Drawn:
    """Draw a case's weights and inputs and compute what must come out, if that is not `known`.

    Raises UsageError when the reference cannot be run on them."""
    with told(problem.path, case.name):
        reference, data = _draw(problem, case, device, seed)
        encode_value(reference.init)
        expected = known.expected if known else reference.expect(data, sub_seed(seed, case.name, "signs"))
        _require_what_random_says(problem, reference, data, expected)
        further = draw_further(problem, reference, data, expected, sub_seed(seed, case.name, "further"), device.name)
        further = further.with_known(known.further) if further and known else further
        return Drawn(reference, data, expected, further)


def _draw(problem: Problem, case: Case, device: Device, seed: int) -> tuple[Reference, Data]:
    chosen = case.on(device.name)
    where = device.torch_device
    weights_seed = sub_seed(seed, case.name, "weights")
    model = problem.build_model(chosen, weights_seed, where)
    inputs = problem.draw_inputs(chosen, sub_seed(seed, case.name, "inputs"), where)
    init = problem.init_args(chosen, weights_seed)
    random = {i: _dropout_of(model, name) for i, name in problem.random.items()}
    if random:
        model.eval()
    wanted: Differentiation | None = None
    upstream: tuple[torch.Tensor, ...] = ()
    if problem.gradients is not None:
        wanted, upstream = _draw_backward(
            model, inputs, chosen, problem.gradients, sub_seed(seed, case.name, "upstream")
        )
    reference = Reference(chosen, chosen is not case, model, init, wanted, random, problem.tolerance_factor)
    return reference, Data(inputs, upstream)


def _require_what_random_says(problem: Problem, reference: Reference, data: Data, expected: Sequence[Expected]) -> None:
    """Raises ReferenceFault where an output that RANDOM names is no dropout's result in training."""
    if not reference.random:
        return
    found = reference.outputs_in_training(data)
    wanted = reference.in_training(expected)
    for position in reference.random:
        if position >= len(found) or not compare(found[position], wanted[position]).ok:
            name = problem.random[position]
            raise ReferenceFault(
                f"RANDOM in {problem.path} says that output {position} is what '{name}' returns. In training it is "
                f"neither 0 nor what it is in evaluation over 1 - p, in case '{reference.case.name}': something comes "
                f"behind '{name}', or another module depends on the mode. Return what '{name}' gives as an output of "
                "its own."
            )


def _dropout_of(model: torch.nn.Module, name: str) -> float:
    """The p of the reference's dropout module `name`. Raises ValueError when it is another kind of module."""
    module = dict(model.named_modules()).get(name)
    if type(module) is not torch.nn.Dropout:
        raise ValueError(f"RANDOM names '{name}', which is not an nn.Dropout of Model but {type(module).__name__}")
    return module.p


def _draw_backward(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor], case: Case, only: Sequence[str], seed: int
) -> tuple[Differentiation, tuple[torch.Tensor, ...]]:
    """What is differentiated, and the upstream gradients."""
    wanted, outputs = differentiation(model, Data([*inputs]).laid_out(case), only)
    differentiated = [outputs[i] for i in wanted.outputs]
    return wanted, draw_upstream(differentiated, case.upstream, seed, differentiated[0].device)


# Cases that need less memory than this are kept for the next submission.
KEPT_BYTES = 8 << 20

# A case's weights of at most so many bytes are kept for its timing.
KEPT_STATE_BYTES = 256 << 20


class Draws:
    """The cases of one problem, drawn from one seed. Small ones are drawn once, for all submissions; of others the
    reference and the forms are kept."""

    def __init__(self, problem: Problem, device: Device, seed: int) -> None:
        self._problem = problem
        self._device = device
        self._seed = seed
        self._drawn: dict[str, Drawn] = {}
        self._ahead: Ahead | None = None
        self._forms: dict[str, CaseForms] = {}

    def draw(self, case: Case) -> Drawn:
        """As `draw_case`."""
        drawn = self._drawn.get(case.name)
        if not drawn:
            known = self._ahead.take(case.name) if self._ahead else None
            drawn = draw_case(self._problem, case, self._device, self._seed, known)
        if sum(expected.values.nbytes for expected in drawn.expected) <= KEPT_BYTES:
            self._drawn[case.name] = drawn
        if case.timed and sum(t.nbytes for t in drawn.reference.state.values()) <= KEPT_STATE_BYTES:
            self._forms[case.name] = forms_of(drawn)
        return drawn

    def forms(self, case: Case) -> CaseForms:
        """What timing needs of it. Raises as `draw_case`."""
        return self._forms.get(case.name) or forms_of(self.draw(case))

    def cases_called(self, case: Case) -> list[Case]:
        """The forms in which a case is called on the device, without their data."""
        differentiated = self._problem.gradients is not None
        return cases_called(case.on(self._device.name), sub_seed(self._seed, case.name, "further"), differentiated)

    def compute_ahead(self, cases: Sequence[Case], *, further: bool) -> None:
        """Have another process compute what must come out of the small ones, and of their `further` calls, until
        `end_ahead`; where there is another core for it, and data that a fork may touch."""
        small = {case.name: case for case in cases if self._is_small(case)}
        alone = len(os.sched_getaffinity(0)) < 2
        if self._device.torch_device.type != "cpu" or alone or len(small) < FEWEST:
            return

        def compute(name: str) -> Known:
            drawn = draw_case(self._problem, small[name], self._device, self._seed)
            return Known(drawn.expected, drawn.further.expect_ahead() if further and drawn.further else [])

        self._ahead = Ahead([*small], compute)

    def end_ahead(self) -> None:
        """Nothing computes beside the judge from here on."""
        if self._ahead:
            self._ahead.end()

    def draw_ahead(self, cases: Sequence[Case], stop: Callable[[], bool]) -> None:
        """Draw the small ones, with what must come out of further calls, until `stop` says that there is other work.
        What cannot be drawn, `draw` will say."""
        if self._ahead:
            return
        for case in cases:
            if stop():
                return
            if case.name not in self._drawn and self._is_small(case):
                try:
                    if further := self.draw(case).further:
                        further.expect_ahead()
                except UsageError:
                    pass
                except Exception as error:
                    if not out_of_memory(error):
                        raise

    def _is_small(self, case: Case) -> bool:
        return 8 * sum(map(math.prod, case.on(self._device.name).shapes)) <= KEPT_BYTES
