"""How many rounds and calls contenders get, by scripted rounds: no worker, no clock."""

import itertools
import math
import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness import oracle
from harness.device.nvml import Seen
from harness.errors import Inconclusive, JudgeFailed, SubmissionError
from harness.reasons import Reason
from harness.records import ClockLimit
from harness.timing.data.data_set import CaseOutputs
from harness.timing.data.sample_plan import WHOLE_CALLS, Sampler, plan_comparison
from harness.timing.rounds import schedule
from harness.timing.rounds.calls import buffer_count, choose_calls, most_calls
from harness.timing.rounds.contender import Contender, ProcessorTime
from harness.timing.rounds.null_cost import LONGEST_NULL_US, NullCost
from harness.timing.rounds.round import MAPPING_TRIES, Round, play_mapped
from harness.timing.rounds.running import Running
from harness.timing.rounds.schedule import Schedule

# The rounds of each contender before those that count: one to warm up, and the probes.
PROBES = 2
CHOOSING = 1 + PROBES


NOTHING = ProcessorTime(0.0, 0.0, 0.0)


class ScriptedPlayer:
    """Plays rounds of given lengths.

    `call_us` has the time of a call in each round, by contender's name; a round takes that for each of its calls, and
    `overhead_us` beside them. `null_us` has what null rounds take beside the time that the device worked. `wrong` and
    `dying` hold names: their rounds are not as expected, or end in an error. `looks` has what was seen of the device
    around each set of rounds that counts, or would; there is nothing to see after the last. `processor_us` has the
    processor time of each round, by contender's name."""

    buffer_count = 1000

    def __init__(self, call_us, null_us=0.0, overhead_us=0.0, wrong=(), dying=(), written=False, mapped=True, looks=(),
                 processor_us=None):  # fmt: skip
        self._call_us = {name: iter(times) for name, times in call_us.items()}
        self._null_us = itertools.repeat(null_us) if isinstance(null_us, float) else iter(null_us)
        self._overhead_us = overhead_us
        self._wrong, self._dying, self._written = wrong, dying, written
        self._mapped = itertools.repeat(mapped) if isinstance(mapped, bool) else iter(mapped)
        self._looks = itertools.chain([[]] * CHOOSING, looks)
        self._processor_us = {name: iter(times) for name, times in (processor_us or {}).items()}
        self.played = []
        self.checked_all = []
        self.buffers_for = []

    def use_buffers_for(self, calls):
        self.buffers_for.append(calls)

    def fill(self):
        self._seen = next(self._looks, [])

    def seen(self):
        return self._seen

    def play(self, contender, calls, lasts_us=0.0, *, check_all_inputs=False):
        self.played.append((contender.name, calls, lasts_us))
        self.checked_all.append(check_all_inputs)
        if contender.name in self._dying:
            raise SubmissionError(Reason.CRASHED, "It is gone.")
        device_us = lasts_us if contender.name == "null" else 0.0
        elapsed_us = self._elapsed_us(contender.name, calls) + device_us
        used = (
            ProcessorTime(0.0, next(self._processor_us[contender.name]) / 1e6, 0.0) if self._processor_us else NOTHING
        )
        return Round(contender, calls, elapsed_us / 1e6, 10.0, device_us, next(self._mapped), None, used)

    def _elapsed_us(self, name, calls):
        return next(self._null_us) if name == "null" else self._overhead_us + calls * next(self._call_us[name])

    def expected(self, rounds):
        return iter(rounds)

    def judge(self, played, expected):
        assert played is expected
        if played.contender.name in self._wrong:
            raise SubmissionError(Reason.WRONG_WHEN_TIMED, "A wrong element.")

    def inputs_were_written(self):
        return self._written

    def rounds_of(self, name):
        return [calls for played, calls, _ in self.played if played == name]


def contender(name="submission", **state):
    return Contender(name, None, None, **state)


def schedule_of(player, *contenders, by_length=False):
    null_cost = NullCost(player, contender("null", trusted=True), by_length=by_length)
    return Schedule(player, null_cost, contenders, round_us=1_000.0)


def test_samples_are_the_time_of_a_round_less_the_median_null_round_over_its_calls():
    own = contender()
    null_us = [500.0, 500.0, 300.0, 400.0, 500.0, 600.0, 700.0, 500.0]
    call_us = [900.0, 100.0, 100.0, 100.0, 110.0, 90.0, 100.0, 130.0, 80.0]
    player = ScriptedPlayer({"submission": call_us}, null_us, overhead_us=500.0)
    assert schedule_of(player, own).measure(budget_s=0.0, half_width=0.0, least_rounds=6) == {}
    assert own.finished and own.calls == 10
    assert own.round_s == pytest.approx([(500.0 + 10 * call) / 1e6 for call in call_us[CHOOSING:]])
    assert own.null_s == pytest.approx([null / 1e6 for null in null_us[PROBES:]])
    assert own.samples_us() == pytest.approx(call_us[CHOOSING:])
    assert own.fixed_us() == pytest.approx(500.0)
    assert own.issue_us == pytest.approx([10.0 / 9] * 6)
    assert not own.below_noise()


def test_processor_time_of_a_call_is_what_a_round_took_more_than_the_null_kernels_over_its_calls():
    """However long others kept it from running."""
    own = contender()
    call_us = [100.0] * CHOOSING + [100.0, 400.0, 100.0, 300.0, 100.0, 120.0]
    used_us = {"submission": [0.0] * CHOOSING + [1_650.0] * 5 + [1_850.0],
               "null": [0.0] * PROBES + [140.0, 150.0, 150.0, 150.0, 160.0, 900.0]}  # fmt: skip
    schedule_of(ScriptedPlayer({"submission": call_us}, processor_us=used_us), own).measure(0.0, 0.01, 6)
    assert own.calls == 10
    assert own.processor_us() == pytest.approx([150.0] * 5 + [170.0])
    own.start_again(calls=20)
    assert own.processor_s == own.null_processor_s == []


def test_rounds_go_on_until_every_time_is_known():
    own, eager = contender(), contender("eager", trusted=True)
    noisy = [100.0, 140.0] * 4 + [120.0] * 100
    player = ScriptedPlayer({"submission": itertools.repeat(100.0), "eager": noisy})
    schedule_of(player, own, eager).measure(budget_s=60.0, half_width=0.01, least_rounds=6)
    assert 6 < len(own.round_s) == len(eager.round_s) < 50
    assert eager.known_within(0.01)


def test_rounds_that_take_no_longer_than_null_rounds_are_below_noise():
    own = contender()
    null_us = [500.0] * PROBES + [490.0, 510.0] * 5
    player = ScriptedPlayer({"submission": itertools.repeat(0.001)}, null_us, overhead_us=480.0)
    schedule_of(player, own).measure(budget_s=0.0, half_width=0.01, least_rounds=9)
    assert own.below_noise()


def test_who_is_below_noise_has_more_rounds_which_may_tell_its_time(monkeypatch):
    own, each_s = contender(), itertools.count()
    monkeypatch.setattr(schedule.time, "monotonic", lambda: float(next(each_s)))
    null_us = [480.0] * PROBES + [600.0] * 12 + [480.0] * 100
    player = ScriptedPlayer({"submission": itertools.repeat(0.1)}, null_us, overhead_us=480.0)
    schedule_of(player, own).measure(budget_s=10.0, half_width=0.01, least_rounds=6)
    assert not own.below_noise()
    assert 20 < len(own.round_s) < 40


def test_who_stays_below_noise_is_not_timed_for_ever(monkeypatch):
    own, each_s = contender(), itertools.count()
    monkeypatch.setattr(schedule.time, "monotonic", lambda: float(next(each_s)))
    player = ScriptedPlayer({"submission": itertools.repeat(0.1)}, 600.0, overhead_us=480.0)
    schedule_of(player, own).measure(budget_s=10.0, half_width=0.01, least_rounds=6)
    assert own.below_noise()
    assert 10 < len(own.round_s) <= 10 * schedule.BUDGETS_BELOW_NOISE + 1


def test_the_fastest_probe_chooses_the_calls_and_who_is_slow_at_first_is_probed_with_few():
    own, slow = contender(), contender("slow", trusted=True)
    times = {"submission": [9.0, 40.0, 20.0, *[20.0] * 6], "slow": [2_000.0, 1_000.0, 500.0, *[500.0] * 6]}
    player = ScriptedPlayer(times)
    schedule_of(player, own, slow).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert player.rounds_of("submission")[: CHOOSING + 1] == [2, 16, 25, 50]
    assert player.rounds_of("slow")[: CHOOSING + 1] == [2, 2, 2, 5]
    assert player.buffers_for == [25, 50]


def test_captured_rounds_begin_with_the_calls_that_others_had_and_one_probe():
    own = contender(calls=45, captured=True)
    player = ScriptedPlayer({"submission": itertools.repeat(20.0)})
    schedule_of(player, own).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert player.rounds_of("submission") == [45, 45, *[45] * 6], "a probe asks for 50, which is not many more"
    assert player.buffers_for == [45], "no others have to be captured"


def test_captured_rounds_of_calls_that_were_slow_to_launch_are_probed_again():
    own, eager = contender(calls=4, captured=True), contender("eager", calls=2, captured=True, trusted=True)
    times = {"submission": [9.0, 30.0, 20.0, *[20.0] * 6], "eager": itertools.repeat(2_000.0)}
    player = ScriptedPlayer(times)
    schedule_of(player, own, eager).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert player.rounds_of("submission") == [4, 4, 33, *[50] * 6]
    assert player.rounds_of("eager") == [2] * 9


def test_one_probe_is_enough_where_a_round_of_the_fewest_calls_is_long():
    own, eager = contender(), contender("eager", trusted=True)
    player = ScriptedPlayer({"submission": itertools.repeat(450.0), "eager": itertools.repeat(2_000.0)})
    schedule_of(player, own, eager).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert player.rounds_of("submission") == [2, 16] + [2] * 6
    assert player.rounds_of("eager") == [2, 2] + [2] * 6


def test_who_was_slow_in_an_only_probe_has_the_calls_that_its_rounds_ask_for():
    own = contender()
    times = [450.0, 450.0, *[50.0] * 20]
    player = ScriptedPlayer({"submission": times})
    schedule_of(player, own).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert player.rounds_of("submission") == [2, 16] + [2] * schedule.ROUNDS_TO_RESTART + [20] * 6


def test_all_start_again_when_one_became_faster():
    own, eager = contender(), contender("eager", trusted=True)
    times = {"submission": [*[250.0] * CHOOSING, *[50.0] * 20], "eager": itertools.repeat(100.0)}
    player = ScriptedPlayer(times)
    schedule_of(player, own, eager).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    again = schedule.ROUNDS_TO_RESTART
    # By themselves they would have 4 and 10 calls; the slower one's rounds may be so long that it has as many.
    assert player.rounds_of("submission")[CHOOSING:] == [10] * again + [20] * 6
    assert player.rounds_of("eager")[CHOOSING:] == [10] * again + [20] * 6
    assert own.samples_us() == pytest.approx([50.0] * 6)
    assert eager.samples_us() == pytest.approx([100.0] * 6)
    assert player.buffers_for == [10, 20]


@pytest.mark.parametrize("slow_rounds", range(1, 30))
def test_who_is_fast_at_last_has_as_many_rounds_as_are_needed_or_no_time(monkeypatch, slow_rounds):
    """Rounds do not go on for ever, and nobody may start again with too few of them left."""
    monkeypatch.setattr(schedule, "MAX_ROUNDS", 30)
    own = contender()
    slow = [300.0 + 100 * (n % 2) for n in range(slow_rounds)]
    call_us = [300.0] * CHOOSING + slow + [50.0 + 20 * (n % 2) for n in range(30)]
    told = True
    try:
        schedule_of(ScriptedPlayer({"submission": call_us}), own).measure(budget_s=60.0, half_width=0.0, least_rounds=9)
    except Inconclusive:
        told = False
    assert len(own.round_s) >= 9
    fast = statistics.median(own.samples_us()) < 100
    assert told == (not fast or own.calls > 3)


def test_who_becomes_faster_again_and_again_is_not_told_a_time_and_does_not_start_again_each_time():
    """Each time costs all the rounds so far, which may be as long as timeouts allow."""
    own = contender()
    times = [300.0 / 3 ** (n // 9) for n in range(5, 205)]  # the last five of each nine rounds are faster
    player = ScriptedPlayer({"submission": [300.0] * CHOOSING + times})
    with pytest.raises(Inconclusive, match="faster again and again") as stopped:
        schedule_of(player, own).measure(budget_s=0.0, half_width=0.01, least_rounds=9)
    assert stopped.value.reason == Reason.TOO_NOISY
    assert len(player.rounds_of("submission")) <= CHOOSING + 30
    assert len(own.round_s) >= 9


def test_nobody_is_left_out_because_another_became_faster(monkeypatch):
    monkeypatch.setattr(schedule, "MOST_RESTARTS", 0)
    steady, faster = contender(), contender("eager")
    times = {"submission": itertools.repeat(200.0), "eager": [200.0] * CHOOSING + [20.0] * 9}
    left_out = schedule_of(ScriptedPlayer(times), steady, faster).measure(budget_s=0.0, half_width=0.01, least_rounds=9)
    assert list(left_out) == ["eager"] and "faster again and again" in left_out["eager"]
    assert steady.finished and not faster.finished
    # With the other's it would have more calls.
    assert choose_calls({"": 200.0, "eager": 20.0}, 1_000.0, most=800)[""] >= 2 * steady.calls


def test_rounds_are_as_long_as_they_should_be_and_have_the_same_calls_where_they_can():
    assert choose_calls({"a": 100.0}, 6_000.0, most=200) == {"a": 60}
    assert choose_calls({"a": 100.0, "b": 190.0}, 6_000.0, most=200) == {"a": 60, "b": 60}
    assert choose_calls({"a": 100.0, "b": 400.0}, 6_000.0, most=200) == {"a": 60, "b": 37}
    assert choose_calls({"a": 100.0, "b": 8_000.0}, 6_000.0, most=200) == {"a": 60, "b": 2}
    assert choose_calls({"a": 10.0, "b": 90_000.0}, 6_000.0, most=200) == {"a": 200, "b": 2}


def test_what_workers_keep_of_all_buffers_fits_beside_their_contexts():
    """LayerNorm of 8192x4096 floats, a worker each for eight implementations, on a GPU of 80 GiB."""
    device = SimpleNamespace(input_bytes=10 << 30, result_bytes=52 << 30, worker_bytes=1 << 30)
    buffers = buffer_count(device, 6_000.0, 60.0, 128 << 20, 128 << 20, workers=8)
    assert buffers == 43
    assert 8 * (buffers * (128 << 20) + device.worker_bytes) <= device.result_bytes
    assert buffer_count(device, 6_000.0, 60.0, 128 << 20, 128 << 20, workers=4) == 80, "as many as the inputs allow"
    assert buffer_count(device, 6_000.0, 600.0, 128 << 20, 128 << 20, workers=8) == 12, "as many as a round needs"
    assert buffer_count(device, 6_000.0, 60.0, 128 << 20, 128 << 20, workers=100) == 3, "the least"
    with_places = buffer_count(device, 6_000.0, 60.0, 128 << 20, 128 << 20, workers=8, places_bytes=512 << 20)
    assert with_places == 40, "parameters that lie in several places take the room of results"


def test_no_round_has_more_calls_than_there_are_buffers_for():
    own = contender()
    player = ScriptedPlayer({"submission": itertools.repeat(1.0)})
    player.buffer_count = 8
    schedule_of(player, own).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert max(player.rounds_of("submission")) == most_calls(8) == 6


@pytest.mark.parametrize("how", ["wrong", "dying"])
def test_a_baseline_that_fails_is_left_out_and_a_submission_is_not(how):
    times = {"submission": itertools.repeat(100.0), "eager": itertools.repeat(100.0)}
    own, eager = contender(), contender("eager", trusted=True)
    player = ScriptedPlayer(times, **{how: ["eager"]})
    left_out = schedule_of(player, own, eager).measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert list(left_out) == ["eager"]
    assert own.finished and not eager.finished
    assert len(own.round_s) == 6 and len(player.rounds_of("eager")) == 1
    with pytest.raises(SubmissionError):
        schedule_of(ScriptedPlayer(times, **{how: ["submission"]}), own, eager).measure(0.0, 0.01, 6)


def test_a_trusted_baseline_whose_inputs_were_written_to_condemns_the_submission():
    times = {"submission": itertools.repeat(100.0), "eager": itertools.repeat(100.0)}
    player = ScriptedPlayer(times, wrong=["eager"], written=True)
    with pytest.raises(SubmissionError) as stopped:
        schedule_of(player, contender(), contender("eager", trusted=True)).measure(0.0, 0.01, 6)
    assert stopped.value.reason == Reason.INPUT_MODIFIED


def test_a_null_kernel_that_fails_is_the_judges_failure():
    player = ScriptedPlayer({"submission": itertools.repeat(100.0)}, dying=["null"])
    with pytest.raises(JudgeFailed, match="failed, not the submission"):
        schedule_of(player, contender()).measure(0.0, 0.01, 6)


def test_all_inputs_are_checked_while_one_of_several_could_blame_another():
    times = {name: itertools.repeat(100.0) for name in ("submission", "other", "eager")}
    trusted = contender("eager", trusted=True)
    for contenders, checked in (([contender(), trusted], False), ([contender(), contender("other"), trusted], True)):
        player = ScriptedPlayer(times)
        Running(player, contenders).play({one.name: 2 for one in contenders})
        assert player.checked_all == [checked] * len(contenders)


def test_a_round_in_which_memory_was_mapped_is_played_again_a_few_times():
    times = {"submission": itertools.count(100.0)}
    played = play_mapped(ScriptedPlayer(times, mapped=[False, True]), contender(), calls=1)
    assert played.mapped and played.elapsed_s == pytest.approx(101e-6)
    player = ScriptedPlayer(times, mapped=False)
    assert not play_mapped(player, contender(), calls=1).mapped
    assert len(player.played) == MAPPING_TRIES


COOL = [Seen(clock_limits=frozenset({ClockLimit.POWER_CAP}), processes=frozenset())] * 2
HOT = [*COOL, Seen(clock_limits=frozenset({ClockLimit.HARDWARE_THERMAL}))]
SHARED = [*COOL, Seen(processes=frozenset({4711}))]


@pytest.fixture
def no_respite(monkeypatch):
    monkeypatch.setattr(schedule, "RESPITE_S", 0.0)


@pytest.mark.parametrize("spoiled", [HOT, SHARED])
def test_rounds_on_a_device_that_is_throttled_or_shared_are_played_again_and_do_not_count(no_respite, spoiled):
    """All of a set, though nothing may be seen before the last of them has been played."""
    own, eager = contender(), contender("eager", trusted=True)
    times = {"submission": [100.0] * CHOOSING + [100.0, 999.0, 999.0] + [100.0] * 6, "eager": itertools.repeat(100.0)}
    player = ScriptedPlayer(times, looks=[COOL, spoiled, spoiled, COOL])
    timed = schedule_of(player, own, eager)
    timed.measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert own.samples_us() == pytest.approx([100.0] * 6)
    assert len(eager.round_s) == 6 and len(player.rounds_of("eager")) == CHOOSING + 8
    assert (timed.kept, timed.discarded) == ([COOL, COOL, [], [], [], []], [spoiled, spoiled])


def test_rounds_on_a_device_that_stays_as_it_is_count_after_a_few_tries(no_respite):
    own = contender()
    player = ScriptedPlayer({"submission": itertools.repeat(100.0)}, looks=itertools.repeat(HOT))
    timed = schedule_of(player, own)
    timed.measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert len(player.rounds_of("submission")) == CHOOSING + 6 + schedule.MOST_DISCARDED
    assert (timed.kept, timed.discarded) == ([HOT] * 6, [HOT] * schedule.MOST_DISCARDED)


def test_what_was_seen_before_all_started_again_is_not_told_of_the_rounds_that_count():
    times = {"submission": [*[250.0] * CHOOSING, *[50.0] * 20]}
    timed = schedule_of(ScriptedPlayer(times, looks=[COOL] * schedule.ROUNDS_TO_RESTART), own := contender())
    timed.measure(budget_s=0.0, half_width=0.01, least_rounds=6)
    assert timed.kept == [[]] * 6 and len(own.round_s) == 6


def rounds_of_8_calls(**elapsed_s):
    return [Round(contender(name), 8, s, 0.0, 0.0, True, None, NOTHING) for name, s in elapsed_s.items()]


def test_null_rounds_on_a_gpu_last_as_long_as_the_rounds_that_they_are_compared_with():
    rounds = rounds_of_8_calls(short=1e-3, alike=1.1e-3, long=8e-3, longest=1.0)
    player = ScriptedPlayer({}, null_us=[300.0, 400.0, 500.0])
    null_cost = NullCost(player, contender("null", trusted=True), by_length=True)
    costs_s = {name: cost.elapsed_s for name, cost in null_cost.of(rounds).items()}
    assert costs_s == pytest.approx({"short": 300e-6, "alike": 300e-6, "long": 400e-6, "longest": 500e-6})
    # The device works for what is left of the round once the last null round's cost is taken off.
    assert [lasts_us for _, _, lasts_us in player.played] == pytest.approx([1_050.0, 7_700.0, LONGEST_NULL_US])


def test_one_null_round_on_a_cpu_serves_all_rounds_of_as_many_calls():
    player = ScriptedPlayer({}, null_us=[300.0, 400.0])
    null_cost = NullCost(player, contender("null", trusted=True), by_length=False)
    fewer = Round(contender("fewer"), 4, 1e-3, 0.0, 0.0, True, None, NOTHING)
    costs = null_cost.of([*rounds_of_8_calls(short=1e-3, long=8e-3), fewer])
    costs_s = {name: cost.elapsed_s for name, cost in costs.items()}
    assert costs_s == pytest.approx({"short": 400e-6, "long": 400e-6, "fewer": 300e-6})
    assert player.rounds_of("null") == [4, 8]


def outputs_of(rows, *shapes_and_strides):
    forms = [oracle.Form(shape, stride, torch.float32) for shape, stride in shapes_and_strides]
    return CaseOutputs(forms, [0.0] * len(forms), rows)


def test_samples_lie_where_their_elements_are_in_every_layout():
    layouts = [((6, 4, 3), (12, 3, 1)), ((6, 4, 3), (1, 6, 24)), ((6,), (2,))]
    samples = Sampler(outputs_of(6, *layouts)).draw(calls=5)
    rows = math.ceil(64 / 5)
    assert samples.rows.shape == (5, rows)
    for (shape, stride), elements, offsets in zip(layouts, samples.elements, samples.offsets, strict=True):
        memory = torch.arange(200).as_strided(shape, stride).numpy().reshape(6, -1)
        assert elements.shape == (5, rows, 8)
        assert np.array_equal(offsets, memory[samples.rows[:, :, None], elements].reshape(5, -1))


def test_an_output_without_elements_is_not_read():
    samples = Sampler(outputs_of(6, ((6, 0), (1, 1)))).draw(calls=5)
    assert samples.elements[0].size == samples.offsets[0].size == 0
    assert len(samples.offsets[0]) == 5


def test_an_output_that_is_one_row_is_read_in_more_elements_and_few_of_its_calls_are_compared():
    sampler = Sampler(outputs_of(1, ((), ()), ((30,), (1,))))
    samples = sampler.draw(calls=9)
    assert [elements.shape for elements in samples.elements] == [(9, 1, 64)] * 2
    assert (samples.offsets[0] == 0).all() and samples.offsets[1].max() < 30
    compared = sampler.calls_to_compare(9)
    assert len(set(compared)) == WHOLE_CALLS and set(compared) <= set(range(9))
    assert len(sampler.calls_to_compare(2)) == 2
    assert Sampler(outputs_of(5, ((5,), (1,)))).calls_to_compare(9) == list(range(9))


def test_a_plan_has_the_buffers_rows_and_elements_of_its_calls():
    samples = SimpleNamespace(rows=np.arange(8).reshape(4, 2), elements=[np.arange(16).reshape(4, 2, 2)])
    plan = plan_comparison(samples, buffers=[7, 5, 3, 1], compared=[2, 0], full=3)
    assert (plan.buffers, plan.full) == ([3, 7], 1)
    assert plan.rows.tolist() == [[4, 5], [0, 1]]
    assert plan.elements[0].tolist() == [[[8, 9], [10, 11]], [[0, 1], [2, 3]]]
    assert plan_comparison(samples, [7, 5, 3, 1], [0], full=None).full is None
