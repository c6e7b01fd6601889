"""Bytecode of what this process and those that it starts load, where an installation has none and gets none.

Images are often built without bytecode, in folders that nobody can write to. Each process then compiles torch's sources
anew. On hosts of H100s the judge loaded in 3.9 s so, and loads in 1.7 s with bytecode.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from harness.paths import bytecode_cache
from harness.storage import cache

# Read by every Python when it starts.
VARIABLE = "PYTHONPYCACHEPREFIX"


def keep() -> None:
    """Keep bytecode in the cache from now on, if torch's is missing and Python would not write it where it looks for
    it. Nothing where the user has said where bytecode is kept, and where the cache cannot be used."""
    folder = bytecode_cache()
    if sys.pycache_prefix == str(folder):  # a process that judges has started this one
        sys.dont_write_bytecode = False
    if sys.pycache_prefix or not _is_missing("torch"):
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():  # bytecode is code: one's own alone
            return
    except OSError:
        return
    cache.mark_used(folder)
    sys.pycache_prefix = os.environ[VARIABLE] = str(folder)
    sys.dont_write_bytecode = False


def _is_missing(package: str) -> bool:
    """Whether `package` has no bytecode, and loading it would leave none."""
    found = importlib.util.find_spec(package)
    if found is None or not found.cached:
        return False
    kept = Path(found.cached)
    if kept.exists():
        return False
    folder = kept.parent if kept.parent.exists() else kept.parent.parent
    return sys.dont_write_bytecode or not os.access(folder, os.W_OK)
