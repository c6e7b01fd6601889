"""How far from the reference in float64 a result may be.

The tolerance depends on the problem and the data, and never on the machine. The reference's own error
cannot be the error bound: eager on a CPU is ten times more accurate than eager on a GPU. The error bound
models what an ordinary implementation in the case's dtype may be off, computed in float64:

    error bound = max |f(p + dp) - f(p)|  +  4 eps max |f(p)|,       tolerance = factor x error bound

Here f is the reference in float64, p its inputs and parameters, and dp perturbs each element by one unit
roundoff (eps / 2) of the case's dtype with a random sign. The maxima run over the whole output. The factor
is 4 unless the problem sets another.

The first term is the conditioning: no algorithm that stores its inputs in that dtype can be expected to do
better (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 1.6 and 2.2: forward error
<= condition number x backward error). The second term is the rounding of the result and of the sums on the
way to it. docs/judging.md has the figures for LayerNorm: eager on both kinds of machine passes,
E[x^2] - m^2 on data with a large mean does not.

16 bits. Sums are kept in float32, and inputs are given in 16 bits and not rounded again. So dp is float32's
roundoff, each operator's result is perturbed by that of the 16 bits, and the second term is one rounding of
the result. Where float32 stands beside them, as in weights or outside of autocast, that holds for those results
that the reference itself has in 16 bits, and an output of float32 is rounded as one (see
harness.oracle.result_dtypes).

Sums. Wherever f adds terms up, in a product of matrices, a mean or the statistics of a norm, the sum is
perturbed by what adding its terms one after the other rounds away. With 4,096 terms that is more than the
rest, and eager on a GPU needs it in products (see harness.oracle.rounded_sums).

Small cases. Several perturbations are drawn, and the largest move counts: one row of two elements may decide,
and their difference moves only where the signs differ. In float32 every second draw perturbs the result of
each operator instead of p, also inside of LayerNorm and its like: no change of p shows that a row's mean is
rounded.

Integers and booleans are not rounded: as outputs they have to be equal.

Constants. Beside the -1e9 of a masked fill everything else would go for nothing: the maxima run over one scale. Where
they leave a tenth of an output unseen, they run over the elements alone that a change of p moves. What stays is a
constant, which has to come out as the output's dtype rounds it, or one unit in the last place beside that.

Backwards. A backward works with what its forward stored, so the result of each operator of the reference is
perturbed by 2 eps as well, also inside of LayerNorm and its like (Monte Carlo arithmetic, Parker 1997): a mean
that was rounded once is off in the same direction for a whole row, and no change of p shows that. In 16 bits
these are 2 eps of float32, since sums are float32 there, and what 16 bits add is said above.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only

from harness.errors import KernelgateError
from harness.oracle.copies import copied
from harness.oracle.operators import Operators
from harness.oracle.outputs import UNSEEN_SHARE, Expected, Form, exact_outputs, far_below, outputs_of
from harness.oracle.pieces import pieces
from harness.oracle.result_dtypes import Calls, Recorder, ResultDtypes, coarsest, common, eps_of
from harness.oracle.rounded_sums import RoundedSums
from harness.oracle.step_by_step import STEP_BY_STEP
from harness.oracle.widened import may_be_widened
from harness.problem.values import DEFAULT_TOLERANCE_FACTOR
from harness.surroundings import is_of_another_mode, kept

# Rounding of the result and of partial sums, in eps of the output's scale. The reference itself needs four: eager on a
# GPU adds a row of four million elements in 128 running sums and is then off by 11 eps in every element.
ROUNDING_EPS = 4.0

# A case with at most SMALL_ELEMENTS in its inputs and outputs is perturbed SMALL_DRAWS times, and one with an output of
# fewer than FEW_ELEMENTS MOST_DRAWS times. Of 800 rows of two to four elements with offsets of ten, eager in float32
# came to 0.53 of the tolerance that one draw gives, to 0.34 with four and to 0.31 with eight. A difference of two
# nearly equal products was refused in 98 of 300 cases with one draw, in 11 with four and in 1 with eight: signs may
# cancel there as well. In larger outputs other elements show as much.
SMALL_ELEMENTS = 1 << 18
FEW_ELEMENTS = 8
SMALL_DRAWS = 4
MOST_DRAWS = 8

# Elements of an output that say whether its bound leaves many of them unseen.
UNSEEN_SAMPLE = 1 << 16

# PyTorch (at::opmath_type) and everybody else keep sums over 16-bit numbers in float32: only the rounding of the
# result itself is as coarse as 16 bits.
SUMS_EPS = torch.finfo(torch.float32).eps


def _perturbed(tensor: torch.Tensor, eps: float, generator: torch.Generator) -> torch.Tensor:
    """A copy of `tensor` (float64), each element perturbed by a relative eps / 2 of random sign."""
    return _perturb(tensor.clone(memory_format=torch.preserve_format), eps, generator)


def _perturb(tensor: torch.Tensor, eps: float, generator: torch.Generator) -> torch.Tensor:
    """As `_perturbed`, in place."""
    if tensor.is_floating_point():
        for _, (piece,) in pieces(tensor):
            piece.mul_(_zeros_and_ones(piece, generator).mul_(eps).add_(1 - eps / 2))
    return tensor


def _zeros_and_ones(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """0 or 1 in float64 for each element of `like`, as likely. Of each number drawn the lowest bit of every byte."""
    numbers = torch.empty(-(-like.numel() // 4), dtype=torch.int32, device=like.device).random_(generator=generator)
    return numbers.view(torch.int8)[: like.numel()].bitwise_and_(1).double().view(like.shape)


class _RoundedResults(Operators):
    """Perturbs each operator's result by a relative `eps` / 2, signs at random. Views stay, what is written in place,
    and what the reference has in a finer dtype, as `dtypes` knows. With `step_by_step` also the results inside of
    operators that are in STEP_BY_STEP."""

    def __init__(
        self, eps: float, generator: torch.Generator, *, step_by_step: bool, dtypes: ResultDtypes | None = None
    ) -> None:
        super().__init__()
        self._eps = eps
        self._generator = generator
        self._step_by_step = step_by_step
        self._calls = Calls(dtypes or {})

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._step_by_step and func in STEP_BY_STEP:
            with self:
                return STEP_BY_STEP[func](*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        dtypes = self._calls.next(func)
        if func._schema.is_mutable or any(returned.alias_info for returned in func._schema.returns):
            return result
        own = iter(dtypes or [])

        def rounded(tensor: torch.Tensor) -> torch.Tensor:
            dtype = next(own, None)
            return (
                tensor
                if dtype is not None and eps_of(dtype) < self._eps
                else _perturbed(tensor, self._eps, self._generator)
            )

        return tree_map_only(torch.Tensor, rounded, result)


def _finite_max(tensor: torch.Tensor, taken_off: torch.Tensor | None = None) -> float:
    """Largest finite absolute value of `tensor`, less `taken_off` in float64 if that is given; 0 for none."""
    if tensor.numel() == 0:
        return 0.0
    largest = 0.0
    for _, (piece, *other) in pieces(tensor, *([] if taken_off is None else [taken_off])):
        value = piece.double() - other[0] if other else piece
        largest = max(largest, _finite_max_of(value))
    return largest


def _finite_max_of(value: torch.Tensor) -> float:
    if value.is_floating_point():
        least, most = (float(end) for end in value.aminmax())  # one pass, in which NaN shows
        if math.isfinite(least) and math.isfinite(most):
            return max(-least, most)
    return float(torch.nan_to_num(value.abs(), nan=0.0, posinf=0.0, neginf=0.0).max())


class RandomReference(KernelgateError):
    """Two calls of a reference on the same data differ, since it draws random numbers."""


class StatefulReference(KernelgateError):
    """What a reference gives depends on how often it was called, by its buffers."""


def _states_of_generators(inputs: Sequence[torch.Tensor]) -> list[bytes]:
    """Of all that a reference may draw from: torch's own, NumPy's and Python's."""
    device = next((t.device for t in inputs if t.is_cuda), None)
    of_torch = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device else [])]
    return [*(state.numpy().tobytes() for state in of_torch), pickle.dumps((np.random.get_state(), random.getstate()))]


def _require_the_same_again(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Raises RandomReference where what was drawn is seen in the results, which are compared in float64: sums of
    threads that end in another order differ by less."""
    copies = _Copies(model, inputs)
    first = [t.clone() for t in exact_outputs(copies.model, copies.fresh_inputs())]
    copies.restore_model()
    second = exact_outputs(copies.model, copies.fresh_inputs())
    if _differ(first, second):
        raise RandomReference("Two calls on the same data differ.")


def _differ(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether outputs in float64 differ by more than the order of sums makes."""
    return any(
        one.shape != other.shape or _finite_max(one, other) > 1e-6 * _finite_max(one)
        for one, other in zip(first, second, strict=True)
    )


@torch.no_grad()
def expect(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    seed: int,
    names: Callable[[int], Sequence[str]] = lambda count: [f"output {i}" for i in range(count)],
    *,
    stores: bool = False,
    factor: float = DEFAULT_TOLERANCE_FACTOR,
    draws: int = MOST_DRAWS,
) -> list[Expected]:
    """The expected outputs of `model` on `inputs`, with their tolerances.

    `model` is the reference in the case's dtype. Inputs keep their layout, which decides the strides that
    the output must have. `seed` draws the signs of the perturbation. `names(count)` gives the names of so many
    outputs. `stores` says that results of operators are stored and used later, as by a backward. `factor` is the
    number of error bounds in a tolerance. At most `draws` perturbations are drawn, the first of those that a case of
    its size needs: fewer give a tolerance that is no larger. Raises RandomReference.
    """
    before = _states_of_generators(inputs)
    with Recorder() as own_run, kept(model):
        returned = model(*inputs)
    if before != _states_of_generators(inputs):
        _require_the_same_again(model, inputs)
    own, alone = outputs_of(returned), isinstance(returned, torch.Tensor)
    named = zip(own, names(len(own)), strict=True)
    between = coarsest(own_run.seen, than=SUMS_EPS)
    given = {t.untyped_storage().data_ptr() for t in (*inputs, *model.parameters(), *model.buffers()) if t.numel()}
    returns = Counter(o.untyped_storage().data_ptr() for o in own)
    forms = [
        Form(
            tuple(o.shape), o.stride(), o.dtype, name, alone=alone, between=between,
            of_input=o.untyped_storage().data_ptr() in given,
            infers=is_of_another_mode(o), shares=returns[o.untyped_storage().data_ptr()] > 1,
        )
        for o, name in named
    ]  # fmt: skip
    known = _known(own_run) if _is_mixed(model, inputs, forms) else None
    exact, bounds = _exact(model, inputs, forms, seed, stores, draws, known)
    eps = _working_eps(inputs, forms)
    return [
        # Eager may be exact (D = 1), and a ratio to nothing says nothing: half an ulp at least, and no more than what
        # the bound allows where it leaves constants out.
        Expected(
            e, form, factor * bound, max(_finite_max(o, e), min(_own_eps(form, eps, known) / 2 * _finite_max(e), bound))
        )
        for o, e, form, bound in zip(own, exact, forms, bounds, strict=True)
    ]


@torch.no_grad()
def expect_more(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    seed: int,
    forms: Sequence[Form],
    *,
    stores: bool = False,
    factor: float = DEFAULT_TOLERANCE_FACTOR,
    draws: int = MOST_DRAWS,
) -> list[Expected]:
    """As `expect`, for outputs whose `forms` are known: the reference runs in its own dtype only to see where it
    rounds to 16 bits and where not."""
    known = None
    if _is_mixed(model, inputs, forms):
        with Recorder() as own_run:
            copied(model)(*[t.clone(memory_format=torch.preserve_format) for t in inputs])
        known = _known(own_run)
    exact, bounds = _exact(model, inputs, forms, seed, stores, draws, known)
    return [Expected(*each) for each in zip(exact, forms, [factor * bound for bound in bounds], strict=True)]


def _exact(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    forms: Sequence[Form],
    seed: int,
    stores: bool,
    draws: int = MOST_DRAWS,
    dtypes: ResultDtypes | None = None,
) -> tuple[list[torch.Tensor], list[float]]:
    """The float64 outputs and the error bound of each. `dtypes`, where not all are alike, are those of the results of
    the reference's operators."""
    copies = _Copies(model, inputs)
    model64, inputs64 = copies.model, copies.fresh_inputs()
    versions = [buffer._version for buffer in model64.buffers()]
    widened = may_be_widened([*inputs, *_tensors(model)])
    with Recorder() as in_float64:
        exact = exact_outputs(model64, inputs64, widened=widened)
    exact = [_in_range(t, form) for t, form in zip(exact, forms, strict=True)]
    changing = {t.untyped_storage().data_ptr() for t in (*inputs64, *model64.parameters(), *model64.buffers())}
    exact = [t.clone() if t.untyped_storage().data_ptr() in changing else t for t in exact]
    eps = _working_eps(inputs, forms)
    both = common(dtypes, in_float64.seen) if dtypes else None
    perturbed = _Perturbed(copies, widened, eps, seed, stores, both)
    if [buffer._version for buffer in model64.buffers()] != versions:
        again = exact_outputs(model64, copies.fresh_inputs(), widened=widened)
        if _differ(exact, again):
            raise StatefulReference("A second call on the same data gives others, by what the first left in buffers.")
    count = min(draws, _draws(inputs, exact))
    rounded = [
        max(_own_eps(form, eps, dtypes) / 2, ROUNDING_EPS * perturbed.kept_eps) if form.dtype.is_floating_point else 0.0
        for form in forms
    ]
    bounds = perturbed.bounds(exact, count, rounded)
    unseen = [_leaves_unseen(*each) for each in zip(exact, bounds, strict=True)]
    if any(unseen):
        constants = [found if left else None for found, left in zip(perturbed.constants(exact), unseen, strict=True)]
        if any(constant is not None for constant in constants):
            exact = [_rounded(*each) for each in zip(exact, constants, forms, strict=True)]
            bounds = perturbed.bounds(exact, count, rounded, constants)
    return exact, bounds


@dataclass(frozen=True)
class _Perturbed:
    """A reference in float64 whose inputs, parameters and steps are perturbed as `eps` would round them."""

    copies: _Copies
    widened: bool
    eps: float
    seed: int
    stores: bool
    dtypes: ResultDtypes | None

    @property
    def kept_eps(self) -> float:
        """Of what is kept inside an operator."""
        return min(self.eps, SUMS_EPS)

    def bounds(
        self,
        exact: Sequence[torch.Tensor],
        count: int,
        rounded: Sequence[float],
        constants: Sequence[torch.Tensor | None] | None = None,
    ) -> list[float]:
        """The error bound of each output of `exact`, from so many draws and `rounded` of its scale; none of its
        `constants`."""
        left_out = constants or [None] * len(exact)
        counted = [_without(e, constant) for e, constant in zip(exact, left_out, strict=True)]
        generator = self._generator(exact)
        moves = [0.0] * len(exact)
        for number in range(count):
            inside = number % 2 == 1 and self.eps == self.kept_eps and not self.stores
            pairs = zip(self._moved(generator, inside=inside), left_out, strict=True)
            moved = [_without(m, constant) for m, constant in pairs]
            moves = [max(move, _finite_max(m, e)) for move, m, e in zip(moves, moved, counted, strict=True)]
        each = zip(moves, counted, rounded, strict=True)
        return [move + share * _finite_max(e) if share else 0.0 for move, e, share in each]

    def constants(self, exact: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Which elements of each output no change of inputs and parameters moves; None where that is none or all."""
        found = []
        for m, e in zip(self._moved(self._generator(exact), inside=False, rounds=False), exact, strict=True):
            same = m == e
            found.append(same if e.is_floating_point() and same.any() and not same.all() else None)
        return found

    def _generator(self, exact: Sequence[torch.Tensor]) -> torch.Generator:
        """Each time the same draws, so that the first of them are those of fewer."""
        return torch.Generator(exact[0].device).manual_seed(self.seed)

    def _moved(self, generator: torch.Generator, *, inside: bool, rounds: bool = True) -> list[torch.Tensor]:
        """The outputs of a draw: of changed inputs and parameters, or `inside` of changed steps alone."""
        self.copies.restore_model()
        inputs64 = self.copies.fresh_inputs()
        if not inside:
            inputs64 = _perturb_all(self.copies.model, inputs64, self.kept_eps, generator)
        rounding = _rounding(self.eps, generator, stores=self.stores, inside=inside, dtypes=self.dtypes)
        with rounding if rounds else contextlib.nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows of one element have no degree of freedom
            return exact_outputs(self.copies.model, inputs64, widened=self.widened)


def _leaves_unseen(values: torch.Tensor, bound: float) -> bool:
    """Whether a tenth of an output goes for nothing under its bound, as a sample shows."""
    if not bound or not values.numel():
        return False
    sample = values.reshape(-1)[:: values.numel() // UNSEEN_SAMPLE + 1]
    return float(far_below(sample, DEFAULT_TOLERANCE_FACTOR * bound).double().mean()) >= UNSEEN_SHARE


def _without(values: torch.Tensor, constant: torch.Tensor | None) -> torch.Tensor:
    return values if constant is None else values.masked_fill(constant, 0.0)


def _rounded(values: torch.Tensor, constant: torch.Tensor | None, form: Form) -> torch.Tensor:
    """Constants as the output's dtype has them."""
    return values if constant is None else torch.where(constant, values.to(form.dtype).double(), values)


def _in_range(values: torch.Tensor, form: Form) -> torch.Tensor:
    """Infinity for what is beyond the largest value of the output's dtype."""
    largest = torch.finfo(form.dtype).max if form.dtype.is_floating_point else math.inf
    if _finite_max(values) <= largest:
        return values
    return torch.where(values.abs() > largest, values.sign() * torch.inf, values)


class _Copies:
    """A model and its inputs in float64, to be perturbed again and again. To copy a module takes as long as to run a
    small one, so its tensors alone are put back."""

    def __init__(self, model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        self.model = copied(model).double()
        self._restored = [*zip(_tensors(self.model), _tensors(model), strict=True)]
        self._inputs = inputs

    def restore_model(self) -> None:
        for tensor, value in self._restored:
            tensor.copy_(value)

    def fresh_inputs(self) -> list[torch.Tensor]:
        return [t.to(torch.float64, copy=True) if t.is_floating_point() else t for t in self._inputs]


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _draws(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> int:
    """How many perturbations are drawn."""
    elements = sum(t.numel() for t in (*inputs, *outputs))
    fewest = min((t.numel() for t in outputs if t.numel()), default=FEW_ELEMENTS)
    if fewest < FEW_ELEMENTS:
        return MOST_DRAWS
    return SMALL_DRAWS if elements <= SMALL_ELEMENTS else 1


def _perturb_all(
    model64: torch.nn.Module, inputs64: Sequence[torch.Tensor], eps: float, generator: torch.Generator
) -> list[torch.Tensor]:
    """The inputs and, in place, the parameters, each element perturbed by a relative eps / 2."""
    for parameter in model64.parameters():
        parameter.copy_(_perturbed(parameter, eps, generator))
    return [_perturb(t, eps, generator) for t in inputs64]


@contextlib.contextmanager
def _rounding(
    eps: float, generator: torch.Generator, *, stores: bool, inside: bool, dtypes: ResultDtypes | None
) -> Iterator[None]:
    """Within it, sums are perturbed by what an implementation with machine epsilon `eps` rounds, and results of
    operators where they are stored, coarser than sums, or are to be looked at `inside`."""
    kept_eps = min(eps, SUMS_EPS)
    with contextlib.ExitStack() as rounded:
        rounded.enter_context(sdpa_kernel(SDPBackend.MATH))  # as the products and sums that attention is made of
        rounded.enter_context(RoundedSums(kept_eps, generator))
        if stores:
            rounded.enter_context(_RoundedResults(ROUNDING_EPS * kept_eps, generator, step_by_step=True))
        if eps > kept_eps:
            rounded.enter_context(_RoundedResults(eps, generator, step_by_step=False, dtypes=dtypes))
        elif inside:
            rounded.enter_context(_RoundedResults(eps, generator, step_by_step=True))
        yield


def _working_eps(inputs: Sequence[torch.Tensor], outputs: Sequence[Form]) -> float:
    """Machine epsilon of the coarsest floating dtype that goes in, comes out or is between."""
    return max(map(eps_of, _dtypes(inputs, outputs)), default=0.0)


def _dtypes(tensors: Sequence[torch.Tensor], outputs: Sequence[Form]) -> list[torch.dtype]:
    """Of tensors, of outputs, and of what is between them."""
    between = [form.between for form in outputs if form.between is not None]
    return [t.dtype for t in tensors] + [form.dtype for form in outputs] + between


def _is_mixed(model: torch.nn.Module, inputs: Sequence[torch.Tensor], outputs: Sequence[Form]) -> bool:
    """Whether 16 bits and finer floating dtypes stand beside each other."""
    dtypes = _dtypes([*inputs, *_tensors(model)], outputs)
    coarse = {eps_of(dtype) > SUMS_EPS for dtype in dtypes if dtype.is_floating_point}
    return len(coarse) > 1


def _known(own_run: Recorder) -> ResultDtypes | None:
    """The dtypes of all results; None where others were rounded as well, so that any result may have been."""
    return None if own_run.rounds_between else own_run.seen


def _own_eps(form: Form, eps: float, dtypes: ResultDtypes | None) -> float:
    """Machine epsilon of an output where dtypes are mixed; `eps` where not."""
    return eps if dtypes is None else eps_of(form.dtype)
