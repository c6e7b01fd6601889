"""What a part's rounds say: which times are none, the GPU's own times, and times that cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness import verdict
from harness.device.base import Device
from harness.errors import Inconclusive, NotCaptured, Stopped, SubmissionError
from harness.isolation.sandbox import PROCESSORS
from harness.judging.runner import Runner
from harness.notes import SUBMISSION, Disturbed, TooNoisyToRank
from harness.reasons import Reason
from harness.timing import device_time, roofline, stats
from harness.timing.case_times import CaseTimes
from harness.timing.data.input_pool import InputPool
from harness.timing.part import Part
from harness.timing.rounds.clock import WARM_UP_CALLS
from harness.timing.rounds.contender import Contender

# Processor time that a submission may use in each round beside what is counted. On a CPU, of each processor that it
# works on: Python collects garbage, and threads of OpenMP spin after their last piece of work. GCC's look 300,000
# times, after the warm-up and after the last call; on a host with 16 processors, whose pauses are long, that was 231 ms
# in all. On a GPU, in all: honest files used up to 96 ms on a host of four H200s with 64 processors.
ALLOWED_BESIDE_OF_EACH_PROCESSOR_S = 0.03
ALLOWED_BESIDE_ON_A_GPU_S = 0.2

# Linux gives back some 10 GB a second of pages that were written.
GIVING_BACK_S_PER_BYTE = 1e-10

# What a captured round may end with where nothing is wrong with the calls: a kernel that takes a number from the host,
# such as a seed, repeats it in every launch of its graph, and a time may be lost in noise.
FAULTS_OF_GRAPHS = frozenset({Reason.WRONG_WHEN_TIMED, Reason.NOT_RANDOM, Reason.TOO_NOISY})

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


def can_be_captured(device: Device, part: Part) -> bool:
    """Whether there are captured rounds. A backward alone has none: its forward would have to be done again and
    again."""
    return not device.is_cpu and not part.early


def case_times(part: Part, contenders: Sequence[Contender], runners: Mapping[str, Runner], device: Device) -> CaseTimes:
    """The times of those that are finished, without the GPU's own and without notes."""
    finished = [contender for contender in contenders if contender.finished]
    return CaseTimes(
        part=part.name,
        contenders={contender.name: contender for contender in finished},
        launch_bound=is_launch_bound(device, contenders[0]),
        late_bytes=part.late_bytes,
        written_bytes=part.written_bytes,
        device_times={},
        bytes_min=part.bytes_min,
        notes=[],
        on_processors=device.is_cpu,
        versions={label: runner.version for label, runner in runners.items()},
    )


def device_times(
    contenders: Sequence[Contender], runners: Mapping[str, Runner], pool: InputPool
) -> dict[str, verdict.DeviceTime]:
    """The GPU's own times of all contenders. Raises SubmissionError."""
    times: dict[str, verdict.DeviceTime] = {}
    for contender in contenders:
        calls = range(min(pool.buffer_count, contender.calls))
        timed = device_time.of_a_call(runners[contender.name], calls, pool)
        times |= {contender.name: timed} if timed else {}
    return times


def captured_fault(error: Stopped, *, has_ended: bool) -> str:
    """Why there is no captured time, where `error` in a captured round speaks of the graphs alone: of a submission that
    is right when it is called. Graphs take memory that calls do not; who `has_ended` for memory took more than a worker
    may have. Raises SubmissionError, or `error`, where it is more than that."""
    if isinstance(error, NotCaptured) or error.reason in FAULTS_OF_GRAPHS:
        return error.message
    if error.reason == Reason.OUT_OF_MEMORY and not has_ended:
        return error.message
    if isinstance(error, Inconclusive):
        raise error
    raise SubmissionError(error.reason, f"As CUDA graphs of its calls: {error.message}") from error


def _least_us(times: CaseTimes, device: Device, bandwidth: float) -> float:
    """How long a call takes at least, at `bandwidth` bytes a second."""
    return roofline.impossible_us(
        times.late_bytes,
        times.written_bytes if times.part == "forward" else 0,  # gradients may be views of each other
        times.contenders[SUBMISSION].calls,
        device.cache_bytes,
        bandwidth,
    )


def _at_most_us(device: Device, contender: Contender) -> float:
    return contender.at_most_us(contender.null_spread_us() if device.is_cpu else ROUND_DOUBT_US)


def is_impossible(times: CaseTimes, device: Device, bandwidth: float) -> bool:
    """Whether the submission took less time than its bytes need at `bandwidth` bytes a second, whatever its interval
    leaves open. Where the reference itself takes less, as when it returns a view, the bytes need not be moved."""
    least_us, eager = _least_us(times, device, bandwidth), times.contenders.get("eager")
    if eager and _at_most_us(device, eager) < least_us:
        return False
    return _at_most_us(device, times.contenders[SUBMISSION]) < least_us


def is_faster_than_memory(times: CaseTimes, device: Device, bandwidth: float) -> bool:
    """Whether the median of the submission's times is less than its bytes need, and the reference's is not."""
    least_us = _least_us(times, device, bandwidth)
    faster = {name for name in times.contenders if float(np.median(times.samples_us(name))) < least_us}
    return SUBMISSION in faster and "eager" not in faster


def refuse_the_impossible(times: CaseTimes, device: Device, bandwidth: float) -> None:
    """Raises SubmissionError when a call's time `is_impossible`."""
    if is_impossible(times, device, bandwidth):
        took_us = max(_at_most_us(device, times.contenders[SUBMISSION]), 0)
        raise SubmissionError(
            Reason.IMPOSSIBLE_TIME,
            f"A call took at most {took_us:.3g} µs, and its inputs and outputs cannot be moved in less than "
            f"{_least_us(times, device, bandwidth):.3g} µs at the best bandwidth measured here: the work was not done "
            "in the call.",
        )


def allowed_beside_s(device: Device) -> float:
    """Processor time in seconds that a submission may use in each round beside its timed calls, whatever they cost."""
    return ALLOWED_BESIDE_OF_EACH_PROCESSOR_S * len(PROCESSORS) if device.is_cpu else ALLOWED_BESIDE_ON_A_GPU_S


def refuse_work_beside_the_clock(
    submission: Contender, null: Contender, results_bytes: int, allowed_s: float, *, no_room: bool
) -> None:
    """Raises SubmissionError when the submission used more of the processors between its timed calls than it needs.

    It may take what the null kernel takes there, what its warm-up calls take while they are timed, and what it costs to
    give back the `results_bytes` of a call, each three times, and `allowed_s` seconds. Medians of all rounds count.
    Raises Inconclusive instead where the device had `no_room` for the results of one more call: whoever allocates then
    waits, gives back what it can, and tries again."""
    used = submission.processor_s
    a_call_s = float(np.median([each.timed for each in used])) / submission.calls
    gives_back_s = submission.calls * results_bytes * GIVING_BACK_S_PER_BYTE
    own_s, null_s = (float(np.median([each.beside for each in c.processor_s])) for c in (submission, null))
    limit_s = allowed_s + 3 * (null_s + WARM_UP_CALLS * a_call_s + gives_back_s)
    if own_s > limit_s and no_room:
        raise Inconclusive(
            Reason.NOT_ENOUGH_MEMORY,
            f"The device's memory is full, and the submission spent {own_s * 1e3:.3g} ms of the processors in each "
            "round on finding room. Free memory on the device, or compare with fewer implementations (--against).",
        )
    if own_s > limit_s:
        before_s, after_s = (float(np.median(of)) for of in zip(*((u.before, u.after) for u in used), strict=True))
        raise SubmissionError(
            Reason.WORKED_BESIDE_THE_CLOCK,
            f"Before and after its timed calls it used {own_s * 1e3:.3g} ms of the processors in each round "
            f"({before_s * 1e3:.3g} ms before, {after_s * 1e3:.3g} ms after), and needs at most {limit_s * 1e3:.3g} ms "
            "there. All work must be done in the call that it is for.",
        )


def refuse_work_left_on_the_device(submission: Contender) -> None:
    """Raises SubmissionError when most rounds left work on a device that was idle before them. A single round may meet
    what another program does there."""
    left = submission.left_device_busy
    if sum(left) > len(left) / 2:
        raise SubmissionError(
            Reason.RAN_WHILE_HELD,
            f"In {sum(left)} of {len(left)} rounds the GPU went on working when it was stopped, which slows what is "
            "timed next. Nothing of it may run between its calls.",
        )


def disturbed(conditions: verdict.Conditions | None, part: Part, *, captured: bool = False) -> list[Disturbed]:
    """A note where rounds count though the device was throttled or others used it; else nothing."""
    if conditions is None or not (conditions.throttled or conditions.other_processes):
        return []
    return [
        Disturbed(
            case=part.case,
            part=part.shown,
            captured=captured,
            throttled=[*conditions.throttled],
            processes=conditions.other_processes or [],
            discarded=conditions.discarded,
        )
    ]


def too_noisy(times: CaseTimes, device: Device, case: str) -> list[TooNoisyToRank]:
    """A note where times of a whole call on a CPU that decide a rank are not known well enough: the submission's,
    eager's or the fastest baseline's. On a GPU the speedup over all cases alone decides: what a round costs beside its
    calls is known to some 100 µs there, a third of 32 calls of 10 µs, and in the mean that becomes little."""
    if not device.is_cpu:
        return []
    medians = {name: float(np.median(times.samples_us(name))) for name in times.contenders}
    fastest = min(times.baselines, key=medians.__getitem__, default=SUBMISSION)
    compared = [name for name in times.contenders if name in (SUBMISSION, "eager", fastest)]
    reaches = {name: verdict.reach(medians[name], stats.median_interval(times.samples_us(name))) for name in compared}
    wide = {name: reach for name, reach in reaches.items() if reach > verdict.KNOWN_WITHIN}
    return [TooNoisyToRank(case=case, reaches=wide)] if wide else []


def require_a_time(submission: Contender, part: Part) -> None:
    """Raises Inconclusive when the submission's time is below the noise."""
    if submission.below_noise():
        raise Inconclusive(
            Reason.TOO_NOISY,
            f"'{part.case}'{part.shown and f', {part.shown}'} could not be timed: rounds of the submission took no "
            "longer than rounds without any call. It does next to nothing, or something else keeps the machine busy: "
            "then run it again when it is quiet.",
        )
