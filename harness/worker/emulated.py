"""The emulated device in a worker: its memory, and what it observes. Needs the emulator to be active."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.device import emulator
from harness.device.views import as_it_lies
from harness.protocol.testimony import Witness
from harness.protocol.wire import ArenaRef, Load, OutputRef, Run, TensorRef
from harness.records import Finding, KernelCounts
from harness.worker.memory import HostMemory, Memory
from harness.worker.naming import names_of


class EmulatedMemory(HostMemory):
    """Tensors are copies in emulated device memory. The emulator guards its bounds and poisons it."""

    def __init__(self, arena_fd: int) -> None:
        super().__init__(arena_fd)
        self.device = torch.device("cuda", 0)

    def tensor(self, arena: ArenaRef, ref: TensorRef) -> torch.Tensor:
        source = as_it_lies(super().tensor(arena, ref))
        lead = ref.offset % 16 // source.element_size()  # keeps the alignment that the case asked for
        storage = torch.empty(lead + len(source), dtype=source.dtype, device=self.device)
        storage[lead:].copy_(source)
        return storage.as_strided(ref.shape, ref.stride, lead)

    def rewritten(self, tensor: torch.Tensor, arena: ArenaRef, ref: TensorRef) -> None:
        as_it_lies(tensor).copy_(as_it_lies(super().tensor(arena, ref)))

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def poison(self, results: Sequence[TensorRef]) -> None:
        pass

    def unpoison(self) -> None:
        pass


class EmulatorObserver:
    """Runs blocks in the order asked for, with races checked where `check` says so, and collects what was seen.

    What the caller reads and writes counts, too: a kernel may still run on another stream."""

    def __init__(self, memory: Memory, witness: Witness, load: Load) -> None:
        emulator.testify(witness.descriptor)
        emulator.name_lines()
        self._memory = memory
        self._check, self._kernel_s = load.check, load.kernel_s

    def name(self, model: torch.nn.Module, inputs: Sequence[torch.Tensor], results: Sequence[TensorRef]) -> None:
        names = ["the output"] if len(results) == 1 else [f"result {position}" for position in range(len(results))]
        forms = [(tuple(ref.shape), getattr(torch, ref.dtype)) for ref in results]
        emulator.name_by_size(dict(zip(names, forms, strict=True)))
        emulator.name(names_of(model, inputs))

    def begin(self, request: Run, inputs: Sequence[torch.Tensor]) -> None:
        emulator.configure(order=request.order, seed=request.order_seed, check=self._check, timeout_s=self._kernel_s)
        emulator.caller_writes(inputs)

    def end(self, inputs: Sequence[torch.Tensor], result: Sequence[object]) -> None:
        emulator.caller_reads(result)
        emulator.caller_writes(inputs)

    def copies(self, inputs: Sequence[torch.Tensor]) -> list[OutputRef]:
        return self._memory.export(inputs, {})

    def take_findings(self) -> list[Finding]:
        return emulator.take_findings()

    def take_counts(self) -> list[KernelCounts]:
        return emulator.take_counts()
