"""What a part's rounds say: which times are none, the GPU's own times, and times that cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness import verdict
from harness.device.base import Device
from harness.errors import Inconclusive, SubmissionError
from harness.judging.runner import Runner
from harness.reasons import Reason
from harness.timing import device_time, roofline
from harness.timing.case_times import SUBMISSION, CaseTimes
from harness.timing.data.input_pool import InputPool
from harness.timing.part import Part
from harness.timing.rounds.contender import Contender

# On an H200 rounds of honest kernels cost between 160 µs more than the null kernel's and 120 µs less.
ROUND_DOUBT_US = 150.0


def leave_out_those_below_noise(baselines: Sequence[Contender]) -> list[Contender]:
    """The baselines whose time cannot be told, which are no longer finished."""
    below_noise = [contender for contender in baselines if contender.finished and contender.below_noise()]
    for contender in below_noise:
        contender.finished = False
    return below_noise


def is_launch_bound(device: Device, contender: Contender) -> bool:
    """Whether Python and launches are most of a call; on a CPU nothing is launched."""
    return not device.is_cpu and contender.launch_bound()


def device_times(
    device: Device,
    part: Part,
    contenders: Sequence[Contender],
    runners: Mapping[str, Runner],
    pool: InputPool,
    *,
    asked: bool,
) -> dict[str, verdict.DeviceTime]:
    """The GPU's own times: of all contenders where they were `asked` for, of a submission that is launch-bound anyway.
    A backward alone has none: its forward would have to be done again and again. Raises SubmissionError."""
    times: dict[str, verdict.DeviceTime] = {}
    for contender in contenders:
        wanted = contender.name == SUBMISSION and is_launch_bound(device, contender)
        if device.is_cpu or part.early or not (wanted or asked):
            continue
        calls = range(min(pool.buffer_count, contender.calls))
        timed = device_time.of_a_call(runners[contender.name], calls, pool, in_a_graph=asked)
        times |= {contender.name: timed} if timed else {}
    return times


def refuse_the_impossible(times: CaseTimes, device: Device, bandwidth: float) -> None:
    """Raises SubmissionError when the submission took less time than its bytes need at `bandwidth` bytes a second.

    Where the reference itself takes less, as when it returns a view, the bytes need not be moved."""
    own = times.contenders[SUBMISSION]
    bound_us = roofline.impossible_us(
        times.late_bytes,
        times.written_bytes if times.part == "forward" else 0,  # gradients may be views of each other
        own.calls,
        device.cache_bytes,
        bandwidth,
        device.headroom,
    )
    doubt_us = own.null_spread_us() if device.is_cpu else ROUND_DOUBT_US
    took_us = own.at_most_us(doubt_us)
    eager = times.contenders.get("eager")
    if took_us < bound_us and not (eager and eager.at_most_us(doubt_us) < bound_us):
        raise SubmissionError(
            Reason.IMPOSSIBLE_TIME,
            f"A call took at most {max(took_us, 0):.3g} µs, and its inputs and outputs cannot be moved in less "
            f"than {bound_us:.3g} µs at the bandwidth measured here: the work was not done in the call.",
        )


def require_a_time(submission: Contender, part: Part) -> None:
    """Raises Inconclusive when the submission's time is below the noise."""
    if submission.below_noise():
        raise Inconclusive(
            Reason.TOO_NOISY,
            f"'{part.case}'{part.shown and f', {part.shown}'} could not be timed: rounds of the submission took no "
            "longer than rounds without any call. Something else keeps the machine busy; run it again when it is "
            "quiet.",
        )
