"""A problem's reference on one case, and what can be said of it whatever the data are."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from harness.errors import out_of_memory
from harness.oracle.comparison import compare_all
from harness.oracle.copies import copied
from harness.oracle.data import Data
from harness.oracle.differentiate import Differentiated, led_to, needs_no_output, output_names
from harness.oracle.error_bound import MOST_DRAWS, expect, expect_more
from harness.oracle.outputs import Expected, Form, has_form, outputs_of
from harness.oracle.training import Kept, kept, kept_form
from harness.problem import Case
from harness.problem.values import DEFAULT_TOLERANCE_FACTOR
from harness.protocol.wire import Differentiation

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reference:
    """The reference's model on a case, built from `init`; in evaluation mode where outputs are random."""

    case: Case
    """The case that the device runs, which may stand in for the one that was asked for."""
    scaled: bool
    """Whether it does."""
    model: torch.nn.Module
    init: tuple[object, ...]
    differentiation: Differentiation | None = None
    random: dict[int, float] = field(default_factory=dict)
    """Outputs that dropout makes random in training, and its p."""
    tolerance_factor: float = DEFAULT_TOLERANCE_FACTOR

    @property
    def judged_in_training(self) -> bool:
        """Whether its results are those of training mode, as where a Model does not put itself into evaluation."""
        return self.model.training

    @property
    def timed_in_training(self) -> bool:
        """Whether calls are timed in training mode: what is random is, which is judged in evaluation as well."""
        return self.model.training or bool(self.random)

    @property
    def call(self) -> str:
        """What one observed call of a worker does, see wire.Stage."""
        return "step" if self.differentiation else "forward"

    @property
    def timed_parts(self) -> tuple[str, ...]:
        """Parts of a call, each timed alone; the first is the whole call."""
        return ("step", "forward", "backward") if self.differentiation and not self.random else ("forward",)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name."""
        tensors = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
        return tensors | dict(self.model.named_buffers())

    @property
    def needless(self) -> frozenset[str]:
        """Buffers that a submission may do without: of no floating dtype, as counters and permutations are, or in no
        state_dict."""
        saved = self.model.state_dict(keep_vars=True)
        buffers = self.model.named_buffers()
        return frozenset(name for name, buffer in buffers if name not in saved or not buffer.is_floating_point())

    def function(self, part: str = "step") -> torch.nn.Module:
        """In evaluation, as a function of inputs and upstream gradients, see Differentiated."""
        return Differentiated(self.model, self.differentiation, part) if self.differentiation else self.model

    def function_in_training(self, part: str) -> torch.nn.Module:
        """As `function`; random outputs are scaled as what dropout keeps."""
        return Kept(self.model, self.random) if self.random and part == "forward" else self.function(part)

    def of_part(self, results: Sequence[Result], part: str) -> list[Result]:
        """Those that belong to one part, of a step's results: outputs, then gradients."""
        if part == "step" or self.differentiation is None:
            return list(results)
        outputs = len(results) - len(self.differentiation.inputs) - len(self.differentiation.parameters)
        return list(results[outputs:] if part == "backward" else results[:outputs])

    def expect(self, data: Data, seed: int, draws: int = MOST_DRAWS) -> list[Expected]:
        """Outputs and gradients in evaluation; `seed` draws the signs of the perturbation, at most `draws` times."""
        function = self.function()
        names = function.names if isinstance(function, Differentiated) else output_names
        return expect(
            function,
            data.laid_out(self.case),
            seed,
            names,
            stores=self._stores,
            factor=self.tolerance_factor,
            draws=draws,
        )

    def expect_in_training(
        self, part: str, tensors: Sequence[torch.Tensor], seed: int, forms: Sequence[Form], draws: int = MOST_DRAWS
    ) -> list[Expected]:
        """What a part gives in training for what it is given, laid out as it will lie; the results have `forms`."""
        function = self.function_in_training(part)
        return expect_more(
            function, tensors, seed, forms, stores=self._stores, factor=self.tolerance_factor, draws=draws
        )

    def in_training(self, expected: Sequence[Expected]) -> list[Expected]:
        """`expected` in evaluation, as calls in training give it: what dropout keeps is scaled, all else may be 0."""
        return [kept(e, self.random[i]) if i in self.random else e for i, e in enumerate(expected)]

    def forms_in_training(self, forms: Sequence[Form]) -> list[Form]:
        """As `in_training`, without values."""
        return [kept_form(form, self.random[i]) if i in self.random else form for i, form in enumerate(forms)]

    @torch.no_grad()
    def outputs_in_training(self, data: Data) -> list[torch.Tensor]:
        """One call's outputs there, with whatever it draws; torch's generators stay as they were."""
        model = copied(self.model).train()
        devices = [data.inputs[0].device] if data.inputs and data.inputs[0].is_cuda else []
        with torch.random.fork_rng(devices):
            return self._outputs(model, data)

    def leads_to_all_outputs(self, leaves: Container[int | str], data: Data) -> bool:
        """Whether all differentiated outputs carry a gradient where these `leaves`, inputs by position and parameters
        by name, need one and no others."""
        assert self.differentiation is not None
        wanted = self.differentiation
        of_inputs = [i for i in wanted.inputs if i in leaves]
        return led_to(self.model, of_inputs, leaves, wanted.outputs, data.inputs) == list(wanted.outputs)

    def lets_outputs_be_overwritten(self, data: Data) -> bool:
        """Whether the backward of a training step gives the same once its outputs have been changed in place."""
        if self.differentiation is None:
            return False
        return needs_no_output(copied(self.model), self.differentiation, data.inputs)

    @torch.no_grad()
    def called(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs and gradients that a copy of the reference gives in its own dtype."""
        return outputs_of(replace(self, model=copied(self.model)).function()(*given))

    def takes(self, data: Data) -> bool:
        """Whether a copy of the reference can be called on them."""
        try:
            self.called(data.laid_out(self.case))
        except Exception as error:
            if out_of_memory(error):
                raise
            return False
        return True

    @torch.no_grad()
    def strides_of_results(self, data: Data, expected: Sequence[Expected]) -> list[tuple[int, ...]] | None:
        """How the outputs and gradients of a call lie where its inputs lie as the case has them; None where they are
        not those that are `expected`, or some lie in an input's own memory, or the reference fails."""
        given = data.laid_out(self.case)
        try:
            results = self.called(given)
            alike = len(results) == len(expected) and all(c.ok for c in compare_all(results, expected))
            alike &= {*map(_memory, results)}.isdisjoint(map(_memory, given))
        except Exception as error:
            if out_of_memory(error):
                raise
            return None
        return [result.stride() for result in results] if alike else None

    @torch.no_grad()
    def holds_in_evaluation(self, data: Data, expected: Sequence[Expected]) -> bool:
        """Whether the outputs in `expected` are right in evaluation: where they are random they were computed so, and
        elsewhere the reference must give them then. Nothing is asked of a submission where it does not, or fails."""
        if self.random:
            return True
        try:
            found = self._outputs(copied(self.model).eval(), data)
            outputs = self.of_part(expected, "forward")
            alike = len(found) == len(outputs) and all(map(has_form, found, (e.form for e in outputs)))
            return alike and all(comparison.ok for comparison in compare_all(found, outputs))
        except Exception as error:
            if out_of_memory(error):
                raise
            return False

    def runs_in_inference_mode(self, data: Data) -> bool:
        """Whether a call is possible there: one that differentiates on its way is not."""
        try:
            with torch.inference_mode():
                self._outputs(copied(self.model), data)
        except Exception as error:
            if out_of_memory(error):
                raise
            return False
        return True

    def _outputs(self, model: torch.nn.Module, data: Data) -> list[torch.Tensor]:
        """What a copy of the reference gives for copies of the inputs that lie as the case has them."""
        return outputs_of(model(*data.laid_out(self.case)[: len(data.inputs)]))

    @property
    def _stores(self) -> bool:
        """Whether results of operators are stored for a backward."""
        return self.differentiation is not None


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
