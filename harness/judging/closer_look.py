"""A case that failed on the emulator, run again with all detectors: what looks like arithmetic is often a race."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.errors import Stopped
from harness.judging.correctness import Correctness
from harness.judging.runner import Runner
from harness.problem import Case
from harness.reasons import Group, Reason
from harness.verdict import CaseFailed

# Reasons behind which there may be a defect that only all detectors see, or that they name better.
MAY_HIDE_A_FINDING = frozenset({
    Reason.WRONG_OUTPUT, Reason.WRONG_WHEN_CALLED_AGAIN, Reason.NOT_DETERMINISTIC, Reason.OUTPUT_CHANGED,
    Reason.WRONG_GRADIENT, Reason.CRASHED, Reason.OUT_OF_BOUNDS,
})  # fmt: skip


def is_worth_it(failed: CaseFailed) -> bool:
    """Whether detectors may tell more; of an output of another form they cannot."""
    return failed.reason in MAY_HIDE_A_FINDING and (failed.reason != Reason.WRONG_OUTPUT or failed.worst is not None)


def look(
    correctness: Correctness, failed: CaseFailed, cases: Sequence[Case], start: Callable[[], Runner]
) -> tuple[bool, CaseFailed | None]:
    """Whether the case was run again, by the runner that `start` gives, and what its detectors found."""
    case = next(case for case in cases if case.name == failed.name)
    runner: Runner | None = None
    try:
        runner = start()
        runner.finish_loading()
        again = correctness.judge_again(runner, case)
    except Stopped:
        return False, None
    finally:
        if runner:
            runner.end()
    found = isinstance(again, CaseFailed) and again.reason.group is Group.FINDING
    return True, again if found and isinstance(again, CaseFailed) else None
