"""Limits that the environment sets, in GiB there."""

from __future__ import annotations

import math
import os

from harness.errors import HarnessError


def bytes_of(variable: str, otherwise: int) -> int:
    """The limit in `variable`, in bytes; `otherwise` where it is not set. Raises HarnessError for what is none."""
    text = os.environ.get(variable)
    if not text:
        return otherwise
    try:
        gib = float(text)
    except ValueError:
        gib = math.nan
    if not 0 <= gib < math.inf:
        raise HarnessError(f"{variable} is '{text}'; it should be a number of GiB, for example 2.5.")
    return int(gib * 2**30)
