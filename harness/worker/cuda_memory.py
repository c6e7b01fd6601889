"""The worker's memory on a real GPU: the judge's arena is opened by IPC, outputs are exported by IPC."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from harness.device import driver
from harness.device.views import view_bytes
from harness.protocol.wire import ArenaRef, OutputRef, TensorRef
from harness.worker.memory import describe


class CudaMemory:
    def __init__(self) -> None:
        torch.cuda.init()
        torch.backends.cudnn.allow_tf32 = False  # convolutions in fp32 are judged and compared as that
        self.device = torch.device("cuda", torch.cuda.current_device())
        torch.empty(1, device=self.device)  # makes the primary context current for the driver calls
        self._handle = ""
        self._address = 0
        self._raw: torch.Tensor | None = None

    def tensor(self, arena: ArenaRef, ref: TensorRef) -> torch.Tensor:
        if arena.handle != self._handle:
            self._close_arena()
            self._address = driver.open_handle(arena.handle)
            self._handle = arena.handle
            self._raw = torch.as_tensor(driver.DeviceBytes(self._address, arena.nbytes), device=self.device)
        assert self._raw is not None
        return view_bytes(self._raw, ref)

    def rewritten(self, tensor: torch.Tensor, arena: ArenaRef, ref: TensorRef) -> None:
        pass  # a view shows it

    def export(self, tensors: Sequence[object], handles: dict[str, int]) -> list[OutputRef]:
        return [self._export(tensor, handles) for tensor in tensors]

    def _export(self, tensor: object, handles: dict[str, int]) -> OutputRef:
        ref = describe(tensor)
        if ref.device != "cuda" or not ref.address:
            return ref
        try:
            base, _ = driver.allocation_of(ref.address)
            handle = driver.export_handle(base)
        except driver.DriverError:
            return ref  # memory of somebody else's, such as an input: the judge says so
        place = handles.setdefault(handle, len(handles))
        return msgspec.structs.replace(ref, allocation=place, allocation_offset=ref.address - base)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def wake(self) -> None:
        event = torch.cuda.Event()
        event.record()
        event.synchronize()

    def poison(self, results: Sequence[TensorRef]) -> None:
        """Fill blocks of the results' sizes with NaN and free them: the caching allocator hands the block
        that was freed last to the next request of its size."""
        blocks = [torch.empty(ref.shape, dtype=getattr(torch, ref.dtype), device=self.device) for ref in results]
        for block in blocks:
            if block.dim() and block.numel():
                block.view(torch.uint8).fill_(0xFF)
        torch.cuda.synchronize()

    def unpoison(self) -> None:
        pass

    def release(self, *, everything: bool = False) -> None:
        self._close_arena()
        if everything:
            torch.cuda.empty_cache()
        else:
            self.trim()

    def trim(self) -> None:
        """Let go of what PyTorch keeps for later, also for graphs, where memory is scarce: what is timed together
        shares the device. The judge has let go of this memory before; to free what another process still has mapped
        is undefined (CUDA Runtime API, cudaIpcGetMemHandle)."""
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        if free_bytes < total_bytes // 2:
            torch.cuda.empty_cache()

    def _close_arena(self) -> None:
        self._raw = None
        if self._address:
            torch.cuda.synchronize()
            driver.close_handle(self._address)
        self._handle, self._address = "", 0
