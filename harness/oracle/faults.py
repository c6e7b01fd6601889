"""What a reference does wrong, told as its problem's fault."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.errors import ReferenceFault, UsageError, out_of_memory
from harness.oracle.error_bound import RandomReference, StatefulReference
from harness.problem.file import said
from harness.surroundings import SettingChanged


@contextlib.contextmanager
def told(problem: Path, case: str) -> Iterator[None]:
    """Whatever a problem's author may have written ends in a ReferenceFault; too little memory is nobody's fault."""
    try:
        yield
    except UsageError:
        raise
    except RandomReference as error:
        raise ReferenceFault(
            f"The reference of {problem} draws random numbers in case '{case}': two calls on the same data "
            "differ, so that nothing can be compared with it. Name what a dropout makes random in RANDOM "
            "(docs/problems.md), or draw the numbers with the inputs."
        ) from error
    except StatefulReference as error:
        raise ReferenceFault(
            f"The reference of {problem} keeps something from call to call in case '{case}': a second call "
            "on the same data gives other outputs, so that they say nothing of one call. Give it what it keeps with "
            "the inputs, and return it."
        ) from error
    except SettingChanged as error:
        raise ReferenceFault(
            f"The reference of {problem} changes its caller's settings in case '{case}', which a submission must not: "
            f"{error} Or set it outside of forward."
        ) from error
    except Exception as error:
        if out_of_memory(error):
            raise
        raise ReferenceFault(
            f"The reference of {problem} cannot be run on case '{case}': {said(problem, error)}."
        ) from error
