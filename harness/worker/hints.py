"""What may be meant by a name that is not there, as the end of a message: Python says so in tracebacks alone."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Iterable

# How alike a name must be to be proposed (difflib's ratio), and how long one that another begins with.
LIKE = 0.55
MIN_BEGIN = 3

# Names that submissions use, by the import that gives them.
IMPORTS = {
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "load_inline": "from torch.utils.cpp_extension import load_inline",
    "math": "import math",
}

# What every nn.Module has once its __init__ was called.
OF_EVERY_MODULE = ("_modules", "_parameters", "_buffers", "_backward_hooks", "_forward_hooks")


def hint_for(error: BaseException) -> str:
    """Begins with a blank; empty where nothing is known."""
    match error:
        case ModuleNotFoundError() if error.name:
            return (
                ". Install the package that has it here, or do without: a submission is judged without the files "
                "beside it"
            )
        case NameError() if error.name:
            near = _import_for(error.name) or _near(error.name, _names_at(error))
            return near or ". Nothing defines or imports it before this line"
        case AttributeError() if error.name in OF_EVERY_MODULE:
            return ". Call super().__init__() at the beginning of its __init__"
        case AttributeError() if error.name and "Did you mean" not in str(error):
            return _near(error.name, _attributes(error.obj)) if error.obj is not None else ""
    return ""


def _attributes(of: object) -> list[str]:
    """Its attributes' names; those of its class where it cannot say its own, as a module without super().__init__()."""
    try:
        return dir(of)
    except Exception:
        return dir(type(of))


def _import_for(name: str) -> str:
    return f". '{IMPORTS[name]}' gives it" if name in IMPORTS else ""


def _near(name: str, known: Iterable[str]) -> str:
    """The known name that is most like it, or the first that it goes on from, as 'epsilon' from 'eps'."""
    known = [k for k in known if isinstance(k, str)]
    begun = [k for k in known if len(k) >= MIN_BEGIN and name.startswith(k)]
    if begun:
        return f". Did you mean '{begun[0]}'?"
    found = difflib.get_close_matches(name, known, 1, cutoff=LIKE)
    return f". Did you mean '{found[0]}'?" if found else ""


def _names_at(error: BaseException) -> list[str]:
    """What could be named where it was raised, local names first."""
    trace = error.__traceback__
    if trace is None:
        return []
    while trace.tb_next:
        trace = trace.tb_next
    frame = trace.tb_frame
    return list(dict.fromkeys([*frame.f_locals, *frame.f_globals, *dir(builtins)]))
