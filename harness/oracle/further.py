"""What a case is called on beside its own data: other inputs, other weights, another size of its batch, and its own
data where they lie otherwise."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from harness.errors import out_of_memory
from harness.layouts import ROWS, SLICED
from harness.oracle.comparison import Comparison, compare_all
from harness.oracle.copies import copied
from harness.oracle.data import Data, draw_upstream
from harness.oracle.error_bound import MOST_DRAWS
from harness.oracle.faults import told
from harness.oracle.outputs import Expected
from harness.oracle.reference import Reference
from harness.problem import Case, Problem
from harness.settings import sub_seed

# Cases whose inputs, and outputs in float64, take more have no further data: they would stand in memory twice.
MOST_BYTES = 1 << 30

# Data of more bytes lie in other memory as they lay: what lies otherwise takes up to three times as much.
MOST_BYTES_OTHERWISE = 16 << 20

# Another batch has no more elements than this, but SELDOM.
BATCH_ELEMENTS = 1 << 16
SELDOM = 0.25

# How upstream gradients lie a second time.
_UPSTREAM_AGAIN = {"transposed": SLICED, "expanded": ROWS}


@dataclass(frozen=True)
class Variant:
    """A reference on data, and the comparison with what must come out. Raises UsageError where the reference cannot be
    run on them."""

    problem: Path
    reference: Reference
    data: Data
    seed: int
    known: list[Expected] | None = None
    """What must come out, where that has been computed elsewhere."""
    zeros: bool = False
    """Whether there is a 0 in each differentiated weight of several elements."""

    @cached_property
    def expected(self) -> list[Expected]:
        """With the tolerance of a single perturbation, which costs a fraction and is no larger than the whole."""
        return self.known or self._expect(draws=1)

    @property
    def holds_in_evaluation(self) -> bool:
        """Whether what is expected is right in evaluation, too."""
        return self.reference.holds_in_evaluation(self.data, self.expected)

    @property
    def runs_in_inference_mode(self) -> bool:
        """Whether the reference can be called there on these data."""
        return self.reference.runs_in_inference_mode(self.data)

    def compare(self, tensors: Sequence[torch.Tensor]) -> list[Comparison]:
        """Each result with what it should be. What is within the smaller tolerance is within the whole one."""
        found = compare_all(tensors, self.expected)
        return found if all(c.ok for c in found) else compare_all(tensors, self.expected_in_full)

    @cached_property
    def expected_in_full(self) -> list[Expected]:
        """With the whole tolerance."""
        return self._expect(MOST_DRAWS)

    def _expect(self, draws: int) -> list[Expected]:
        with told(self.problem, self.reference.case.name):
            return self.reference.expect(self.data, self.seed, draws)


@dataclass(frozen=True)
class Further:
    """`inputs` are others of the case's own form, on its own weights. `elsewhere` are its own, which lie in other ways
    where they are not contiguous or not aligned; where one number was the upstream of all elements, it is one row
    there. `weights` are others, on other inputs still, of another batch where the case allows one. `init` are another
    case's arguments of the constructor, if one has others.
    """

    inputs: Variant
    elsewhere: list[Variant]
    weights: Variant
    init: tuple[Any, ...] | None

    def expect_ahead(self) -> list[list[Expected]]:
        """Compute what must come out now, and not when it is compared."""
        return [variant.expected for variant in (self.inputs, self.weights)]

    def with_known(self, known: Sequence[list[Expected]]) -> Further:
        """The same, with what another's `expect_ahead` gave, if it gave any."""
        if not known:
            return self
        inputs, weights = known
        return replace(self, inputs=replace(self.inputs, known=inputs), weights=replace(self.weights, known=weights))


def cases_called(case: Case, seed: int, differentiated: bool) -> list[Case]:
    """The forms in which a case is called: its own, that of another batch which `draw_further` gives by the same seed,
    and those in which its data lie otherwise. `differentiated` is whether it is a training step."""
    others = [_other_batch(case, sub_seed(seed, "weights"))] if case.batch else []
    return [case, *others, *_lying_otherwise(case, differentiated)]


def _lying_otherwise(case: Case, differentiated: bool) -> list[Case]:
    """The case where its data lie in other ways: of several inputs every second one is contiguous and aligned, so that
    none can answer for another. Upstream gradients lie in a further way where they were not contiguous; where inputs
    are not aligned, they are, and upstream gradients are not."""
    forms = []
    if case.layout == "transposed":
        lie_apart = [position for position, shape in enumerate(case.shapes) if len(shape) > 1]
        forms = [replace(case, layout=SLICED, contiguous=half) for half in _halves(lie_apart) if lie_apart]
    elif case.layout == "offset" and len(case.shapes) > 1:
        forms = [replace(case, contiguous=half) for half in _halves(range(len(case.shapes)))]
    if differentiated and case.upstream in _UPSTREAM_AGAIN:
        forms.append(replace(case, upstream=_UPSTREAM_AGAIN[case.upstream]))
    elif differentiated and case.layout == "offset":
        forms.append(replace(case, layout="contiguous", upstream="offset"))
    return forms


def _halves(positions: Sequence[int]) -> list[frozenset[int]]:
    """Every second of several, and the others; of one, none."""
    return [frozenset(positions[1::2]), frozenset(positions[::2])] if len(positions) > 1 else [frozenset()]


def draw_further(
    problem: Problem, reference: Reference, data: Data, expected: Sequence[Expected], seed: int, device: str
) -> Further | None:
    """Further data for a case that has been drawn for `device`; None where they would take too much memory."""
    nbytes = sum(t.nbytes for t in data.given) + sum(e.values.nbytes for e in expected)
    if nbytes > MOST_BYTES:
        return None
    inputs = _draw(problem, reference, data, sub_seed(seed, "inputs"))
    return Further(
        inputs=Variant(problem.path, reference, inputs, sub_seed(seed, "signs")),
        elsewhere=_elsewhere(problem, reference, data, expected, sub_seed(seed, "signs"), nbytes),
        weights=_other_weights(problem, reference, data, sub_seed(seed, "weights")),
        init=other_init(problem, reference.case, sub_seed(seed, "init"), device),
    )


def other_init(problem: Problem, own: Case, seed: int, device: str) -> tuple[Any, ...] | None:
    """The constructor's arguments of another case, as `device` runs it, where one has others than `own`."""
    if own.from_functions:
        return None
    cases = (case.on(device) for case in problem.cases if not case.from_functions)
    others = [case.init for case in cases if repr(case.init) != repr(own.init)]
    return tuple(random.Random(seed).choice(others)) if others else None


def _elsewhere(
    problem: Problem, own: Reference, data: Data, expected: Sequence[Expected], seed: int, nbytes: int
) -> list[Variant]:
    """The case's own data in other memory: as they lie otherwise, where they are small and the reference gives the same
    for such; or as they lay, where there is no other way. One row of upstream gradients is drawn anew."""
    known, found = list(expected), []
    small = nbytes <= MOST_BYTES_OTHERWISE
    for case in _lying_otherwise(own.case, own.differentiation is not None) if small else []:
        apart = replace(own, case=case)
        if case.upstream == ROWS:
            rows = draw_upstream(data.upstream, ROWS, sub_seed(seed, "rows"), _device_of(data.given))
            of_rows = Data(data.inputs, rows)
            if any(upstream.dim() > 1 for upstream in rows) and apart.takes(of_rows):
                found.append(Variant(problem.path, apart, of_rows, seed))
        elif strides := apart.strides_of_results(data, known):
            moved = [replace(e, form=replace(e.form, stride=s)) for e, s in zip(known, strides, strict=True)]
            found.append(Variant(problem.path, apart, data, seed, moved))
    return found or [Variant(problem.path, own, data, seed, known)]


def _other_weights(problem: Problem, own: Reference, data: Data, seed: int) -> Variant:
    case = _other_batch(own.case, seed) if own.case.batch else own.case
    reference = replace(own, case=case, model=_other_model(problem, own, data, seed))
    other = _draw(problem, reference, data, seed)
    zeroed = _with_zeros(reference, other, seed) if reference.model is not own.model else None
    return Variant(problem.path, zeroed or reference, other, sub_seed(seed, "signs"), zeros=zeroed is not None)


def _with_zeros(reference: Reference, data: Data, seed: int) -> Reference | None:
    """With a 0 in each differentiated weight of several elements: a backward that recovers what it needs from outputs
    divides by it. None where there is no such weight, where the reference itself fails then or gives other numbers of
    finite ones, or where outputs are random: what is 0 anyway shows nothing of a mask."""
    differentiation = None if reference.random else reference.differentiation
    wanted = set(differentiation.parameters) if differentiation else set()
    model = copied(reference.model)
    weights = [weight for name, weight in model.named_parameters() if name in wanted and weight.numel() > 1]
    if not weights:
        return None
    chance = random.Random(sub_seed(seed, "zeros"))
    for weight in weights:
        weight.detach()[tuple(map(chance.randrange, weight.shape))] = 0
    zeroed = replace(reference, model=model)
    try:
        return zeroed if _finite(zeroed, data) == _finite(reference, data) else None
    except Exception as error:
        if out_of_memory(error):
            raise
        return None


def _finite(reference: Reference, data: Data) -> list[int]:
    """How many numbers of each result of one call are finite."""
    return [int(torch.isfinite(result).sum()) for result in reference.called(data.laid_out(reference.case))]


def _other_model(problem: Problem, own: Reference, data: Data, seed: int) -> torch.nn.Module:
    """The reference with other weights; with its own where the constructor's arguments are drawn, too."""
    if tuple(problem.init_args(own.case, seed)) != tuple(own.init):
        return own.model
    model = problem.build_model(own.case, seed, _device_of([*data.given, *own.state.values()]))
    return model if model.training == own.model.training else model.train(own.model.training)


def _other_batch(case: Case, seed: int) -> Case:
    """`case` with another size of the first dimension: a larger one, since what was fixed for fewer leaves rows out. Of
    a case for which that would cost much it is a smaller one, three times in four."""
    chance = random.Random(seed)
    rows = case.shapes[0][0]
    most = BATCH_ELEMENTS // max(1, *(math.prod(shape[1:]) for shape in case.shapes))
    if rows + 1 <= most or rows <= 1 or chance.random() < SELDOM:
        other = rows + chance.randint(1, max(1, min(rows, most - rows)))
    else:
        other = chance.randint(1, max(1, min(rows - 1, most)))
    return replace(case, shapes=tuple((other, *shape[1:]) for shape in case.shapes))


def _draw(problem: Problem, reference: Reference, data: Data, seed: int) -> Data:
    """Data in the form of `reference`'s case, on the device of `data`."""
    device = _device_of(data.given)
    inputs = problem.draw_inputs(reference.case, sub_seed(seed, "inputs"), device)
    if reference.differentiation is None:
        return Data(inputs)
    with torch.no_grad():
        outputs = reference.model(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    differentiated = [outputs[i] for i in reference.differentiation.outputs]
    return Data(inputs, draw_upstream(differentiated, reference.case.upstream, sub_seed(seed, "upstream"), device))


def _device_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    return next((tensor.device for tensor in tensors), torch.device("cpu"))
