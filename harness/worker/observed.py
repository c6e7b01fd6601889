"""Observed calls: one at a time, outputs poisoned before, with what the device tells about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from harness.protocol.wire import Ran, Reply, Run
from harness.surroundings import kept, require_of_this_mode
from harness.worker.memory import Memory
from harness.worker.observer import Observer
from harness.worker.staged import Staged

_GRAD_MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


class ObservedCalls:
    """Calls that nobody times."""

    def __init__(
        self, staged: Staged, memory: Memory, observer: Observer, take_forbidden: Callable[[], list[str]]
    ) -> None:
        """`take_forbidden` gives the forbidden operators that were called since the last time."""
        self._staged = staged
        self._memory = memory
        self._observer = observer
        self._take_forbidden = take_forbidden
        self._random_states: list[torch.Tensor] = []

    def run(self, request: Run) -> Reply:
        """One call, and all that is known about it. Raises what the call raises, SettingChanged, NotOfThisMode, and
        TypeError for an output that is no dense tensor."""
        inputs = self._staged.buffers[request.buffer]
        self._staged.outputs = []
        if request.rewritten:
            self._staged.rewritten(request.buffer)
        result = self._call(request, inputs)
        handles: dict[str, int] = {}
        outputs = self._memory.export(result, handles)
        # As a program may that goes on with views of them: who counts references to its tensors sees none.
        views = [output.detach() for output in result]
        self._staged.outputs = [views]
        if request.keeps:
            self._staged.kept.append(views)
        return Ran(
            outputs=outputs,
            handles=list(handles),
            inputs=self._observer.copies(inputs),
            forbidden=self._take_forbidden(),
            findings=self._observer.take_findings(),
            counts=self._observer.take_counts(),
        )

    def _call(self, request: Run, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        call, model = self._staged.call, self._staged.model
        assert call is not None and model is not None
        if request.random_seed is not None:
            torch.manual_seed(request.random_seed)
        if request.random_state == "kept":
            self._random_states = [generator.get_state() for generator in self._generators()]
        elif request.random_state == "set_back":
            for generator, state in zip(self._generators(), self._random_states, strict=True):
                generator.set_state(state)
        self._memory.poison(self._staged.results)
        self._observer.name(model, inputs, self._staged.results)
        self._observer.begin(request, inputs)
        try:
            mode = request.mode or ("grad" if self._staged.gradients else "no_grad")
            with _GRAD_MODES[mode](), kept(model):
                result = call(inputs)
                if not self._staged.infers:
                    require_of_this_mode(result)
        except TypeError:
            self._staged.require_fit(inputs)
            raise
        finally:
            self._memory.unpoison()
        self._observer.end(inputs, result)
        return result

    def _generators(self) -> list[torch.Generator]:
        """Those that random numbers are drawn from where no other is named."""
        of_device = torch.cuda.default_generators if self._memory.device.type == "cuda" else ()
        return [torch.default_generator, *of_device]
