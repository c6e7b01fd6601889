"""What dropout keeps of outputs in training: what they are in evaluation, over 1 - p."""

from __future__ import annotations

from dataclasses import replace

import torch

from harness.oracle.outputs import Expected, Form, outputs_of


class Kept(torch.nn.Module):
    """A model in evaluation mode; its random outputs are scaled as what dropout keeps of them in training."""

    def __init__(self, model: torch.nn.Module, random: dict[int, float]) -> None:
        """`random` has the p of each random output."""
        super().__init__()
        self.model = model
        self.random = random

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        outputs = outputs_of(self.model(*inputs))
        return [o * scale(self.random[i]) if i in self.random else o for i, o in enumerate(outputs)]


def scale(p: float) -> float:
    """What dropout multiplies by where it keeps."""
    return 1 / (1 - p) if p < 1 else 0.0


def kept_form(form: Form, p: float) -> Form:
    """The form of an output that dropout makes random."""
    return replace(form, dropout=p)


def kept(expected: Expected, p: float) -> Expected:
    """An output where dropout keeps it, from the same output in evaluation."""
    factor = scale(p)
    values, tolerance = expected.values * factor, expected.tolerance * max(factor, 1.0)
    return replace(expected, values=values, tolerance=tolerance, form=kept_form(expected.form, p))
