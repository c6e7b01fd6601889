"""What reports say of an evaluation, whatever their format."""

from __future__ import annotations

from harness.report.figures import over_eager, over_fastest
from harness.verdict import Accepted, CaseFailed, CasePassed, CodeFrame, Evaluation

STATUS_STYLE = {"accepted": "bold green", "rejected": "bold red", "error": "bold yellow"}


def named_in_message(evaluation: Evaluation) -> CaseFailed | None:
    """The failed case that the message is about: the first with its reason."""
    failed = [case for case in evaluation.cases if isinstance(case, CaseFailed)]
    reason = getattr(evaluation, "reason", None)
    return next((case for case in failed if case.reason == reason), failed[0] if failed else None)


def cause_of(evaluation: Evaluation) -> CaseFailed | None:
    """What to show first of what is wrong: the defect that all detectors saw, or the failed case that the message is
    about. None where no case failed."""
    return evaluation.finding or named_in_message(evaluation)


def frame_of(evaluation: Evaluation) -> CodeFrame | None:
    """The submission's lines that its cause is about."""
    cause = cause_of(evaluation)
    return cause.frame if cause else evaluation.frame


def _compared(evaluation: Accepted) -> bool:
    return evaluation.geomean_speedup is not None or evaluation.geomean_speedup_over_best is not None


def accepted_summary(evaluation: Accepted) -> str:
    """How many cases are correct, and the mean speedups or why there are none."""
    count = len(evaluation.cases)
    passed = f"{count} case{'s' * (count != 1)} correct"
    if evaluation.was_stopped:
        return f"{passed}; {evaluation.not_timed}"
    if any(isinstance(case, CasePassed) and case.timing for case in evaluation.cases) and not _compared(evaluation):
        return f"{passed}; timed, with no baseline to compare with on every timed case"
    if not _compared(evaluation):
        return f"{passed}; not timed" + (f": {evaluation.not_timed}" if evaluation.not_timed else "")
    text = f"{passed}; speedup over eager {over_eager(evaluation)}, over the fastest of the baselines "
    text += over_fastest(evaluation)
    if captured := evaluation.captured:
        text += f"; captured: over eager {over_eager(captured)}, over the fastest {over_fastest(captured)}"
    return f"{text} (geometric means, 95% intervals)" + ("; too noisy to rank" if evaluation.is_too_noisy else "")
