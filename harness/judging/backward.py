"""What a backward must do beside being right once: add up in `.grad`, agree with its forward's derivative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError

from harness import oracle
from harness.errors import SubmissionError
from harness.judging.observe import Observation
from harness.judging.runner import Runner
from harness.oracle.data import Data
from harness.oracle.draw import Drawn
from harness.reasons import Reason

# After a backward pass and one with twice its upstream gradient (harness.worker.calls), so many times the
# first's gradients stand in `.grad`.
ACCUMULATED = 3

# torch.autograd.gradcheck's own defaults, in float64.
GRADCHECK_EPS = 1e-6
GRADCHECK_ATOL = 1e-5
GRADCHECK_RTOL = 1e-3


def require_accumulation(observation: Observation, expected: Sequence[oracle.Expected], seed: int) -> None:
    """Two steps, the second with ACCUMULATED - 1 times the upstream gradient, leave their sum in `.grad`.

    `expected` is that of one step. Raises SubmissionError when they do not."""
    reference = observation.reference
    sums = [_accumulated(gradient) for gradient in reference.of_part(expected, "backward")]
    observation.stage("accumulate", sums, train=reference.judged_in_training)
    seen = observation.call("forward", seed)
    for tensor, wanted in zip(seen.tensors, sums, strict=True):
        comparison = oracle.compare(tensor, wanted)
        if not comparison.ok:
            at = ", ".join(map(str, comparison.worst_index))
            raise SubmissionError(
                Reason.GRADIENTS_NOT_ADDED,
                f"{comparison.message}; the worst, at [{at}], is {comparison.got:.9g} and should be "
                f"{comparison.expected:.9g}. Each was right alone: does backward return memory that it uses again?",
            )


def _accumulated(gradient: oracle.Expected) -> oracle.Expected:
    form = replace(gradient.form, name=f"{gradient.form.name} after two backward passes")
    return replace(
        gradient, values=ACCUMULATED * gradient.values, tolerance=ACCUMULATED * gradient.tolerance, form=form
    )


def gradcheck(runner: Runner, drawn: Drawn, seed: int) -> None:
    """torch.autograd.gradcheck in this process, of a function whose forward and backward are calls of the worker.

    Raises SubmissionError when the numerical and the analytical Jacobian differ."""
    remote = _Remote(runner, drawn, seed)
    wanted, state = remote.wanted, drawn.reference.state
    leaves = [drawn.data.inputs[i] for i in wanted.inputs] + [state[name] for name in wanted.parameters]
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    try:
        torch.autograd.gradcheck(
            lambda *tensors: _RemoteFunction.apply(remote, *tensors),
            leaves,
            eps=GRADCHECK_EPS,
            atol=GRADCHECK_ATOL,
            rtol=GRADCHECK_RTOL,
            check_undefined_grad=False,
        )
    except GradcheckError as error:
        text = " ".join(str(error).split())[:600]
        raise SubmissionError(Reason.GRADCHECK_FAILED, f"torch.autograd.gradcheck in float64: {text}") from error


class _Remote:
    """Steps of the submission on inputs and parameters of the caller's choice."""

    def __init__(self, runner: Runner, drawn: Drawn, seed: int) -> None:
        assert drawn.reference.differentiation is not None
        self._runner = runner
        self._drawn = drawn
        self._seed = seed
        self.wanted = drawn.reference.differentiation

    def step(self, leaves: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs and gradients."""
        reference = self._drawn.reference
        data = Data(self._inputs(leaves), tuple(upstream))
        parameters = [leaf.detach() for leaf in leaves[len(self.wanted.inputs) :]]
        weights = dict(zip(self.wanted.parameters, parameters, strict=True))
        observation = Observation(self._runner, reference, data, weights)
        observation.stage("step", self._drawn.expected, train=reference.timed_in_training)
        # A derivative is that of one mask: of what the seed gives.
        return observation.call("forward", self._seed, self._seed if reference.random else None).tensors

    def _inputs(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The case's inputs, those that are differentiated replaced by the first of `leaves`."""
        inputs = list(self._drawn.data.inputs)
        for position, leaf in zip(self.wanted.inputs, leaves, strict=False):
            inputs[position] = leaf.detach()
        return inputs

    def no_upstream(self) -> list[torch.Tensor]:
        return [torch.zeros_like(tensor) for tensor in self._drawn.data.upstream]

    def differentiated(self, outputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(outputs[i] for i in self.wanted.outputs)

    @property
    def gradient_count(self) -> int:
        return len(self.wanted.inputs) + len(self.wanted.parameters)


class _RemoteFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, remote: _Remote, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.remote = remote
        ctx.save_for_backward(*leaves)
        return remote.differentiated(remote.step(leaves, remote.no_upstream()))

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        results = ctx.remote.step(ctx.saved_tensors, upstream)
        return (None, *results[len(results) - ctx.remote.gradient_count :])
