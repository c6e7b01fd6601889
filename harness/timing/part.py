"""What is timed: one part of a case's calls, with the bytes that it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness import oracle
from harness.oracle.data import Data, draw_upstream
from harness.oracle.draw import CaseForms
from harness.oracle.reference import Reference
from harness.problem import Problem
from harness.settings import sub_seed
from harness.timing import roofline


@dataclass(frozen=True)
class Part:
    """A case, and the part of its call: the whole, or only its forward or backward. Calls are in training mode,
    unless a Model puts itself into evaluation."""

    forms: CaseForms
    name: str
    case: str
    """The name of the case that was asked for."""

    @property
    def reference(self) -> Reference:
        return self.forms.reference

    @property
    def shown(self) -> str:
        """How notes name it; nothing for the whole call."""
        return "" if self.name == self.reference.timed_parts[0] else self.name

    @property
    def function(self) -> torch.nn.Module:
        """The reference as a function of what a buffer holds."""
        return self.reference.function_in_training(self.name)

    @property
    def results(self) -> list[oracle.Form]:
        """What comes out of a call."""
        return self.reference.of_part(self.reference.forms_in_training(self.forms.results), self.name)

    @property
    def given(self) -> list[oracle.Form]:
        """What a buffer holds for a call."""
        return [*self.forms.inputs, *([] if self.name == "forward" else self.forms.upstream)]

    @property
    def layouts(self) -> list[str]:
        """How each of `given` lies in memory."""
        case = self.reference.case
        inputs = len(self.forms.inputs)
        return [*map(case.layout_of, range(inputs)), *([case.upstream] * (len(self.given) - inputs))]

    @property
    def early(self) -> int:
        """Of the tensors of a buffer, how many the clock does not wait for: a backward's inputs."""
        return len(self.forms.inputs) if self.name == "backward" else 0

    @property
    def read_bytes(self) -> int:
        return _nbytes(self.given)

    @property
    def late_bytes(self) -> int:
        """What a call is given when the clock starts."""
        return _nbytes(self.given[self.early :])

    @property
    def written_bytes(self) -> int:
        return _nbytes(self.results)

    @property
    def state_bytes(self) -> int:
        """Of the reference's parameters and buffers."""
        needless = self.reference.needless
        return roofline.bytes_min(t for name, t in self.reference.state.items() if name not in needless)

    @property
    def bytes_min(self) -> int:
        """Each tensor once: what is given, parameters, and what comes out."""
        return self.read_bytes + self.state_bytes + self.written_bytes

    @property
    def held_bytes(self) -> int:
        """What a worker holds of each call: its results. A backward holds the outputs of its forward, and what that
        stored for it, as well."""
        results = _nbytes(self.forms.results)
        return results + results // 2 if self.reference.differentiation else results

    def draw(
        self, problem: Problem, run_seed: int, number: int, device: torch.device
    ) -> tuple[Data, list[oracle.Expected]]:
        """One of the case's data sets for timing, and what must come out of it."""
        case, seed = self.reference.case, sub_seed(run_seed, self.case, "timed", number)
        inputs = problem.draw_inputs(case, seed, device)
        upstream = () if self.name == "forward" else draw_upstream(self.forms.upstream, case.upstream, seed, device)
        data = Data(inputs, upstream)
        return data, self.reference.expect_in_training(self.name, data.laid_out(case), seed, self.results)


def _nbytes(forms: Sequence[oracle.Form]) -> int:
    return sum(form.nbytes for form in forms)
