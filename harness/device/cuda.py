"""A real GPU. The judge owns the inputs and reads the workers' outputs, both through CUDA IPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from harness.device import driver
from harness.device.arena import Arena
from harness.errors import HarnessError, SubmissionError
from harness.wire import ArenaRef, OutputRef

# Small copies leave part of what they wrote in the cache and look slow to start: at 1 GiB an H200 shows 3.8
# TB/s, at 4 GiB and above its 4.2 to 4.3.
COPY_BYTES = 4 << 30
COPY_REPEATS = 7


class _DeviceAllocation:
    """An allocation of its own, never a neighbour of an expected value."""

    def __init__(self) -> None:
        self._address = 0

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def provide(self, nbytes: int) -> tuple[torch.Tensor, ArenaRef]:
        if self._address:
            torch.cuda.synchronize()
            driver.free(self._address)
        try:
            self._address = driver.allocate(nbytes)
            handle = driver.export_handle(self._address)
        except driver.DriverError as error:
            raise HarnessError(f"The judge could not share {nbytes / 2**30:.2f} GiB of GPU memory: {error}.") from error
        raw = torch.as_tensor(driver.DeviceBytes(self._address, nbytes), device="cuda")
        return raw, ArenaRef(nbytes=nbytes, handle=handle)


class CudaReader:
    """Maps a worker's allocations, each once, and reads them in place."""

    def __init__(self) -> None:
        self._mapped: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self.opened = 0

    def _address(self, ref: OutputRef, handles: Sequence[str]) -> int:
        if not 0 <= ref.allocation < len(handles):
            raise SubmissionError("bad_output", "The output names no allocation that the judge could open.")
        handle = handles[ref.allocation]
        if handle not in self._mapped:
            try:
                self._mapped[handle] = driver.open_handle(handle)
            except (driver.DriverError, ValueError) as error:
                message = f"The output's memory cannot be opened: {error}."
                raise SubmissionError("bad_output", message) from error
            _, self._sizes[handle] = driver.allocation_of(self._mapped[handle])
            self.opened += 1
        return self._mapped[handle] + ref.allocation_offset

    def read(self, ref: OutputRef, handles: Sequence[str]) -> torch.Tensor:
        dtype = getattr(torch, ref.dtype)
        if 0 in ref.shape:
            return torch.empty(ref.shape, dtype=dtype, device="cuda")
        address = self._address(ref, handles)
        span = 1 + sum((size - 1) * step for size, step in zip(ref.shape, ref.stride, strict=True))
        self._require_inside(address, span * dtype.itemsize)
        raw = torch.as_tensor(driver.DeviceBytes(address, span * dtype.itemsize), device="cuda")
        return raw.view(dtype).as_strided(ref.shape, ref.stride)

    def _require_inside(self, address: int, nbytes: int) -> None:
        try:
            base, size = driver.allocation_of(address)
        except driver.DriverError as error:
            raise SubmissionError("bad_output", f"The output's memory cannot be read: {error}.") from error
        if not base <= address <= address + nbytes <= base + size:
            raise SubmissionError("bad_output", "The output reaches beyond its allocation.")

    def sample(
        self, refs: Sequence[OutputRef], handles: Sequence[str], offsets: np.ndarray, dtype: torch.dtype
    ) -> np.ndarray:
        """One gather for all: a flat view over the address range that the mappings span."""
        size = dtype.itemsize
        if not offsets.size:
            return np.zeros(offsets.shape)
        starts = np.array([self._address(ref, handles) for ref in refs], dtype=np.int64)
        inside = np.array([ref.allocation_offset for ref in refs])[:, None] + offsets * size
        ends = np.array([self._sizes[handles[ref.allocation]] for ref in refs])[:, None]
        if (inside < 0).any() or (inside + size > ends).any():
            raise SubmissionError("bad_output", "The output reaches beyond its allocation.")
        addresses = starts[:, None] + offsets * size
        low = int(addresses.min())
        span = int(addresses.max()) - low + size
        flat = torch.as_tensor(driver.DeviceBytes(low, span), device="cuda").view(dtype)
        index = torch.from_numpy((addresses - low) // size).to("cuda", non_blocking=True)
        return flat[index].cpu().double().numpy()

    def forget(self) -> None:
        torch.cuda.synchronize()
        for address in self._mapped.values():
            driver.close_handle(address)
        self._mapped.clear()
        self._sizes.clear()


class CudaDevice:
    name = "cuda"
    can_time = True
    is_cpu = False
    round_us = 5_000.0
    spin_s = 0.2
    # Copies reach 85 to 92% of what data sheets promise: 4.26 of 4.8 TB/s on an H200.
    headroom = 1.2

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise HarnessError(
                "--device cuda was asked for, and torch sees no GPU here. Check nvidia-smi and that torch is a CUDA "
                "build (eval.py env shows it), or use --device emulator."
            )
        torch.cuda.init()
        torch.empty(1, device="cuda")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self.arena = Arena(_DeviceAllocation())
        properties = torch.cuda.get_device_properties(self.torch_device)
        # Three contenders hold a round's results each, beside the slots and the judge's own data.
        self.input_bytes = self.result_bytes = min(8 << 30, properties.total_memory // 16)
        self.cache_bytes = properties.L2_cache_size

    def reader(self, pid: int) -> CudaReader:
        return CudaReader()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def copy_bandwidth(self) -> float:
        source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
        target = torch.zeros_like(source)
        times = []
        for _ in range(COPY_REPEATS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            target.copy_(source)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return 2 * COPY_BYTES / float(np.median(times))

    def describe(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "name": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "cache_bytes": self.cache_bytes,
        }
