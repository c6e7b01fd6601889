"""What is timed of a case, and what its rounds say, by plain values."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import torch

from harness import oracle
from harness.device.bandwidth import Bandwidth
from harness.errors import Inconclusive, SubmissionError
from harness.isolation.sandbox import PROCESSORS
from harness.notes import SUBMISSION, Disturbed, FasterThanMemory, TooNoisyToRank
from harness.oracle.data import Data
from harness.oracle.draw import CaseForms
from harness.oracle.outputs import Form
from harness.oracle.reference import Reference
from harness.problem import Case
from harness.protocol.wire import Differentiation
from harness.reasons import Reason
from harness.timing import concluding, contest
from harness.timing.case_times import CaseTimes, timing_result
from harness.timing.part import Part
from harness.timing.rounds.contender import Contender, ProcessorTime
from harness.timing.rounds.idle import IN_ALL_S, LONGEST_S, Idle
from harness.timing.timer import Timer
from harness.verdict import Accepted

ROWS, COLUMNS = 4, 8
X_BYTES, WEIGHT_BYTES = ROWS * COLUMNS * 4, COLUMNS * 4


def form(*shape):
    return Form(shape, tuple(torch.empty(shape).stride()), torch.float32)


def forms(random=None):
    """A step of LayerNorm without a bias: y, and the gradients of x and the weight."""
    case = Case("a", layout="transposed", upstream="expanded")
    wanted = Differentiation(outputs=[0], inputs=[0], parameters=["weight"])
    model = torch.nn.LayerNorm(COLUMNS, bias=False)
    reference = Reference(case, False, model, (), wanted, random or {})
    x, weight = form(ROWS, COLUMNS), form(COLUMNS)
    return CaseForms(reference, [x], [x], [x, x, weight])


def test_a_step_is_timed_whole_then_forward_then_backward():
    assert forms().reference.timed_parts == ("step", "forward", "backward")
    assert forms(random={0: 0.5}).reference.timed_parts == ("forward",)


@pytest.mark.parametrize(
    ("name", "given", "written", "late", "layouts"),
    [
        ("step", 2 * X_BYTES, 2 * X_BYTES + WEIGHT_BYTES, 2 * X_BYTES, ["transposed", "expanded"]),
        ("forward", X_BYTES, X_BYTES, X_BYTES, ["transposed"]),
        ("backward", 2 * X_BYTES, X_BYTES + WEIGHT_BYTES, X_BYTES, ["transposed", "expanded"]),
    ],
)
def test_each_part_has_its_bytes_and_layouts(name, given, written, late, layouts):
    part = Part(forms(), name, "a")
    assert (part.read_bytes, part.written_bytes, part.late_bytes) == (given, written, late)
    assert part.bytes_min == given + WEIGHT_BYTES + written
    assert part.layouts == layouts
    assert part.shown == ("" if name == "step" else name)
    results = 2 * X_BYTES + WEIGHT_BYTES
    assert part.held_bytes == results + results // 2


def test_results_of_training_may_be_dropped_where_the_case_is_random():
    (y,) = Part(forms(random={0: 0.25}), "forward", "a").results
    assert y.dropout == 0.25
    assert all(result.dropout == 0.0 for result in Part(forms(), "step", "a").results)


def test_what_is_expected_in_training_is_scaled_and_its_tolerance_with_it():
    reference = forms(random={0: 0.75}).reference
    y, gradient = (oracle.Expected(torch.ones(2).double(), form(2), 0.1) for _ in range(2))
    kept, same = reference.in_training([y, gradient])
    assert kept.values.tolist() == [4.0, 4.0]
    assert (kept.tolerance, kept.form.dropout) == (pytest.approx(0.4), 0.75)
    assert same is gradient


def test_data_lie_as_the_case_says():
    data = Data([torch.arange(6.0).reshape(2, 3)], (torch.ones(()).expand(2, 3),))
    x, upstream = data.laid_out(Case("a", layout="transposed", upstream="expanded"))
    assert (x.stride(), upstream.stride()) == ((1, 2), (0, 0))
    assert torch.equal(x, data.inputs[0])


def contender(name, round_us, null_us=1_000.0, calls=10):
    """Nine rounds of so long, of which the null kernel's take `null_us`."""
    return Contender(
        name, None, None, calls=calls, finished=True,
        round_s=[round_us / 1e6] * 9, null_s=[null_us / 1e6] * 9, issue_us=[1.0] * 9,
    )  # fmt: skip


def test_baselines_below_the_noise_are_no_longer_finished():
    clear, lost = contender("eager", 2_000.0), contender("compile", 999.0)
    assert concluding.leave_out_those_below_noise([clear, lost]) == [lost]
    assert (clear.finished, lost.finished) == (True, False)


def test_a_submission_below_the_noise_is_inconclusive_and_the_sentence_names_the_part():
    part = Part(forms(), "backward", "a case")
    concluding.require_a_time(contender(SUBMISSION, 2_000.0), part)
    with pytest.raises(Inconclusive, match="'a case', backward could not be timed") as error:
        concluding.require_a_time(contender(SUBMISSION, 999.0), part)
    assert error.value.reason == Reason.TOO_NOISY


CPU = SimpleNamespace(is_cpu=True, cache_bytes=0)


@pytest.mark.parametrize(
    "beside_ms, allowed_ms, refused", [(100, 30, False), (300, 30, True), (300, 480, False), (600, 480, True)]
)
def test_work_beside_the_clock_is_refused_beyond_what_warming_up_takes(beside_ms, allowed_ms, refused):
    """Ten calls of 10 ms in a round, of which two are made to warm up; the null kernel takes 5 ms there."""
    own, null = contender(SUBMISSION, 100_000.0), contender("null", 1_000.0)
    own.processor_s = [ProcessorTime(beside_ms / 4e3, 0.1, beside_ms * 3 / 4e3)] * 9
    null.processor_s = [ProcessorTime(0.0, 0.0, 0.005)] * 9
    with pytest.raises(SubmissionError) if refused else contextlib.nullcontext() as error:
        concluding.refuse_work_beside_the_clock(own, null, 1 << 20, allowed_ms / 1e3, no_room=False)
    if refused:
        assert error.value.reason == Reason.WORKED_BESIDE_THE_CLOCK
        assert f"{beside_ms} ms" in error.value.message
        assert f"{beside_ms // 4} ms before, {beside_ms * 3 // 4} ms after" in error.value.message


def test_what_threads_spin_on_a_cpu_is_allowed_for_each_processor_and_what_a_driver_does_on_a_gpu():
    assert concluding.allowed_beside_s(CPU) == pytest.approx(0.03 * len(PROCESSORS))
    assert concluding.allowed_beside_s(SimpleNamespace(is_cpu=False)) == pytest.approx(0.2)


def test_work_beside_the_clock_on_a_device_without_room_is_no_verdict():
    """An allocation that fails has the allocator give back what it keeps and try again, in each round."""
    own, null = contender(SUBMISSION, 100_000.0), contender("null", 1_000.0)
    own.processor_s = [ProcessorTime(0.0, 0.1, 0.6)] * 9
    null.processor_s = [ProcessorTime(0.0, 0.0, 0.005)] * 9
    with pytest.raises(Inconclusive, match=r"memory is full.*600 ms.*--against") as error:
        concluding.refuse_work_beside_the_clock(own, null, results_bytes=0, allowed_s=0.03, no_room=True)
    assert error.value.reason == Reason.NOT_ENOUGH_MEMORY


def test_single_rounds_on_a_busy_machine_are_no_work_beside_the_clock():
    own, null = contender(SUBMISSION, 100_000.0), contender("null", 1_000.0)
    own.processor_s = [ProcessorTime(0.0, 0.1, 0.01)] * 5 + [ProcessorTime(0.0, 0.1, 5.0)] * 4
    null.processor_s = [ProcessorTime(0.0, 0.0, 0.005)] * 9
    concluding.refuse_work_beside_the_clock(own, null, results_bytes=0, allowed_s=0.03, no_room=True)


@pytest.mark.parametrize("left, refused", [([True] * 9, True), ([True] * 4 + [False] * 5, False), ([], False)])
def test_a_submission_that_mostly_leaves_the_device_at_work_is_refused(left, refused):
    own = contender(SUBMISSION, 100_000.0)
    own.left_device_busy = left
    with pytest.raises(SubmissionError) if refused else contextlib.nullcontext() as error:
        concluding.refuse_work_left_on_the_device(own)
    if refused:
        assert error.value.reason == Reason.RAN_WHILE_HELD
        assert "In 9 of 9 rounds" in error.value.message


def test_a_device_that_others_use_all_the_time_is_not_waited_for_without_end():
    limits_s = []

    class Busy:
        def wait_until_idle(self, limit_s):
            limits_s.append(limit_s)
            return limit_s + 0.1

    idle = Idle(Busy())
    assert not any(idle.wait() for _ in range(30))
    assert limits_s[0] == LONGEST_S and limits_s[-1] == 0.0
    assert sum(limits_s) <= IN_ALL_S
    assert Idle(SimpleNamespace(wait_until_idle=lambda limit_s: 0.0)).wait()


def times(*contenders, late_bytes):
    return CaseTimes(
        part="forward", contenders={c.name: c for c in contenders}, launch_bound=False, late_bytes=late_bytes,
        written_bytes=0, device_times={}, bytes_min=late_bytes, notes=[], versions={},
    )  # fmt: skip


def test_less_time_than_the_bytes_need_is_refused_unless_the_reference_needs_less_too():
    """Calls of 100 µs. At 10 GB/s 0.9 MB take 90 µs, and 10 MB take 1 ms."""
    fast, bandwidth = contender(SUBMISSION, 2_000.0), 1e10
    concluding.refuse_the_impossible(times(fast, late_bytes=900_000), CPU, bandwidth)
    too_much = times(fast, contender("eager", 20_000.0), late_bytes=10_000_000)
    with pytest.raises(SubmissionError, match="A call took at most 100 µs") as error:
        concluding.refuse_the_impossible(too_much, CPU, bandwidth)
    assert error.value.reason == Reason.IMPOSSIBLE_TIME
    view = times(fast, contender("eager", 2_000.0), late_bytes=10_000_000)
    concluding.refuse_the_impossible(view, CPU, bandwidth)


def test_a_median_below_what_memory_allows_is_in_doubt_within_its_interval():
    """Half of the rounds have calls of 100 µs, half of 110 µs; at 10 GB/s 1.05 MB take 105 µs."""
    own = contender(SUBMISSION, 2_000.0)
    own.round_s = [s * (1.1 if i >= 5 else 1.0) for i, s in enumerate(own.round_s)]
    at, bandwidth = times(own, contender("eager", 20_000.0), late_bytes=1_050_000), 1e10
    assert concluding.is_faster_than_memory(at, CPU, bandwidth)
    assert not concluding.is_impossible(at, CPU, bandwidth)
    assert not concluding.is_faster_than_memory(at, CPU, 2 * bandwidth)
    view = times(own, contender("eager", 2_000.0), late_bytes=1_050_000)
    assert not concluding.is_faster_than_memory(view, CPU, bandwidth)


class SteadyDevice:
    """Says one bandwidth after the other."""

    is_cpu, cache_bytes, name = True, 0, "cpu"

    def __init__(self, *best):
        self._best = iter(best)

    def bandwidth(self):
        return Bandwidth(1e9, next(self._best))


def timed_again(monkeypatch, device, *seen, part=""):
    """The timer's answer when a part is timed and gets `seen`, one after the other."""
    timer = Timer(device, problem=None, settings=SimpleNamespace(effort="quick"), null=None)
    answers = iter(seen)
    monkeypatch.setattr(timer, "_time_once", lambda *_: next(answers))
    return timer._time_part(SimpleNamespace(case="a", shown=part), {})


def test_a_time_in_doubt_is_measured_again_and_noted_when_it_stays(monkeypatch):
    def seen():
        return times(contender(SUBMISSION, 2_000.0), contender("eager", 20_000.0), late_bytes=1_050_000)

    slower = times(contender(SUBMISSION, 4_000.0), contender("eager", 20_000.0), late_bytes=1_050_000)
    assert timed_again(monkeypatch, SteadyDevice(1e10), seen(), slower) is slower
    assert slower.notes == []
    assert timed_again(monkeypatch, SteadyDevice(1e10), seen(), seen()).notes == [FasterThanMemory(case="a")]
    assert timed_again(monkeypatch, SteadyDevice(2e10), seen()).notes == []


def test_the_bandwidth_is_measured_again_before_a_time_is_called_impossible():
    """What kept the memory busy at first made it look slow."""
    fast = times(contender(SUBMISSION, 2_000.0), contender("eager", 20_000.0), late_bytes=10_000_000)
    settings = SimpleNamespace(effort="quick")
    Timer(SteadyDevice(1e10, 2e11), None, settings, None)._refuse_the_impossible(fast)
    with pytest.raises(SubmissionError, match="cannot be moved"):
        Timer(SteadyDevice(1e10, 9e9), None, settings, None)._refuse_the_impossible(fast)


def swinging(name, call_us, spread):
    """Nine rounds of ten calls, whose median is known within the share `spread`: the interval leaves two rounds out."""
    own = contender(name, 0.0)
    shares = [-0.9, -spread, 0, 0, 0, 0, 0, spread, 0.9]
    own.round_s = [(1_000.0 + 10 * call_us * (1 + share)) / 1e6 for share in shares]
    return own


@pytest.mark.parametrize(
    ("spreads", "noted"),
    [
        ({SUBMISSION: 0.09, "eager": 0.09, "compile": 0.09, "liger": 0.09}, []),
        ({SUBMISSION: 0.12}, [SUBMISSION]),
        ({"eager": 0.2, SUBMISSION: 0.5}, [SUBMISSION, "eager"]),
        ({"compile": 0.3}, ["compile"]),
        ({"liger": 0.3}, []),  # neither eager nor the fastest
    ],
)
def test_a_case_on_a_cpu_is_too_noisy_to_rank_by_the_times_that_decide_a_rank(spreads, noted):
    medians = {SUBMISSION: 100.0, "eager": 400.0, "compile": 200.0, "liger": 300.0}
    timed = times(*(swinging(name, us, spreads.get(name, 0.0)) for name, us in medians.items()), late_bytes=0)
    found = concluding.too_noisy(timed, CPU, "a")
    wide = {name: pytest.approx(spreads[name]) for name in noted}
    assert found == ([TooNoisyToRank(case="a", reaches=wide)] if noted else [])
    assert concluding.too_noisy(timed, SimpleNamespace(is_cpu=False), "a") == []


def test_a_whole_call_is_said_to_be_too_noisy_and_a_part_has_no_rank(monkeypatch):
    def seen():
        return times(swinging(SUBMISSION, 100.0, 0.2), contender("eager", 20_000.0), late_bytes=0)

    (note,) = timed_again(monkeypatch, SteadyDevice(1e10), seen()).notes
    assert note == TooNoisyToRank(case="a", reaches={SUBMISSION: pytest.approx(0.2)})
    assert timed_again(monkeypatch, SteadyDevice(1e10), seen(), part="backward").notes == []


def test_processor_time_is_shown_on_a_cpu_with_the_speedup_by_it():
    """Calls of 100 µs that take 160 µs of two cores, eager's of 1,900 µs with 320 µs."""
    own, eager = contender(SUBMISSION, 2_000.0), contender("eager", 20_000.0)
    for one, used_ms in ((own, 1.7), (eager, 3.3)):
        one.processor_s = [ProcessorTime(0.0, used_ms / 1e3, 0.0)] * 9
        one.null_processor_s = [1e-4] * 9
    timed = times(own, eager, late_bytes=0)
    timed = replace(timed, on_processors=True, versions={"eager": ""})
    result = timing_result(timed, 1e10)
    assert (result.processor.median_us, result.processor.speedup) == (pytest.approx(160.0), None)
    assert result.baselines["eager"].processor.interval_us == pytest.approx((320.0, 320.0))
    assert result.baselines["eager"].processor.speedup.ratio == pytest.approx(2.0)
    assert result.baselines["eager"].speedup.ratio == pytest.approx(19.0)
    assert timing_result(replace(timed, on_processors=False), 1e10).processor is None


@pytest.mark.parametrize(("interval", "ranked"), [((1.81, 2.19), True), ((1.79, 2.1), False), ((1.9, 2.21), False)])
def test_a_rank_needs_a_speedup_that_is_known_within_a_tenth_on_either_side(interval, ranked):
    accepted = Accepted(
        problem="p", submission="s", source_sha256="", device="cuda", seed=1, cases=[], geomean_speedup=2.0,
        geomean_interval=interval,
    )  # fmt: skip
    assert accepted.is_ranked == ranked
    reaches = [note.reaches for note in contest.noted_if_wide(accepted).notes]
    assert reaches == ([] if ranked else [{"eager": pytest.approx(0.105)}])


def test_a_submission_with_a_time_in_doubt_is_not_ranked():
    accepted = Accepted(
        problem="p", submission="s", source_sha256="", device="cpu", seed=1, cases=[], geomean_speedup=2.0
    )
    assert accepted.is_ranked
    assert not msgspec.structs.replace(accepted, notes=[FasterThanMemory(case="a")]).is_ranked
    assert not msgspec.structs.replace(accepted, notes=[Disturbed(case="a")]).is_ranked
    assert not msgspec.structs.replace(accepted, notes=[TooNoisyToRank(case="a", reaches={SUBMISSION: 0.2})]).is_ranked
    of_no_rank = [Disturbed(case="a", part="backward"), Disturbed(case="a", captured=True)]
    assert msgspec.structs.replace(accepted, notes=of_no_rank).is_ranked
