"""Seccomp: system calls that this process and its descendants are refused. Linux 4.14 and later, without root.

Memory whose pages a program brings itself (userfaultfd) would show which elements the judge reads, and let them be
worked out when it does. In a process of its own no guard watches what a submission calls. The kernel's own calls
through ctypes, for two dozen instructions; linux/seccomp.h, seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_SET_MODE_FILTER = 1
_ALL_THREADS, _SPECULATION_AS_BEFORE = 1 << 0, 1 << 2

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # in struct seccomp_data; low halves
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS

_USERFAULTFD_IOC_NEW = 0xAA00
# From here on x86's numbers are those of another ABI, with the same calls.
_X32 = 0x40000000

_CLONE_THREAD = 0x00010000


@dataclass(frozen=True)
class _Numbers:
    """Of one architecture: what the audit calls it, and its system calls."""

    audit: int
    userfaultfd: int
    ioctl: int
    seccomp: int
    clone: int
    starts: tuple[int, ...]
    """What starts a process or a program and nothing else: fork, vfork, execve and execveat."""
    clone3: int = 435


_MACHINES = {
    "x86_64": _Numbers(0xC000003E, userfaultfd=323, ioctl=16, seccomp=317, clone=56, starts=(57, 58, 59, 322)),
    "aarch64": _Numbers(0xC00000B7, userfaultfd=282, ioctl=29, seccomp=277, clone=220, starts=(221, 281)),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_userfaultfd() -> None:
    """From now on: no userfaultfd, neither by its call nor by its device, and no calls of another architecture.

    Nothing where the kernel or the machine has no such filters: harness.isolation.levels says so. Needs
    no_new_privs. Raises OSError."""
    if numbers := _MACHINES.get(os.uname().machine):
        _install(
            numbers,
            [
                (_LOAD, 0, 0, _ARCHITECTURE),
                (_EQUAL, 0, 7, numbers.audit),
                (_LOAD, 0, 0, _NUMBER),
                (_AT_LEAST, 5, 0, _X32),
                (_EQUAL, 4, 0, numbers.userfaultfd),
                (_EQUAL, 0, 2, numbers.ioctl),
                (_LOAD, 0, 0, _SECOND_ARGUMENT),
                (_EQUAL, 1, 0, _USERFAULTFD_IOC_NEW),
                (_RETURN, 0, 0, _ALLOW),
                (_RETURN, 0, 0, _REFUSE),
            ],
        )


def refuse_processes() -> None:
    """From now on: no processes and no other programs, only threads. A call whose flags lie in memory (clone3) cannot
    be looked at here; it is unknown, and the C library then uses clone. Calls of another architecture are refused by
    `refuse_userfaultfd`. Nothing where there are no filters. Raises OSError."""
    if numbers := _MACHINES.get(os.uname().machine):
        starts = numbers.starts
        _install(
            numbers,
            [
                (_LOAD, 0, 0, _NUMBER),
                *((_EQUAL, 5 + len(starts) - at, 0, number) for at, number in enumerate(starts)),
                (_EQUAL, 0, 1, numbers.clone3),
                (_RETURN, 0, 0, _UNKNOWN),
                (_EQUAL, 0, 2, numbers.clone),
                (_LOAD, 0, 0, _FIRST_ARGUMENT),
                (_HAS_BITS, 0, 1, _CLONE_THREAD),
                (_RETURN, 0, 0, _ALLOW),
                (_RETURN, 0, 0, _REFUSE),
            ],
        )


def _install(numbers: _Numbers, steps: Sequence[tuple[int, int, int, int]]) -> None:
    """Have the filter looked at before each system call of all threads. Raises OSError."""
    program = _Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    call, mode = ctypes.c_long(numbers.seccomp), ctypes.c_uint(_SET_MODE_FILTER)
    # Linux 4.14 to 4.16 do not know the second flag.
    for flags in (_ALL_THREADS | _SPECULATION_AS_BEFORE, _ALL_THREADS):
        if not libc.syscall(call, mode, ctypes.c_uint(flags), ctypes.byref(program)):
            return
    error = ctypes.get_errno()
    if error not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(error, f"seccomp: {os.strerror(error)}")
