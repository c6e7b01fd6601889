"""Landlock: what this process and its descendants may still do. Linux 5.13 and later, without root.

The kernel's three system calls through ctypes, since no library for them is well kept (PyPI's `landlock` is an
alpha of 2025 and knows neither networks nor signals). linux/landlock.h; landlock(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

_WRITE_FILE = 1 << 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14
# remove a folder, remove a file, and make a device, folder, file, socket, pipe, block device or link
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
_TO_A_FILE = _WRITE_FILE | _TRUNCATE
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract sockets, and signals

_FIRST_ABI_WITH = {_REFER: 2, _TRUNCATE: 3}
_TCP_ABI, _SCOPES_ABI = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("access_fs", ctypes.c_uint64), ("access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict_writes(folders: Iterable[str]) -> None:
    """From now on: write only in `folders` and to devices, trace and signal nobody outside, and open no TCP
    connection; as far as the kernel's version of Landlock goes. Raises OSError where there is none."""
    abi = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    newer = sum(right for right, first in _FIRST_ABI_WITH.items() if abi >= first)
    handled = _WRITE_FILE | _CHANGE_FOLDER | newer
    attributes = _Ruleset(handled, _TCP if abi >= _TCP_ABI else 0, _SCOPES if abi >= _SCOPES_ABI else 0)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), 0)
    for folder, allowed in [*((f, handled) for f in folders), ("/dev", handled & _TO_A_FILE)]:
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = _PathBeneath(allowed, opened)
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(opened)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _call(number: int, *arguments: object) -> int:
    result = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
