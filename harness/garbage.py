"""Python's garbage collection, off where it costs something and frees nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn Python's garbage collection off, and as it was behind it.

    The judge and a worker do so during rounds, as `timeit` does: a collection would fall into a round's time, and made
    up most of the 2 ms that naming 256 results took. Both do so while they load torch: looking through what it is made
    of is a fifth of the time that loading takes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
