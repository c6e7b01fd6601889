"""What the judge needs of a device; one implementation a file beside this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from harness.device.arena import Arena
from harness.device.bandwidth import Bandwidth
from harness.device.nvml import Seen
from harness.device.turns import Turns
from harness.protocol.wire import OutputRef


class Reader(Protocol):
    """Reads a worker's memory without its help."""

    def read(self, ref: OutputRef, handles: Sequence[str]) -> torch.Tensor:
        """The whole tensor, on the judge's device; `handles` are the reply's. It may be a view of the worker's memory.

        Raises SubmissionError when the memory cannot be read."""
        ...

    def copy(self, ref: OutputRef, handles: Sequence[str]) -> torch.Tensor:
        """As `read`, and never a view."""
        ...

    def read_at(
        self, address: int, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor | None:
        """A copy of what lies at `address` of the worker, on the judge's device, taken for a tensor of that form; None
        where that memory is not known or cannot be read."""
        ...

    def learn(self, refs: Sequence[OutputRef], handles: Sequence[str]) -> bool:
        """Make the memory that `refs` lie in readable; whether all of it was so before, under the same handles.

        Raises SubmissionError when the memory cannot be opened."""
        ...

    def sample(self, addresses: np.ndarray, offsets: np.ndarray, dtype: torch.dtype) -> np.ndarray:
        """Elements of `dtype` at `offsets` (in elements, one row for each of `addresses`), as float64 of that shape;
        NaN where the memory is not known. Raises SubmissionError when it cannot be read."""
        ...

    def warm_up(self) -> None:
        """Do once more what the last `sample` did where that takes longer after a pause, and show it to nobody."""
        ...

    def forget(self) -> None:
        """Close mappings before the worker frees what they show."""
        ...


class Device(Protocol):
    """A place where kernels run."""

    name: str
    torch_device: torch.device
    """Where the judge itself computes references and comparisons."""
    can_time: bool
    is_cpu: bool
    """Whether kernels run on the processor, emulated or not."""
    arena: Arena
    turns: Turns
    """Whose turn it is, among all runs on this machine."""
    cache_bytes: int
    flush_bytes: int
    """After so many were written nothing else is in the cache."""
    spin_s: float
    """How long the judge waits for a round's reply without sleeping."""
    input_bytes: int
    """How much memory the inputs of one round may take."""
    result_bytes: int
    """How much memory workers may take in all for what they keep of rounds: outputs, or those of CUDA graphs."""
    worker_bytes: int
    """How much of that each needs beside outputs."""

    def reader(self, pid: int) -> Reader: ...

    def synchronize(self) -> None: ...

    def wait_until_idle(self, limit_s: float) -> float:
        """Wait until the device works for nobody else, for `limit_s` at the most. Returns the seconds, 0.0 where it was
        idle."""
        ...

    def look(self) -> Seen | None:
        """In which state it is now, and who uses it; None where nobody tells."""
        ...

    def free_bytes(self) -> int:
        """How much memory nobody has taken."""
        ...

    def has_room(self) -> bool:
        """Whether all buffers and results that a case may have would find free memory, whatever is kept of others."""
        ...

    def trim(self) -> None:
        """Give back what this process keeps of freed memory for later, where it is much: contenders need it."""
        ...

    def is_filled(self) -> bool:
        """Whether at least half of its own memory is taken, and not by this process: ask when no submission is on it.
        False where that is the machine's memory, which harness.memory watches."""
        ...

    def bandwidth(self) -> Bandwidth:
        """How fast its memory is; measured now."""
        ...

    def describe(self) -> dict[str, Any]: ...

    def close(self) -> None:
        """Give up its own memory, the arena's too. Whoever has opened the device calls this; nothing else follows."""
        ...
