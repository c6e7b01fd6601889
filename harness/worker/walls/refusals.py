"""Functions that stand in the place of what a submission must not call: each tells the judge, then raises."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType
from typing import Any

from harness.errors import KernelgateError
from harness.protocol.testimony import Witness

# An audit event of our own, which the hook answers while it is there.
_ASK = "kernelgate.hook"

_audit, _stat = sys.audit, os.stat


class ForbiddenOperator(KernelgateError, RuntimeError):
    """Raised in the submission when it calls a forbidden operator."""


class Refusals:
    """Makes refusing functions, and knows whether they are what they were."""

    def __init__(self, witness: Witness) -> None:
        self._calls: list[str] = []
        self._made: list[tuple[Any, CodeType, tuple[int, ...]]] = []
        self._hooks = 0
        self._hooks_that_answered = 0
        self._tell = self._remember(witness.forbidden)

    def of(self, name: str) -> Callable[..., Any]:
        """A function that raises ForbiddenOperator for `name`, once the witness has been told."""
        calls, tell = self._calls, self._tell

        def refuse(*_args: Any, **_kwargs: Any) -> Any:
            tell(name)
            calls.append(name)
            raise ForbiddenOperator(f"{name} must not run in a submission: it is what the submission replaces")

        return self._remember(refuse)

    def opening(self, folder: Path, modules: Collection[str], refuse: Callable[..., Any]) -> Callable[..., None]:
        """An audit hook that calls `refuse` when the file of one of `modules` in `folder` is opened, as source or as
        bytecode, by whatever name: unlike a finder of modules it cannot be taken out of a list."""
        sources = [folder / f"{module}.py" for module in modules]
        compiled = [Path(importlib.util.cache_from_source(str(source))) for source in sources]
        files = frozenset(filter(None, map(_identity, [*sources, *compiled])))
        names = frozenset(path.name for path in (*sources, *compiled))
        identity = _identity

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == _ASK:
                self._hooks_that_answered += 1
            if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
                return
            if identity(arguments[0]) in files:
                refuse()
            # A relative name may count from another folder than this one: os.open has dir_fd.
            name = os.fsdecode(arguments[0])
            if not os.path.isabs(name) and os.path.basename(name) in names:
                refuse()

        self._hooks += 1
        return self._remember(hook)

    def looking_up(self, why: Callable[[str], str], refuse: Callable[..., Any]) -> Callable[..., None]:
        """An audit hook that calls `refuse` when ctypes looks up a symbol that `why` says something of."""

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == _ASK:
                self._hooks_that_answered += 1
            if event in ("ctypes.dlsym", "ctypes.dlsym/handle"):
                name = arguments[1]
                if why(name.decode(errors="replace") if isinstance(name, bytes) else str(name)):
                    refuse()

        self._hooks += 1
        return self._remember(hook)

    def take_calls(self) -> list[str]:
        """The names called since the last time, each once, in order."""
        calls = list(dict.fromkeys(self._calls))
        self._calls.clear()
        return calls

    def are_intact(self) -> bool:
        """Whether all that was made has its code and what it closes over, and hooks are still asked."""
        self._hooks_that_answered = 0
        _audit(_ASK)
        same = all(made.__code__ is code and _closed_over(made) == cells for made, code, cells in self._made)
        return same and self._hooks_that_answered == self._hooks

    def _remember(self, made: Any) -> Any:
        self._made.append((made, made.__code__, _closed_over(made)))
        return made


def _identity(path: Any) -> tuple[int, int] | None:
    """What a file is whatever its name; None where there is none."""
    try:
        found = _stat(path)
    except (OSError, ValueError, TypeError):
        return None
    return found.st_dev, found.st_ino


def _closed_over(function: Any) -> tuple[int, ...]:
    """Identities: the lists among them may change."""
    return tuple(id(cell.cell_contents) for cell in function.__closure__ or ())
