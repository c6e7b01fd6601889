"""How a submission is judged that a program gives: what plan.Arguments has, as far as it makes sense for one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, get_type_hints

import msgspec
from msgspec import Struct

from harness.errors import UsageError, misfit, misfit_of_few
from harness.paths import no_such_problem
from harness.plan import Arguments, named_problem
from harness.settings import DTYPE_NAMES, Effort


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields are those of plan.Arguments, where each is explained."""

    problem: str | None = None
    """A file, or a name in problems/; None for that of the submission's folder."""
    device: Literal["cuda", "cpu", "emulator"] | None = None
    select: str = ""
    dtype: str = ""
    seed: int | None = None
    against: str | None = None
    effort: Effort = "usual"
    timing: bool = True
    check: bool = False
    first_failure: bool = False
    device_time: bool = False
    show_output: bool = False
    timeout_s: float = 60.0

    def arguments(self, path: Path, isolation: str) -> Arguments:
        """For the submission in `path`."""
        return Arguments(paths=(path,), isolation=isolation, **msgspec.structs.asdict(self))


class Given(TypedDict, total=False):
    """Options by their names, for who checks types."""

    problem: str | None
    device: Literal["cuda", "cpu", "emulator"] | None
    select: str
    dtype: str
    seed: int | None
    against: str | None
    effort: Effort
    timing: bool
    check: bool
    first_failure: bool
    device_time: bool
    show_output: bool
    timeout_s: float


def options(given: Mapping[str, Any], usual: Options) -> Options:
    """`usual` with what is given instead. Raises UsageError for what is no option, and for a problem that is not
    there."""
    _require_known(given)
    try:
        read = msgspec.convert({**msgspec.structs.asdict(usual), **given}, type=Options)
    except msgspec.ValidationError as error:
        few = misfit_of_few(get_type_hints(Options), given)
        raise UsageError(f"{few}." if few else f"The options are wrong: {misfit(error)}.") from error
    if not read.timeout_s > 0:  # nor what is no number
        raise UsageError(f"timeout_s must be more than 0 seconds, and {read.timeout_s:g} was given.")
    if read.problem is not None and not named_problem(read.problem).is_file():
        raise UsageError(no_such_problem(named_problem(read.problem)))
    return msgspec.structs.replace(read, dtype=DTYPE_NAMES.get(read.dtype, read.dtype))


def _require_known(given: Iterable[str]) -> None:
    """Raises UsageError for a name that is no option's."""
    known = Options.__struct_fields__
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            instead = f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(known)}."
            raise UsageError(f"There is no option '{name}'. {instead}")
