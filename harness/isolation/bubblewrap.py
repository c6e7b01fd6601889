"""The command line of bubblewrap that starts a worker, and which process it started."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.paths import ROOT, emulator_cache

# Folders that hold other people's things: hidden, and what a worker needs of them shown again, read-only.
HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/run", "/mnt", "/media", "/srv")
SCRATCH_BYTES = 1 << 28  # of each folder in memory that stands in for a hidden one

# Variables whose values name files that compilers, CUDA or Python need: without its bytecode, torch takes twice as long
# to load.
_NAMING_VARIABLES = (
    "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PATH", "VIRTUAL_ENV",
)  # fmt: skip

START_TIMEOUT_S = 20.0


def system(unshared: Sequence[str], nodes: Iterable[str], readable: Iterable[Path]) -> list[str]:
    """bwrap with a read-only system, the namespaces `unshared`, the device files `nodes`, and of what is hidden
    `readable` and what every worker needs."""
    words = ["bwrap", "--unshare-user", "--cap-drop", "ALL", "--die-with-parent"]
    words += [f"--unshare-{name}" for name in unshared]
    words += ["--ro-bind", "/", "/", "--dev", "/dev"]
    for node in nodes:
        words += ["--dev-bind-try", node, node]
    words += _tmpfs("/dev/shm") if "ipc" in unshared else ["--bind-try", "/dev/shm", "/dev/shm"]
    words += ["--proc", "/proc"] if "pid" in unshared else []
    for folder in _hidden_folders():
        words += _tmpfs(folder)
    for path in _shown(readable):
        words += ["--ro-bind-try", path, path]
    return words


def in_home(system_words: Sequence[str], home: Path, writable: Iterable[Path], info_fd: int) -> list[str]:
    """`system_words` continued: a home and folders that can be written; `inner_pid` reads `info_fd`'s other end."""
    words = list(system_words)
    for path in (home, *writable):
        words += ["--bind", str(path), str(path)]
    return [*words, "--chdir", str(home / "work"), "--info-fd", str(info_fd), "--"]


def inner_pid(info_fd: int, private_tree: bool) -> int:
    """The process that bubblewrap runs, by the number that it has out here; closes `info_fd`.

    Raises OSError or ValueError when bubblewrap ended before it started one."""
    with os.fdopen(info_fd) as file:
        child = int(json.load(file)["child-pid"])
    if not private_tree:
        return child
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:  # the tree's first process is bubblewrap's own, which starts ours
        children = Path(f"/proc/{child}/task/{child}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.0005)
    raise ValueError("bubblewrap started no process")


def _tmpfs(folder: str) -> list[str]:
    return ["--size", str(SCRATCH_BYTES), "--tmpfs", folder]


def _hidden_folders() -> list[str]:
    """Real folders that are hidden, outer ones first."""
    homes = [os.environ.get("HOME", ""), pwd.getpwuid(os.getuid()).pw_dir]
    found = {os.path.realpath(folder) for folder in (*HIDDEN, *homes) if folder and os.path.isdir(folder)}
    return sorted(found - {"/"})


def _shown(readable: Iterable[Path]) -> list[str]:
    """Files and folders below the hidden ones that a worker needs to read, outer ones first."""
    named = [word for name in _NAMING_VARIABLES for word in os.environ.get(name, "").split(os.pathsep)]
    tools = [Path(tool).resolve().parent.parent for tool in map(shutil.which, ("nvcc", "c++", "ninja")) if tool]
    wanted = [ROOT, sys.prefix, sys.base_prefix, *sys.path, *named, *tools, emulator_cache(), *readable]
    # A path may be a link, or lie behind one: both places are shown.
    words = {str(word) for word in wanted} - {""}
    paths = {form for word in words for form in (os.path.abspath(word), os.path.realpath(word))}
    hidden = _hidden_folders()
    return sorted(p for p in paths if any(p.startswith(folder + "/") for folder in hidden) and os.path.exists(p))
