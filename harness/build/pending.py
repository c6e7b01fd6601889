"""Extensions that are built when they are needed: at the latest when their file has been imported to its end.

What is wrong with a file costs its author the second that importing takes, and not the minute of a compiler. The trick
is that of `importlib.util.LazyLoader`, whose loaders fill a module that there is: an extension makes its own.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NoReturn

# Attributes that Python itself asks a module for where nobody wants anything of the extension.
_OF_ANY_MODULE = frozenset({"__class__", "__dict__", "__spec__", "__name__", "__loader__"})

# What an exception that came in a build carries: the line of the call of `load_inline`.
CALLED_AT = "kernelgate_called_at"


# Held by whoever builds or asks the judge: a file may do so from several threads, and there is one way to the judge.
BUILDING = threading.RLock()


class Pending(ModuleType):
    """In place of an extension. With the first attribute that is asked for, it is built and becomes a plain module."""

    def __init__(self, name: str, build: Callable[[], ModuleType], line: int) -> None:
        """`line` of the submission called for it; 0 where that is not known."""
        super().__init__(name)
        vars(self).update(_build=build, _line=line)

    def __getattribute__(self, name: str) -> Any:
        if name not in _OF_ANY_MODULE:
            built(self)
        return object.__getattribute__(self, name)


def built(module: ModuleType) -> None:
    """Build it, unless that has been done. Raises what building raises, with CALLED_AT."""
    with BUILDING:
        if type(module) is not Pending:
            return
        own = object.__getattribute__(module, "__dict__")
        try:
            real = own["_build"]()
        except Exception as error:
            setattr(error, CALLED_AT, own["_line"])
            raise
        own.clear()
        own.update(vars(real))
        object.__setattr__(module, "__class__", ModuleType)


def name_what_exists(module: ModuleType, extension: str) -> None:
    """Have `module` say what it has where something else is asked of it (PEP 562)."""
    if hasattr(module, "__getattr__"):
        return

    def missing(name: str) -> NoReturn:
        functions = [key for key in vars(module) if not key.startswith("__")]
        raise AttributeError(_has_no(extension, name, functions), name=name, obj=module)

    vars(module)["__getattr__"] = missing


def _has_no(extension: str, name: str, functions: Iterable[str]) -> str:
    there = sorted(functions)
    near = difflib.get_close_matches(name, there, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    has = f"it has {', '.join(there)}" if there else "it has nothing that Python can call"
    return f"the extension '{extension}' has no '{name}'; {has}.{hint} functions= of load_inline says what it has"
