"""What builds extensions for each device."""

from __future__ import annotations

from pathlib import Path

from harness.build.extension import Toolchain


def toolchain(
    device: str, emulator_cache: Path, *, check: bool, architecture: str = "", forks: bool = False
) -> Toolchain:
    """The one of `device`; `check` builds with all detectors, where the device has any. `architecture` is that of a GPU
    elsewhere, and empty for the one here. `forks` is for a process that has loaded torch and runs nothing else."""
    if device == "emulator":
        from harness.device.emulator import EmulatorToolchain

        return EmulatorToolchain(emulator_cache, check=check)
    from harness.build.torch_toolchain import TorchToolchain

    return TorchToolchain(cuda=device == "cuda", architecture=architecture, forks=forks)


def architecture_of(device: str) -> str:
    """What compilers for `device` have to know of it, such as 9.0 for the GPU here; empty where that is nothing."""
    if device != "cuda":
        return ""
    from harness.build.torch_toolchain import architecture_here

    return architecture_here()
