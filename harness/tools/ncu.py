"""Nsight Compute: its command line, and what its table of raw metrics says of each kernel.

The names of metrics are those of Nsight Compute 2022 to 2025 on GPUs from Ampere on. Versions differ in what they
collect: whatever is missing is None, and nothing else suffers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# To the units that fields of KernelProfile have: microseconds and bytes.
_SCALES = {
    "nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "KB": 1e3, "MB": 1e6, "GB": 1e9,
}  # fmt: skip

_STALL = re.compile(
    r"smsp__average_(?:warps_issue_stalled|warp_latency_issue_stalled)_(?P<reason>\w+?)(?:_per_issue_active)?\.ratio$"
)

# What keeps more blocks from a multiprocessor -> the metric that says how many blocks it allows.
_OCCUPANCY_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "threads": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}

# ncu's words when the driver keeps counters for administrators.
NO_PERMISSION = "ERR_NVGPUCTRPERM"


@dataclass(frozen=True)
class KernelProfile:
    """One launch of one kernel. Shares are fractions of the peak; `stalls` are shares of a warp's waiting."""

    kernel: str
    time_us: float | None
    dram_share: float | None
    l2_share: float | None
    dram_bytes: float | None
    occupancy: float | None
    occupancy_possible: float | None
    limited_by: str
    registers: int | None
    shared_bytes: float | None
    spill_instructions: float | None
    blocks: int | None
    threads: int | None
    stalls: tuple[tuple[str, float], ...]


def record_command(report: Path) -> list[str]:
    """The words before a command whose marked kernels are recorded in `report`. Clocks stay as they are, since they
    are so when the judge times."""
    return [
        "ncu", "--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none",
        "--set", "full", "--force-overwrite", "--export", str(report),
    ]  # fmt: skip


def read_command(report: Path) -> list[str]:
    return ["ncu", "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]


def parse_raw_page(text: str) -> list[KernelProfile]:
    """The launches in the output of `read_command`: a header, a row of units, a row for each launch; lines of ncu's
    own messages before that are skipped. Empty when there is no table."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    header, units = rows[0], dict(zip(rows[0], rows[1], strict=False)) if len(rows) > 1 else {}
    return [_profile(dict(zip(header, row, strict=False)), units) for row in rows[2:] if len(row) > 1]


def _profile(row: Mapping[str, str], units: Mapping[str, str]) -> KernelProfile:
    def value(*names: str) -> float | None:
        """The first of these metrics that there is."""
        for name in names:
            number = _number(row.get(name, ""))
            if number is not None:
                return number * _SCALES.get(units.get(name, ""), 1.0)
        return None

    def share(*names: str) -> float | None:
        percent = value(*names)
        return None if percent is None else percent / 100

    blocks, threads = value("launch__grid_size"), value("launch__block_size")
    registers = value("launch__registers_per_thread")
    return KernelProfile(
        kernel=re.sub(r"\(.*", "", row.get("Kernel Name", "")).removeprefix("void ").strip(),
        time_us=value("gpu__time_duration.sum", "gpu__time_duration.avg"),
        dram_share=share(
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        ),
        l2_share=share(
            "lts__t_sectors.avg.pct_of_peak_sustained_elapsed", "lts__throughput.avg.pct_of_peak_sustained_elapsed"
        ),
        dram_bytes=_sum(value("dram__bytes_read.sum"), value("dram__bytes_write.sum")) or value("dram__bytes.sum"),
        occupancy=share("sm__warps_active.avg.pct_of_peak_sustained_active"),
        occupancy_possible=share("sm__maximum_warps_per_active_cycle_pct"),
        limited_by=_limit({what: value(name) for what, name in _OCCUPANCY_LIMITS.items()}),
        registers=None if registers is None else int(registers),
        shared_bytes=value("launch__shared_mem_per_block_allocated", "launch__shared_mem_per_block"),
        spill_instructions=_sum(value("sass__inst_executed_local_loads"), value("sass__inst_executed_local_stores")),
        blocks=None if blocks is None else int(blocks),
        threads=None if threads is None else int(threads),
        stalls=_stalls(row),
    )


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _limit(blocks_allowed: Mapping[str, float | None]) -> str:
    """What allows the fewest blocks; several where they agree."""
    known = {what: allowed for what, allowed in blocks_allowed.items() if allowed}
    least = min(known.values(), default=0.0)
    return " and ".join(what for what, allowed in known.items() if allowed == least)


def _stalls(row: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    """Reasons for which warps wait and their shares, the largest first. 'selected' is a warp at work."""
    found: dict[str, float] = {}
    for name, text in row.items():
        match, number = _STALL.match(name), _number(text)
        if match and number and match["reason"] != "selected" and not match["reason"].endswith("not_issued"):
            found.setdefault(match["reason"].replace("_", " "), number)
    total = sum(found.values())
    return tuple(sorted(((reason, number / total) for reason, number in found.items()), key=lambda pair: -pair[1]))


def missing_counters(output: Sequence[str]) -> bool:
    """Whether ncu said that this user may not read the GPU's counters."""
    return any(NO_PERMISSION in text for text in output)
