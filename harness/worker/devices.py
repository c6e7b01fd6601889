"""What a worker needs of each device: its memory and its observer, chosen here."""

from __future__ import annotations

from harness.protocol.testimony import Witness
from harness.protocol.wire import Load
from harness.worker.memory import HostMemory, Memory
from harness.worker.observer import NoObserver, Observer


def open_memory(device: str, arena_fd: int) -> Memory:
    """Reach the device: a CUDA context, emulated memory, or the host's."""
    if device == "cuda":
        from harness.worker.cuda_memory import CudaMemory

        return CudaMemory()
    if device == "emulator":
        from harness.worker.emulated import EmulatedMemory

        return EmulatedMemory(arena_fd)
    return HostMemory(arena_fd)


def observer(device: str, memory: Memory, witness: Witness, load: Load) -> Observer:
    """Who watches calls on tensors of `memory` and tells `witness`, as `load` says."""
    if device == "emulator":
        from harness.worker.emulated import EmulatorObserver

        return EmulatorObserver(memory, witness, load)
    return NoObserver()
