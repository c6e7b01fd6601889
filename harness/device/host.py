"""Devices whose memory is the machine's own: the CPU, and the CUDA emulator that runs on it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import memory
from harness.device import bandwidth
from harness.device.arena import Arena
from harness.device.bandwidth import Bandwidth
from harness.device.memory_file import MemoryFile
from harness.device.nvml import Seen
from harness.device.turns import PROCESSORS, Turns
from harness.device.views import span
from harness.errors import HarnessError, SubmissionError
from harness.memory import keep_freed
from harness.protocol.wire import ArenaRef, OutputRef
from harness.reasons import Reason

_IOV_MAX = 1024

# A child that is only there to be read lives no longer than this.
CHILD_S = 60

_PROCESSORS = Path("/sys/devices/system/cpu")

COPY_BYTES = 256 << 20


class _MappedFile:
    """The memory file as an arena's backing."""

    def __init__(self, file: MemoryFile) -> None:
        self._file = file

    def synchronize(self) -> None:
        pass  # copies on the CPU have happened when they return

    def provide(self, nbytes: int) -> tuple[torch.Tensor, ArenaRef]:
        size = self._file.grow(nbytes)
        return torch.frombuffer(mmap.mmap(self._file.fd, size), dtype=torch.uint8), ArenaRef(nbytes=size)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class ProcessReader:
    """Reads another process's memory with process_vm_readv(2)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._libc = ctypes.CDLL(None, use_errno=True)

    def read(self, ref: OutputRef, handles: Sequence[str]) -> torch.Tensor:
        dtype = getattr(torch, ref.dtype)
        raw = torch.empty(span(ref.shape, ref.stride), dtype=dtype)
        if raw.numel():
            self._read([(raw.data_ptr(), raw.nbytes)], [(ref.address, raw.nbytes)])
        return raw.as_strided(ref.shape, ref.stride)

    copy = read

    def read_at(
        self, address: int, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor | None:
        name = str(dtype).removeprefix("torch.")
        ref = OutputRef(address, list(shape), list(stride), name, "cpu", "torch.Tensor")
        with contextlib.suppress(SubmissionError):
            return self.read(ref, [])
        return None

    def learn(self, refs: Sequence[OutputRef], handles: Sequence[str]) -> bool:
        return True  # all of the process can be read

    def sample(self, addresses: np.ndarray, offsets: np.ndarray, dtype: torch.dtype) -> np.ndarray:
        size = dtype.itemsize
        wanted = (addresses[:, None] + offsets * size).reshape(-1)
        raw = torch.empty(len(wanted), dtype=dtype)
        for start in range(0, len(wanted), _IOV_MAX):
            part = wanted[start : start + _IOV_MAX]
            local = [(raw.data_ptr() + start * size, len(part) * size)]
            self._read(local, [(int(address), size) for address in part])
        return raw.double().numpy().reshape(offsets.shape)

    def warm_up(self) -> None:
        pass  # what was read may have been freed, and what reading costs is little beside a round of a CPU's

    def forget(self) -> None:
        pass

    def _read(self, local: list[tuple[int, int]], remote: list[tuple[int, int]], *, on_trial: bool = False) -> None:
        wanted = sum(length for _, length in local)
        got = self._libc.process_vm_readv(
            self._pid,
            (_IoVec * len(local))(*(_IoVec(*piece) for piece in local)),
            ctypes.c_ulong(len(local)),
            (_IoVec * len(remote))(*(_IoVec(*piece) for piece in remote)),
            ctypes.c_ulong(len(remote)),
            ctypes.c_ulong(0),
        )
        if got == wanted:
            return
        error = ctypes.get_errno()
        if got < 0 and error in (errno.EPERM, errno.ENOSYS) and not on_trial and not _children_can_be_read():
            raise HarnessError(
                f"The judge may not read a worker's memory ({os.strerror(error)}). It needs process_vm_readv on "
                "its own children: allow it in the container's seccomp profile and keep "
                "kernel.yama.ptrace_scope at 0 or 1."
            )
        raise SubmissionError(Reason.BAD_OUTPUT, "The output lies in memory that cannot be read.")


def _children_can_be_read() -> bool:
    """Whether the system lets this process read a child that hides nothing; a worker can close its memory itself."""
    with subprocess.Popen(["sleep", str(CHILD_S)]) as child:
        try:
            first = int(Path(f"/proc/{child.pid}/maps").read_text().partition("-")[0], 16)
            byte = ctypes.create_string_buffer(1)
            ProcessReader(child.pid)._read([(ctypes.addressof(byte), 1)], [(first, 1)], on_trial=True)
        except (OSError, ValueError, SubmissionError):
            return False
        finally:
            child.kill()
    return True


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _last_level_caches() -> int:
    """Bytes of the largest caches of all processors, each counted once for those that share it; 32 MiB where the system
    does not say."""
    sizes = {
        (path / "shared_cpu_list").read_text(): int((path / "size").read_text().rstrip("K\n")) << 10
        for path in _PROCESSORS.glob("cpu[0-9]*/cache/index*")
        if (path / "size").exists()
    }
    largest = max(sizes.values(), default=32 << 20)
    return max(largest, sum(size for size in sizes.values() if size == largest))


def _elapsed_s(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class HostDevice:
    """`cpu`: C++ submissions run natively. `emulator`: CUDA submissions run, and are never timed."""

    torch_device = torch.device("cpu")
    is_cpu = True
    spin_s = 0.0
    input_bytes = 320 << 20
    result_bytes = 4 << 30
    worker_bytes = 0

    def __init__(self, name: str, memory: MemoryFile) -> None:
        self.name = name
        self.can_time = name == "cpu"
        self.arena = Arena(_MappedFile(memory))
        self.turns = Turns(PROCESSORS)
        self.cache_bytes = _last_level_caches()
        # Reading 64 MiB took as long after a fill of half of a cache of 480 MiB as after one of four times that.
        self.flush_bytes = self.cache_bytes
        keep_freed()  # each round draws its inputs anew

    def reader(self, pid: int) -> ProcessReader:
        return ProcessReader(pid)

    def synchronize(self) -> None:
        pass

    def wait_until_idle(self, limit_s: float) -> float:
        return 0.0  # what works on processors are processes, and those are stopped

    def look(self) -> Seen | None:
        return None  # what others use of processors is measured: harness.timing.background_load

    def free_bytes(self) -> int:
        return memory.free_bytes()

    def has_room(self) -> bool:
        return True  # freed memory is the machine's again

    def trim(self) -> None:
        pass

    def is_filled(self) -> bool:
        return False

    def close(self) -> None:
        self.turns.close()  # the file of the arena is its maker's

    def bandwidth(self) -> Bandwidth:
        return bandwidth.measure(self.torch_device, COPY_BYTES, self.flush_bytes, _elapsed_s)

    def describe(self) -> dict[str, Any]:
        return {"name": _cpu_name(), "threads": torch.get_num_threads(), "cache_bytes": self.cache_bytes}
