"""What builds extensions for each device."""

from __future__ import annotations

from pathlib import Path

from harness.build.extension import Toolchain


def toolchain(device: str, emulator_cache: Path, *, check: bool, architecture: str = "") -> Toolchain:
    """The one of `device`; `check` builds with all detectors, where the device has any. `architecture` is that of a GPU
    elsewhere, and empty for the one here."""
    if device == "emulator":
        from harness.device.emulator import EmulatorToolchain

        return EmulatorToolchain(emulator_cache, check=check)
    from harness.build.torch_toolchain import TorchToolchain

    return TorchToolchain(cuda=device == "cuda", architecture=architecture)
