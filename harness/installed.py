"""Whether this Python has what the judge needs. Nothing but Python's own modules is imported here."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What eval.py cannot do without, by the names of modules, which are those of their packages, too (pyproject.toml).
NEEDED = ("torch", "numpy", "scipy", "msgspec", "psutil", "platformdirs", "rich", "click")

OLDEST_PYTHON = (3, 11)


def what_is_missing() -> str:
    """A sentence with the command that mends it; empty where nothing is missing."""
    if sys.version_info < OLDEST_PYTHON:
        found, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
        return f"This is Python {found}, and kernelgate needs {needed} or later. {_command('python3.11')}"
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    packages = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
    return f"This Python ({sys.executable}) lacks {packages}. {_command('python3')}"


def _command(python: str) -> str:
    """What to do: use the environment that there is, add to the one that runs, or make one."""
    folder = shlex.quote(str(ROOT))
    own = ROOT / ".venv" / "bin" / "python"
    if own.exists() and Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        return f"Run {shlex.quote(str(own))} eval.py in its place, which is the environment of this checkout."
    if sys.prefix != sys.base_prefix:
        return f"Install: cd {folder} && {shlex.quote(sys.executable)} -m pip install -c constraints.txt -e ."
    install = ".venv/bin/pip install -c constraints.txt -e ."
    return f"Make an environment: cd {folder} && {python} -m venv .venv && {install} && .venv/bin/python eval.py"
