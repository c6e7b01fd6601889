"""What ends a translation. Each names the token that it stands at; harness/device/emulator/translate/source.py makes a
line of it."""

from __future__ import annotations

from harness.errors import KernelgateError


class _AtToken(KernelgateError):
    """`index` is the token that it stands at."""

    def __init__(self, index: int, what: str):
        super().__init__(what)
        self.index = index


class CannotRead(_AtToken):
    """A construct that this translator does not understand."""


class NvccRefuses(_AtToken):
    """What nvcc does not compile, or CUDA does not allow, and a host compiler might take."""
