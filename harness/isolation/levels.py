"""How far workers are kept from the machine: the strongest that it offers, found by trying it, and named.

Three levels. `namespaces`: bubblewrap gives a worker a read-only system, a private home, /tmp and process tree,
and no network. `landlock`: the kernel lets it write nowhere but in its own folders, signal and trace nobody
outside, and open no TCP connection. `basic`: limits, a process group that is ended whole, no new privileges.
Each level has all that the ones below it have. docs/threat-model.md says what each of them promises.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from harness.errors import HarnessError
from harness.isolation import bubblewrap
from harness.isolation.trial.host import try_host
from harness.paths import ROOT, cache_root

LEVELS = ("namespaces", "landlock", "basic")
ASKED = ("auto", "require", *LEVELS[1:])

# What every level has, in the words of reports.
BASIC = (
    "resource limits",
    "no privileges and no new ones",
    "process group ended whole",
    "judge not dumpable",
    "bounded JSON messages",
)

# What may be unshared, strongest first. A CUDA IPC handle names a process, and its files lie in /dev/shm, so that
# a driver may want those two shared; which of these it works with is found by trying.
NAMESPACE_SETS: tuple[tuple[str, ...], ...] = (
    ("pid", "ipc", "net", "uts"),
    ("pid", "net", "uts"),
    ("ipc", "net", "uts"),
    ("net", "uts"),
)

TRIAL_TIMEOUT_S = 60.0

_DRIVER_VERSION = Path("/proc/driver/nvidia/version")

_PR_SET_DUMPABLE = 4
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1

# Those that harness.worker.walls.seccomp has filters for, with the number of seccomp(2).
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_GET_ACTION_AVAIL = 2
_SECCOMP_RET_ERRNO = 0x00050000


@dataclass(frozen=True)
class Isolation:
    """What workers of one device are started with. `lacks` says why a stronger level is not used."""

    level: str
    unshared: tuple[str, ...] = ()
    landlock_abi: int = 0
    lacks: str = ""
    nodes: tuple[str, ...] = field(default=(), repr=False)
    """Device files that a worker needs beside /dev/null and its like."""

    @property
    def contains(self) -> list[str]:
        """The parts, in the words of reports."""
        parts: list[str] = []
        if self.level == "namespaces":
            parts += ["read-only system", "private home, /tmp and caches"]
            words = {"pid": "private process tree", "ipc": "private shared memory", "net": "no network"}
            parts += [words[name] for name in self.unshared if name in words]
        if self.landlock_abi:
            parts.append(f"Landlock {self.landlock_abi}: writes only to its own folders")
            if self.landlock_abi >= 6:
                parts.append("no signals to other processes")
        if filters_calls():
            parts.append("no userfaultfd")
        return [*parts, *BASIC]

    def describe(self) -> dict[str, object]:
        """For results: the level, its parts, and what is lacking."""
        return {"level": self.level, "contains": self.contains, "lacks": self.lacks or None}

    @property
    def private_tree(self) -> bool:
        return "pid" in self.unshared

    def system_words(self, readable: Iterable[Path]) -> list[str]:
        """The beginning of bubblewrap's command line; see harness.isolation.bubblewrap."""
        return bubblewrap.system(self.unshared, self.nodes, readable)


# ---------------------------------------------------------------------- choosing


def choose_isolation(asked: str, device: str) -> Isolation:
    """The isolation that `asked` (one of ASKED) gives here for workers of `device`.

    Raises HarnessError when it is `require` and namespaces do not work, or a named level does not."""
    if asked == "basic":
        return Isolation("basic", lacks="--isolation basic was asked for")
    abi = landlock_abi()
    if asked != "landlock":
        unshared, why = _working_namespaces(device)
        if unshared:
            return Isolation("namespaces", unshared, abi, nodes=_nodes(device))
        if asked == "require":
            raise HarnessError(
                f"--isolation require was asked for, and namespaces cannot be used here: {why}. Install bubblewrap "
                "and allow user namespaces, or use --isolation auto."
            )
    else:
        why = "--isolation landlock was asked for"
    if abi:
        return Isolation("landlock", landlock_abi=abi, lacks=f"no namespaces: {why}")
    if asked == "landlock":
        raise HarnessError("--isolation landlock was asked for, and this kernel has no Landlock. Use --isolation auto.")
    return Isolation("basic", lacks=f"no namespaces: {why}; this kernel has no Landlock")


def landlock_abi() -> int:
    """The version of Landlock that the kernel offers; 0 for none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION_FLAG))


def filters_calls() -> bool:
    """Whether workers can be refused system calls here: a kernel and a machine with seccomp's filters."""
    number = _SECCOMP.get(os.uname().machine)
    action = ctypes.c_uint32(_SECCOMP_RET_ERRNO)
    libc = ctypes.CDLL(None, use_errno=True)
    return number is not None and not libc.syscall(number, _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action))


def _nodes(device: str) -> tuple[str, ...]:
    return tuple(sorted(str(node) for node in Path("/dev").glob("nvidia*"))) if device == "cuda" else ()


@cache
def _working_namespaces(device: str) -> tuple[tuple[str, ...], str]:
    """The first of NAMESPACE_SETS in which a worker of `device` can do its work, or none and why."""
    if not shutil.which("bwrap"):
        return (), "bubblewrap (bwrap) is not installed"
    known = _Remembered(device) if device == "cuda" else None
    if known and (answer := known.read()):
        return answer
    why = ""
    for unshared in NAMESPACE_SETS if device == "cuda" else NAMESPACE_SETS[:1]:
        problem = _try(Isolation("namespaces", unshared, nodes=_nodes(device)), device)
        if not problem:
            break
        why = why or problem
    else:
        unshared = ()
    if known and (unshared or _DRIVER_VERSION.exists()):
        known.write(unshared, why)
    return unshared, why


def _try(isolation: Isolation, device: str) -> str:
    """Share memory with a process that is isolated as a worker would be; what went wrong, or nothing."""
    words = isolation.system_words([])
    if device != "cuda":
        return try_host(words, isolation.private_tree)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-P", "-m", "harness.isolation.trial.cuda", *words]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TRIAL_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a trial did not end: {error}"
    said = done.stderr.strip().splitlines() or ["a trial failed and said nothing"]
    return "" if done.returncode == 0 else said[-1][:200]


class _Remembered:
    """The answer of a trial that takes seconds, kept until the machine starts again or its driver changes."""

    def __init__(self, device: str) -> None:
        self._path = cache_root() / f"isolation-{device}.json"
        parts = [Path("/proc/sys/kernel/random/boot_id"), _DRIVER_VERSION]
        texts = []
        for part in parts:
            with contextlib.suppress(OSError):
                texts.append(part.read_text())
        self._key = json.dumps([*texts, os.getuid(), sys.prefix, NAMESPACE_SETS])

    def read(self) -> tuple[tuple[str, ...], str] | None:
        try:
            kept = json.loads(self._path.read_text())
            if kept["key"] == self._key and (not kept["unshared"] or tuple(kept["unshared"]) in NAMESPACE_SETS):
                return tuple(kept["unshared"]), str(kept["why"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def write(self, unshared: tuple[str, ...], why: str) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"key": self._key, "unshared": unshared, "why": why}))


# ---------------------------------------------------------------------- the judge itself


def protect_judge() -> None:
    """Close this process to its own user's other processes, and take a seed off its visible command line."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _blank_seed()


def _blank_seed() -> None:
    """/proc/PID/cmdline, which everybody may read, shows the memory where the system put the arguments."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # proc(5): arg_start and arg_end, fields 48 and 49
        text = ctypes.string_at(start, end - start) if start else b""
    except (OSError, ValueError, IndexError):
        return
    for match in re.finditer(rb"--se?e?d?[=\0](\d+)", text):
        ctypes.memset(start + match.start(1), ord("#"), len(match[1]))
