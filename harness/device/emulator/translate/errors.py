"""What ends a translation. Each names the token that it stands at; harness/device/emulator/translate/source.py makes a
line of it."""

from __future__ import annotations

from harness.errors import KernelgateError


class CannotRead(KernelgateError):
    """A construct that this translator does not understand; `index` is the token it stands at."""

    def __init__(self, index: int, what: str):
        super().__init__(what)
        self.index = index


class NvccRefuses(KernelgateError):
    """What nvcc does not compile and a host compiler might; `index` is the token it stands at."""

    def __init__(self, index: int, what: str):
        super().__init__(what)
        self.index = index
