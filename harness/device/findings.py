"""What a device saw a kernel do: defects that reject, and counts that explain. Plain values, no imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One defect. `kind` is a reason such as `data_race`, `out_of_bounds`, `uninitialised_read`,
    `divergent_barrier`, `bad_launch`, `endless_kernel`, `misaligned_access`, `host_pointer`, `forbidden_op`.

    `launch` counts the process's kernel launches from 1; `block` and `thread` are CUDA coordinates (x, y, z), None
    where nobody knows whose access it was.
    """

    kind: str
    message: str
    kernel: str = ""
    launch: int = 0
    file: str = ""
    line: int = 0
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class KernelCounts:
    """What one kernel did over the launches since the last reading. Counts, never times."""

    kernel: str
    launches: int
    global_read_bytes: int = 0
    global_write_bytes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    bank_conflicts: int = 0
    worst_bank_conflict: int = 0
    worst_bank_conflict_line: int = 0
    atomics: int = 0
    barriers: int = 0
    not_followed_bytes: int = 0
    """Accesses to tensors so large that data races in them were not looked for."""
