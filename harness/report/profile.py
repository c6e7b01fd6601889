"""A profile for people: for each kernel what a kernel writer looks at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from harness.report.figures import duration
from harness.tools.ncu import KernelProfile

if TYPE_CHECKING:
    from harness.tools.profiling import Profile

SHOWN_STALLS = 4
SHOWN_KERNELS = 12


def print_profile(console: Console, profile: Profile) -> None:
    console.print(f"[bold]{escape(profile.submission)} · {escape(profile.case)} · {profile.shape}[/]")
    if profile.launches:
        for launch in profile.launches:
            _print_launch(console, launch)
        _print_bytes(console, profile.launches, profile.bytes_min)
        if profile.report:  # its name alone: what is printed is kept, and read on other machines
            console.print(f"full report: {profile.report.name} (ncu-ui opens it)")
    else:
        console.print(f"[yellow]{escape(profile.why_not)}[/]")
        _print_times(console, profile)
    _print_resources(console, profile)


def _print_launch(console: Console, launch: KernelProfile) -> None:
    console.print(f"\n[bold]{escape(launch.kernel)}[/]  {_time(launch.time_us)}")
    console.print(f"  DRAM    {_share(launch.dram_share)} of peak, {_bytes(launch.dram_bytes)}{_rate(launch)}")
    console.print(f"  L2      {_share(launch.l2_share)} of peak")
    limited = f", limited by {launch.limited_by}" if launch.limited_by else ""
    console.print(
        f"  warps   {_share(launch.occupancy)} of a multiprocessor's, {_share(launch.occupancy_possible)} possible"
        f"{limited}; {_count(launch.blocks)} blocks of {_count(launch.threads)} threads"
    )
    spills = "" if launch.spill_instructions is None else f", {launch.spill_instructions:,.0f} local loads and stores"
    console.print(
        f"  uses    {_count(launch.registers)} registers a thread, {_bytes(launch.shared_bytes)} of shared memory a "
        f"block{spills}"
    )
    if launch.stalls:
        reasons = ", ".join(f"{reason} {part:.0%}" for reason, part in launch.stalls[:SHOWN_STALLS])
        console.print(f"  waits   {reasons}")


def _print_bytes(console: Console, launches: Sequence[KernelProfile], bytes_min: int) -> None:
    moved = sum(launch.dram_bytes or 0.0 for launch in launches)
    if not bytes_min or not moved:
        return
    console.print(
        f"\nDRAM moved {_bytes(moved)}; inputs, parameters and outputs once are {_bytes(bytes_min)} "
        f"({moved / bytes_min:.2f} times; what L2 held before or keeps afterwards is not moved)"
    )


def _print_times(console: Console, profile: Profile) -> None:
    console.print("\nof one call, from torch.profiler:")
    for time in profile.driven.times[:SHOWN_KERNELS]:
        console.print(f"  {duration(time.total_us):>9s}  {time.launches}×  {escape(time.kernel)[:110]}")


def _print_resources(console: Console, profile: Profile) -> None:
    if profile.driven.kernels:
        console.print("\nfrom the compiler:")
    for kernel in profile.driven.kernels:
        console.print(
            f"  {kernel.registers:3d} registers, {kernel.shared_bytes:6,} bytes of shared memory, "
            f"{kernel.spilled_bytes:4,} bytes spilled  {escape(kernel.kernel)[:90]}"
        )


def _time(us: float | None) -> str:
    return "time unknown" if us is None else duration(us)


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _bytes(number: float | None) -> str:
    if number is None:
        return "–"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} bytes"


def _rate(launch: KernelProfile) -> str:
    if not launch.dram_bytes or not launch.time_us:
        return ""
    return f" at {launch.dram_bytes / launch.time_us * 1e-6:.2f} TB/s"
