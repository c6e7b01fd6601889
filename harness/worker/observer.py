"""What a device tells about an observed call beside its outputs: only the emulator tells anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from harness.protocol.wire import OutputRef, Run, TensorRef
from harness.records import Finding, KernelCounts


class Observer(Protocol):
    """Watches observed calls, one at a time."""

    def name(self, model: torch.nn.Module, inputs: Sequence[torch.Tensor], results: Sequence[TensorRef]) -> None:
        """The next call is `model` on `inputs` and gives `results`: what messages about their memory call them."""
        ...

    def begin(self, request: Run, inputs: Sequence[torch.Tensor]) -> None:
        """A call on `inputs` comes next."""
        ...

    def end(self, inputs: Sequence[torch.Tensor], result: Sequence[object]) -> None:
        """The call on `inputs` has returned `result`."""
        ...

    def copies(self, inputs: Sequence[torch.Tensor]) -> list[OutputRef]:
        """Where the device's own copies of `inputs` lie; none where it works on the judge's memory."""
        ...

    def take_findings(self) -> list[Finding]:
        """Defects seen since the last time."""
        ...

    def take_counts(self) -> list[KernelCounts]:
        """What each kernel did since the last time."""
        ...


class NoObserver:
    """For devices that tell nothing."""

    def name(self, model: torch.nn.Module, inputs: Sequence[torch.Tensor], results: Sequence[TensorRef]) -> None:
        pass

    def begin(self, request: Run, inputs: Sequence[torch.Tensor]) -> None:
        pass

    def end(self, inputs: Sequence[torch.Tensor], result: Sequence[object]) -> None:
        pass

    def copies(self, inputs: Sequence[torch.Tensor]) -> list[OutputRef]:
        return []

    def take_findings(self) -> list[Finding]:
        return []

    def take_counts(self) -> list[KernelCounts]:
        return []
