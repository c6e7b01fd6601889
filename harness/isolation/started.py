"""A worker's process as it was started: forked, or a program of its own, isolated in either case."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.isolation import bubblewrap
from harness.isolation.home import Home
from harness.isolation.launch import Process, Start, Zygote, environment, start_program
from harness.isolation.levels import Isolation
from harness.paths import compile_cache
from harness.storage import cache

COMPILER_MODULES = ("torch._inductor.compile_fx",)


@dataclass(frozen=True)
class Role:
    """What a worker is for. `readable` are files beside the harness's own that it needs. One that `keeps_compile_cache`
    is a trusted compiler of baselines."""

    device: str
    isolation: Isolation
    readable: Sequence[Path] = ()
    keeps_compile_cache: bool = False

    @property
    def own_processes(self) -> int:
        """How many processes the worker is: itself, and with namespaces bubblewrap outside, with a private process tree
        also bubblewrap as the first inside; on the emulator also one that names lines."""
        own = 2 if self.device == "emulator" else 1
        if self.isolation.level != "namespaces":
            return own
        return own + (2 if self.isolation.private_tree else 1)

    @property
    def writable(self) -> list[Path]:
        """Folders beside its home that the worker may write to. A compiler keeps what it compiled, and bytecode where
        that lies apart."""
        if not self.keeps_compile_cache:
            return []
        bytecode = os.environ.get("PYTHONPYCACHEPREFIX")
        return [compile_cache(), *([Path(bytecode)] if bytecode else [])]

    def environment(self, home: Home) -> dict[str, str]:
        """All variables that the worker sees."""
        common = environment(self.device)
        if not self.keeps_compile_cache:
            return common | home.environment(None)
        return common | home.environment(compile_cache()) | {"PYTHONDONTWRITEBYTECODE": ""}

    def landlocked(self, home: Home) -> str:
        """The folders that Landlock leaves writable, joined by os.pathsep; empty for no Landlock."""
        if not self.isolation.landlock_abi:
            return ""
        # CUDA keeps what it shares between processes in /dev/shm, and does not start where it cannot write to /proc.
        folders = ["/dev/shm", "/proc"] if self.device == "cuda" else []
        return os.pathsep.join(map(str, (home.path, *self.writable, *folders)))


class Started:
    """A worker's process. `process` is what this one started: under bubblewrap not the one that runs the worker."""

    def __init__(self, role: Role, home: Home, files: Sequence[int], zygote: Zygote | None) -> None:
        """Forked from `zygote`, or a program of its own without one. `files` are those of
        harness.worker.process.Descriptors. Raises HarnessError when it cannot be started."""
        for folder in role.writable:
            folder.mkdir(parents=True, exist_ok=True)
            cache.mark_used(folder)
        self._role = role
        self._home = home
        self._inner_pid = 0
        self._info = -1
        start = Start(
            device=role.device,
            environment=role.environment(home),
            folder=home.work,
            writable=role.landlocked(home),
            output=home.log,
            files=files,
        )
        self.process: Process = zygote.fork(start) if zygote else self._program(start)

    def _program(self, start: Start) -> Process:
        modules = COMPILER_MODULES if self._role.keeps_compile_cache else ()
        if self._role.isolation.level != "namespaces":
            return start_program(start, modules)
        self._info, info = os.pipe()
        try:
            return start_program(start, modules, self._bubblewrap(info), info)
        except HarnessError:
            self.close()
            raise
        finally:
            os.close(info)

    def _bubblewrap(self, info: int) -> list[str]:
        words = self._role.isolation.system_words(self._role.readable)
        return bubblewrap.in_home(words, self._home.path, self._role.writable, info)

    @property
    def pid(self) -> int:
        """The process that runs the worker's code. Raises HarnessError when it could not be started."""
        if not self._inner_pid and self._role.isolation.level == "namespaces":
            self._inner_pid = self._ask_bubblewrap()
        return self._inner_pid or self.process.pid

    def _ask_bubblewrap(self) -> int:
        info, self._info = self._info, -1
        try:
            return bubblewrap.inner_pid(info, self._role.isolation.private_tree)
        except (OSError, ValueError):
            raise HarnessError(
                f"A worker could not be started with the isolation '{self._role.isolation.level}'."
                f"{self._home.output_tail()} --isolation basic does without."
            ) from None

    def close(self) -> None:
        """Close what bubblewrap would have told its process through."""
        if self._info >= 0:
            os.close(self._info)
        self._info = -1
