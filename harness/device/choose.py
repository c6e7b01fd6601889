"""Which device judges a submission, and opening it."""

from __future__ import annotations

from harness.device.base import Device


def choose_device(asked: str | None, uses_cuda: bool) -> str:
    """`asked`, or: a submission without CUDA runs on the CPU; one with it on a GPU, else on the emulator."""
    if asked:
        return asked
    if not uses_cuda:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "emulator"


def open_device(name: str) -> Device:
    """Raises HarnessError when there is no such device here."""
    if name == "cuda":
        from harness.device.cuda import CudaDevice

        return CudaDevice()
    from harness.device.host import HostDevice

    return HostDevice(name)
