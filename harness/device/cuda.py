"""A real GPU. The judge owns the inputs and reads the workers' outputs, both through CUDA IPC."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.device import bandwidth, driver, nvml
from harness.device.arena import Arena
from harness.device.bandwidth import Bandwidth
from harness.device.nvml import NoNvml, Seen
from harness.device.turns import PROCESSORS, Turns
from harness.device.views import span
from harness.errors import HarnessError, SubmissionError
from harness.protocol.wire import ArenaRef, OutputRef
from harness.reasons import Reason

# Small copies leave part of what they wrote in the cache and look slow to start: at 1 GiB an H200 shows 3.8
# TB/s, at 4 GiB and above its 4.2 to 4.3.
COPY_BYTES = 4 << 30

# What finds out whether the device is idle: fills of twice the cache, and how much longer they take where it is not.
PROBE_FILLS, IDLE_PROBES, BUSY_TIMES = 10, 20, 2


class _DeviceAllocation:
    """An allocation of its own, never a neighbour of an expected value."""

    def __init__(self) -> None:
        self._address = 0

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def free(self) -> None:
        if self._address:
            torch.cuda.synchronize()
            driver.free(self._address)
            self._address = 0

    def provide(self, nbytes: int) -> tuple[torch.Tensor, ArenaRef]:
        self.free()
        try:
            self._address = driver.allocate(nbytes)
            handle = driver.export_handle(self._address)
        except driver.DriverError as error:
            raise HarnessError(f"The judge could not share {nbytes / 2**30:.2f} GiB of GPU memory: {error}.") from error
        raw = torch.as_tensor(driver.DeviceBytes(self._address, nbytes), device="cuda")
        return raw, ArenaRef(nbytes=nbytes, handle=handle)


@dataclass(frozen=True)
class _Mapping:
    """A worker's allocation as the judge sees it: its IPC handle, its address here, and its size in bytes."""

    handle: str
    address: int
    size: int


class CudaReader:
    """Maps a worker's allocations, each once, and reads them in place."""

    def __init__(self) -> None:
        self._mappings: dict[int, _Mapping] = {}  # by where the worker has them
        self._sampled: tuple[np.ndarray, np.ndarray, torch.dtype] | None = None
        self._index()

    def _index(self) -> None:
        """The mappings as arrays: where they begin in the worker, ascending; where they begin here, and their sizes."""
        self._bases = np.array(sorted(self._mappings), dtype=np.int64)
        found = [self._mappings[base] for base in self._bases.tolist()]
        self._starts = np.array([mapping.address for mapping in found], dtype=np.int64)
        self._sizes = np.array([mapping.size for mapping in found], dtype=np.int64)

    def learn(self, refs: Sequence[OutputRef], handles: Sequence[str]) -> bool:
        known = True
        for ref in refs:
            if not ref.address:
                continue
            if not 0 <= ref.allocation < len(handles):
                raise SubmissionError(
                    Reason.BAD_OUTPUT,
                    "An output lies in memory that is not the submission's own, such as an input; return a new tensor.",
                )
            base, handle = ref.address - ref.allocation_offset, handles[ref.allocation]
            old = self._mappings.get(base)
            if old is None or old.handle != handle:
                self._map(base, handle)
                known = False
        if not known:
            self._index()
        return known

    def _map(self, base: int, handle: str) -> None:
        # A handle that moved, or whose place was taken, is of memory that was freed.
        stale = [b for b, mapping in self._mappings.items() if b == base or mapping.handle == handle]
        for old in stale:
            driver.close_handle(self._mappings.pop(old).address)
        try:
            address = driver.open_handle(handle)
            _, size = driver.allocation_of(address)
        except (driver.DriverError, ValueError) as error:
            raise SubmissionError(Reason.BAD_OUTPUT, f"The output's memory cannot be opened: {error}.") from error
        self._mappings[base] = _Mapping(handle, address, size)

    def read(self, ref: OutputRef, handles: Sequence[str]) -> torch.Tensor:
        dtype = getattr(torch, ref.dtype)
        if 0 in ref.shape:
            return torch.empty(ref.shape, dtype=dtype, device="cuda")
        self.learn([ref], handles)
        mapping = self._mappings[ref.address - ref.allocation_offset]
        nbytes = span(ref.shape, ref.stride) * dtype.itemsize
        if not 0 <= ref.allocation_offset <= mapping.size - nbytes:
            raise SubmissionError(Reason.BAD_OUTPUT, "The output reaches beyond its allocation.")
        address = mapping.address + ref.allocation_offset
        raw = torch.as_tensor(driver.DeviceBytes(address, nbytes), device="cuda")
        return raw.view(dtype).as_strided(ref.shape, ref.stride)

    def copy(self, ref: OutputRef, handles: Sequence[str]) -> torch.Tensor:
        return self.read(ref, handles).clone()

    def read_at(
        self, address: int, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor | None:
        if 0 in shape:
            return torch.empty(tuple(shape), dtype=dtype, device="cuda")
        place = int(np.searchsorted(self._bases, address, side="right")) - 1
        nbytes = span(shape, stride) * dtype.itemsize
        if place < 0 or address - self._bases[place] + nbytes > self._sizes[place]:
            return None
        start = int(self._starts[place] + address - self._bases[place])
        raw = torch.as_tensor(driver.DeviceBytes(start, nbytes), device="cuda").clone()
        return raw.view(dtype).as_strided(tuple(shape), tuple(stride))

    def sample(self, addresses: np.ndarray, offsets: np.ndarray, dtype: torch.dtype) -> np.ndarray:
        """One gather for all: a flat view over the address range that the mappings span."""
        self._sampled = addresses, offsets, dtype
        size = dtype.itemsize
        if not offsets.size or not len(self._bases):
            return np.full(offsets.shape, np.nan)
        place = np.searchsorted(self._bases, addresses, side="right") - 1
        inside = (addresses - self._bases[place])[:, None] + offsets * size
        known = (place >= 0)[:, None] & (inside >= 0) & (inside + size <= self._sizes[place][:, None])
        if not known.all():
            return np.full(offsets.shape, np.nan)
        wanted = self._starts[place][:, None] + inside
        low = int(wanted.min())
        span = int(wanted.max()) - low + size
        flat = torch.as_tensor(driver.DeviceBytes(low, span), device="cuda").view(dtype)
        index = torch.from_numpy((wanted - low) // size).to("cuda", non_blocking=True)
        return flat[index].cpu().double().numpy()

    def warm_up(self) -> None:
        """What the processor does in `sample` before it asks the GPU takes 22 µs in a loop. After a pause it took 100
        to 170 on the machine with the H200, not the same from evaluation to evaluation."""
        if self._sampled:
            self.sample(*self._sampled)

    def forget(self) -> None:
        self._sampled = None
        torch.cuda.synchronize()
        for mapping in self._mappings.values():
            driver.close_handle(mapping.address)
        self._mappings.clear()
        self._index()


def _elapsed_s(work: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


class CudaDevice:
    name = "cuda"
    can_time = True
    is_cpu = False
    worker_bytes = 640 << 20  # a context; 0.5 to 0.6 GiB on an H100
    spin_s = 0.2

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise HarnessError(
                "--device cuda was asked for, and torch sees no GPU here. Check nvidia-smi and that torch is a CUDA "
                "build (eval.py env shows it), or use --device emulator."
            )
        torch.cuda.init()
        torch.backends.cudnn.allow_tf32 = False  # as in workers
        torch.empty(1, device="cuda")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self._allocation = _DeviceAllocation()
        self.arena = Arena(self._allocation)
        properties = torch.cuda.get_device_properties(self.torch_device)
        # torch has had the UUID since 2.4, which names a GPU whatever CUDA_VISIBLE_DEVICES leaves of the others.
        name = f"cuda-{getattr(properties, 'uuid', self.torch_device.index)}"
        self.turns = Turns(name, needs=PROCESSORS)  # who is timed on all of them would keep a GPU's callers waiting
        # What is left is for the judge's own data, some 10 GiB beside long rows, and for what calls need meanwhile.
        self.input_bytes = properties.total_memory // 8
        self.result_bytes = properties.total_memory // 3 * 2
        self.kept_bytes = properties.total_memory // 32
        self.cache_bytes = properties.L2_cache_size
        self.flush_bytes = 2 * self.cache_bytes
        self._probed = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")
        self._watch: nvml.Watch | None = None
        with contextlib.suppress(NoNvml):  # the environment of the results says it
            self._watch = nvml.open_watch(self.torch_device)
        self._idle_probe_s = min(self._probe_s() for _ in range(IDLE_PROBES))

    def reader(self, pid: int) -> CudaReader:
        return CudaReader()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def wait_until_idle(self, limit_s: float) -> float:
        """A GPU gives the contexts of processes turns of some 2 ms, so that a short piece of work that had to wait for
        its turn shows another's. On an H200 the probe took 0.40 to 0.44 ms, and beside a kernel of another process
        1.4 to 2.8 ms."""
        started = time.perf_counter()
        busy = False
        while self._probe_s() > BUSY_TIMES * self._idle_probe_s:
            busy = True
            if time.perf_counter() - started > limit_s:
                break
        return time.perf_counter() - started if busy else 0.0

    def look(self) -> Seen | None:
        return self._watch.look() if self._watch else None

    def _probe_s(self) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for number in range(PROBE_FILLS):
            self._probed.fill_(number)
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def free_bytes(self) -> int:
        return torch.cuda.mem_get_info(self.torch_device)[0]

    def has_room(self) -> bool:
        """Asked while a case still holds all that is its own: after most large ones there is none."""
        return self.free_bytes() >= self.input_bytes + self.result_bytes

    def trim(self) -> None:
        """Expected results in float64 are many times larger than a call's, and PyTorch keeps their memory."""
        kept_bytes = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        if kept_bytes > self.kept_bytes:
            torch.cuda.empty_cache()

    def is_filled(self) -> bool:
        free, total = torch.cuda.mem_get_info(self.torch_device)
        return total - free - torch.cuda.memory_reserved(self.torch_device) >= total / 2

    def bandwidth(self) -> Bandwidth:
        measured = bandwidth.measure(self.torch_device, COPY_BYTES, self.flush_bytes, _elapsed_s)
        torch.cuda.empty_cache()  # workers need the memory
        return measured

    def close(self) -> None:
        """A process judges on a device again and again: each evaluation of a lane, each problem of a run."""
        self.turns.close()
        self._allocation.free()
        self._probed = torch.empty(0, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "name": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "cache_bytes": self.cache_bytes,
        }
