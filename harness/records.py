"""What a compiler said of a kernel, a device saw it do, and what held a GPU's clocks down: one record each, from where
it is made to the report.

Records cross from a worker to the judge, who decodes them strictly: names are printable, numbers fit an address.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from harness.reasons import Reason

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Symbol = Annotated[str, Meta(pattern="^[^\\x00-\\x1f\\x7f-\\x9f]*\\Z", max_length=4000)]
Label = Annotated[str, Meta(pattern="^[^\\x00-\\x1f\\x7f-\\x9f]*\\Z", max_length=80)]


class Place(Struct, frozen=True):
    """A place in a source that a message is about. Columns count bytes of UTF-8 from 1; 0 stands for what is not
    known."""

    file: Symbol
    """Without its folder."""
    line: Natural
    column: Natural = 0
    end_column: Natural = 0
    """Of the first byte behind it."""
    label: Label = ""
    """What happens there, in a word or a few."""


class Finding(Struct, frozen=True):
    """One defect that a device saw.

    `launch` counts the process's kernel launches from 1; `block` and `thread` are CUDA coordinates (x, y, z), None
    where nobody knows whose access it was.
    """

    kind: Reason
    message: str
    kernel: Symbol = ""
    launch: int = 0
    file: Symbol = ""
    line: int = 0
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    access: Label = ""
    """"reads" or "writes", where the defect is one access."""
    other_line: Natural = 0
    """Of the access that it conflicts with, in the same file; 0 where there is none or its line is not known."""
    other_access: Label = ""
    """What that one did: "wrote" or "read"."""


class KernelCounts(Struct, frozen=True, kw_only=True):
    """What one kernel did over the launches since the last reading: counts, never times.

    A counter is a field here and a number that the emulator's runtime (csrc/runtime/counts.cpp) gives under its name.
    """

    kernel: Symbol
    """Its name."""
    launches: Natural
    """How often it was launched."""
    global_read_bytes: Natural = 0
    """That its threads read from global memory, the same bytes as often as they were read."""
    global_write_bytes: Natural = 0
    """That they wrote there."""
    sectors: Natural = 0
    """32-byte sectors that the accesses of a warp touch."""
    ideal_sectors: Natural = 0
    """The fewest that the same bytes need."""
    bank_conflicts: Natural = 0
    """Extra passes over shared memory, as lanes of a warp wanted several words of one bank."""
    worst_bank_conflict: Natural = 0
    """The most passes that one access of a warp took."""
    worst_bank_conflict_line: Natural = 0
    """That access's line; 0 where there is none."""
    atomics: Natural = 0
    """Atomic operations, of each thread."""
    barriers: Natural = 0
    """How often the threads of a block were all at a barrier."""
    not_followed_bytes: Natural = 0
    """Accesses in which data races were not looked for: to very large tensors, or after a million flags."""


class KernelResources(Struct, frozen=True):
    """The compiler's report for one kernel."""

    kernel: Symbol
    """Its name, with its template arguments."""
    registers: Natural
    """Of a thread."""
    shared_bytes: Natural
    """Static shared memory of a block."""
    spill_store_bytes: Natural
    """That a thread stores since registers are short."""
    spill_load_bytes: Natural
    """That it loads back."""

    @property
    def spilled_bytes(self) -> int:
        """Stored and loaded."""
        return self.spill_store_bytes + self.spill_load_bytes


class ClockLimit(StrEnum):
    """What held a GPU's clocks down. NVML Reference Manual, section "nvmlClocksEventReasons"; the values are JSON's."""

    IDLE = "idle"
    APPLICATION_CLOCKS = "application_clocks"
    POWER_CAP = "power_cap"
    SLOWDOWN = "hardware_slowdown"
    SYNC_BOOST = "sync_boost"
    THERMAL = "thermal_slowdown"
    HARDWARE_THERMAL = "hardware_thermal_slowdown"
    POWER_BRAKE = "power_brake"
    DISPLAY_CLOCKS = "display_clocks"
    BOARD_LIMIT = "board_limit"
    RELIABILITY = "reliability"

    @property
    def is_throttling(self) -> bool:
        """Whether the GPU is in a state that it should not be timed in. The others belong to how a card is set up and
        to its life under load: many reach their power cap in every long kernel."""
        return self in _THROTTLING


_THROTTLING = frozenset({ClockLimit.SLOWDOWN, ClockLimit.THERMAL, ClockLimit.HARDWARE_THERMAL, ClockLimit.POWER_BRAKE})
