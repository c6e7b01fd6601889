"""On the CPU: whether the judge can read a process's memory where that process is isolated."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence

from harness.isolation.bubblewrap import inner_pid

_SAID = b"read by the judge"

# What runs inside: it shows where a text lies and waits to be ended. No imports, so that it starts at once.
_INSIDE = f"""
import ctypes, sys
text = ctypes.create_string_buffer({_SAID!r})
print(ctypes.addressof(text), flush=True)
sys.stdin.read()
"""


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def try_host(system_words: Sequence[str], private_tree: bool) -> str:
    """What goes wrong with a process that bubblewrap starts by `system_words`, or nothing."""
    info, theirs = os.pipe()
    command = [*system_words, "--info-fd", str(theirs), "--", sys.executable, "-S", "-E", "-c", _INSIDE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(theirs,), text=True
    ) as process:
        os.close(theirs)
        assert process.stdout and process.stderr and process.stdin
        try:
            pid = inner_pid(info, private_tree)
            address = int(process.stdout.readline())
            return "" if _read(pid, address) == _SAID else "the judge cannot read the memory of a process inside"
        except (OSError, ValueError):
            said = process.stderr.read().strip().splitlines() or ["bubblewrap ended without a word"]
            return said[-1][:200]
        finally:
            process.stdin.close()


def _read(pid: int, address: int) -> bytes:
    buffer = ctypes.create_string_buffer(len(_SAID))
    local = _IoVec(ctypes.addressof(buffer), len(_SAID))
    remote = _IoVec(address, len(_SAID))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv(pid, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote), ctypes.c_ulong(1),
                          ctypes.c_ulong(0))  # fmt: skip
    return buffer.raw
