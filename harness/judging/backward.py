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
from harness.oracle.draw import Drawn
from harness.reasons import Reason

# After a backward pass and one with three times its upstream gradient (harness.worker.calls), so many times the
# first's gradients stand in `.grad`.
ACCUMULATED = 4

# torch.autograd.gradcheck's own defaults, in float64.
GRADCHECK_EPS = 1e-6
GRADCHECK_ATOL = 1e-5
GRADCHECK_RTOL = 1e-3


def require_accumulation(observation: Observation, seed: int) -> None:
    """Two steps, the second with ACCUMULATED - 1 times the upstream gradient, leave their sum in `.grad`.

    Raises SubmissionError when they do not."""
    drawn = observation.drawn
    sums = [_accumulated(expected) for expected in drawn.expected_of("backward")]
    observation.stage("accumulate", sums, train=not drawn.random)
    seen = observation.call("forward", seed)
    for tensor, expected in zip(seen.tensors, sums, strict=True):
        comparison = oracle.compare(tensor, expected)
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
    wanted = drawn.differentiation
    assert wanted is not None
    leaves = [drawn.inputs[i] for i in wanted.inputs] + [drawn.state[name] for name in wanted.parameters]
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
        self._runner = runner
        self._drawn = drawn
        self._seed = seed

    def step(self, leaves: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs and gradients."""
        observation = Observation(self._runner, self._with(leaves, upstream))
        observation.stage("step", self._drawn.expected, train=not self._drawn.random)
        return observation.call("forward", self._seed).tensors

    def no_upstream(self) -> list[torch.Tensor]:
        return [torch.zeros_like(tensor) for tensor in self._drawn.upstream]

    def differentiated(self, outputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        assert self._drawn.differentiation is not None
        return tuple(outputs[i] for i in self._drawn.differentiation.outputs)

    @property
    def gradient_count(self) -> int:
        return len(self._drawn.expected_of("backward"))

    def _with(self, leaves: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]) -> Drawn:
        wanted = self._drawn.differentiation
        assert wanted is not None
        inputs = list(self._drawn.inputs)
        for position, leaf in zip(wanted.inputs, leaves, strict=False):
            inputs[position] = leaf.detach()
        parameters = dict(zip(wanted.parameters, leaves[len(wanted.inputs) :], strict=True))
        return replace(self._drawn, inputs=inputs, upstream=tuple(upstream), parameters=parameters)


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
