"""The file behind shared memory on the host. Free of torch, so that workers can be started with it at once."""

from __future__ import annotations

import fcntl
import mmap
import os

# fcntl.h and linux/fcntl.h: nobody may shrink the memory under the judge's feet, and no worker add a seal that
# keeps the judge from growing it.
_F_ADD_SEALS = 1033
_F_SEAL_SEAL, _F_SEAL_SHRINK = 0x0001, 0x0002


class MemoryFile:
    """An anonymous file that only grows, which the judge and its workers map. On a GPU it stays empty."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("kernelgate", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _F_SEAL_SEAL | _F_SEAL_SHRINK)

    def close(self) -> None:
        """Give it up: what still maps it keeps it until it is unmapped."""
        os.close(self.fd)

    def grow(self, nbytes: int) -> int:
        """Make it at least `nbytes` long, in whole pages; returns its size."""
        wanted = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if wanted > os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, wanted)
        return os.fstat(self.fd).st_size
