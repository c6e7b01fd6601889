"""What the clock makes of a round, by plain values: no worker, no time."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness import oracle
from harness.errors import SubmissionError
from harness.protocol.wire import Captured, Named, OutputRef
from harness.reasons import Reason
from harness.timing import stats
from harness.timing.data.data_set import CaseOutputs
from harness.timing.data.expected_rounds import ExpectedRound
from harness.timing.rounds.clock import Clock, _Run
from harness.timing.rounds.contender import Contender, ProcessorTime
from harness.timing.rounds.inspection import Inspector
from harness.timing.rounds.round import Evidence, Round

ROWS, COLUMNS, CALLS, TOLERANCE = 4, 8, 3, 1e-3
FORM = oracle.Form((ROWS, COLUMNS), (COLUMNS, 1), torch.float32)
OUTPUTS = CaseOutputs([FORM], [TOLERANCE], ROWS)
DEVICE = SimpleNamespace(torch_device=torch.device("cpu"))
RIGHT = torch.arange(ROWS * COLUMNS, dtype=torch.float64).reshape(ROWS, COLUMNS)
SAMPLED = np.arange(CALLS * 5, dtype=np.float64).reshape(CALLS, 5)


def inspect(*, full=1, got=RIGHT, seen=SAMPLED, compared=range(CALLS), form=FORM, named=None, held=None):
    """Have a round of three calls judged; `got` is what the call that is read in full returned, `held` what was read of
    it as soon as the clock had stopped."""
    ref = OutputRef(4096, list(FORM.shape), list(FORM.stride), "float32", "cpu", "torch.Tensor")
    named = named or Named([[ref] for _ in range(CALLS)])
    reader = SimpleNamespace(read=lambda *_: got.float())
    compared = list(compared)
    evidence = Evidence(None, compared, full, None, named, [np.array(seen)], [held])
    played = Round(
        Contender("submission", None, reader), CALLS, 1e-3, 0.0, 0.0, True, evidence, ProcessorTime(0.0, 0.0, 0.0)
    )
    expected = ExpectedRound([SAMPLED[compared]], [RIGHT] if full is not None else [])
    Inspector(DEVICE, CaseOutputs([form], [TOLERANCE], ROWS)).judge(played, expected)


def test_a_round_as_expected_passes():
    inspect()
    inspect(got=RIGHT + 0.9 * TOLERANCE, seen=SAMPLED + 0.9 * TOLERANCE)


@pytest.mark.parametrize("element", [(0, 0), (1, 3), (ROWS - 1, COLUMNS - 1)])
def test_one_wrong_element_that_no_sample_meets_is_found_by_the_full_comparison(element):
    got = RIGHT.clone()
    got[element] += 2 * TOLERANCE
    with pytest.raises(SubmissionError, match="in a timed call: 1 of 32 elements") as refused:
        inspect(got=got)
    assert refused.value.reason == Reason.WRONG_WHEN_TIMED


@pytest.mark.parametrize("call, sample", [(0, 0), (1, 2), (CALLS - 1, 4)])
def test_one_wrong_sample_is_found_though_the_output_is_right_later(call, sample):
    """As that of an output which is finished between the clock's stop and the full reading."""
    seen = SAMPLED.copy()
    seen[call, sample] += 2 * TOLERANCE
    with pytest.raises(SubmissionError, match="a wrong element in a timed call") as refused:
        inspect(seen=seen)
    assert refused.value.reason == Reason.WRONG_WHEN_TIMED


def test_what_is_compared_in_full_is_what_was_there_when_the_clock_stopped():
    unfinished = RIGHT.float().clone()
    unfinished[2, 5] = 0.0
    with pytest.raises(SubmissionError, match="in a timed call: 1 of 32 elements"):
        inspect(held=unfinished, got=RIGHT)
    inspect(held=RIGHT.float(), got=unfinished)


def test_a_round_whose_outputs_must_be_mapped_first_lasts_until_they_are_read(monkeypatch):
    """They may be written at any time until then."""
    now_s = itertools.count(10.0, 5.0)
    monkeypatch.setattr("harness.timing.rounds.clock.time.perf_counter", lambda: next(now_s))
    reader = SimpleNamespace(sample=lambda *_: next(now_s) and SAMPLED)
    run = _Run(started_s=1.0, elapsed_s=2.0, reply=None, addresses=np.zeros((CALLS, 1), np.int64), seen=[])
    again = run.read_again(reader, [(0, np.zeros((CALLS, 5), np.int64), torch.float32)])
    assert again.elapsed_s == 15.0 - 1.0
    assert again.seen[0] is SAMPLED


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sample_that_is_no_number_is_wrong_where_a_number_belongs(value):
    seen = SAMPLED.copy()
    seen[1, 1] = value
    with pytest.raises(SubmissionError, match="a wrong element"):
        inspect(seen=seen)


def test_only_the_calls_that_were_planned_are_compared():
    seen = SAMPLED.copy()
    seen[0] += 1.0
    inspect(seen=seen, compared=[1, 2])


def test_forbidden_operators_and_other_forms_are_refused_in_timed_calls_too():
    with pytest.raises(SubmissionError, match="aten::native_layer_norm ran in a timed call"):
        inspect(named=Named([], forbidden=["aten::native_layer_norm"]))
    ref = OutputRef(4096, [ROWS, COLUMNS], [COLUMNS, 1], "float64", "cpu", "torch.Tensor")
    with pytest.raises(SubmissionError, match="dtype of the output is float64"):
        inspect(named=Named([[ref]] * CALLS))


def held(written_in, *, check_all_inputs, buffers=(2, 5), count=8):
    """Have a contender held of which the buffer `written_in` was changed; which buffers were looked at."""
    looked, paused = set(), []

    class Pool:
        buffer_count = count

        def written_by_others(self, buffers):
            looked.update(buffers)
            return written_in in looked

    clock = object.__new__(Clock)
    clock._pool = Pool()
    clock._random = SimpleNamespace(choice=lambda among: among[0], randrange=lambda count: count - 1)
    worker = SimpleNamespace(pause=lambda: paused.append(True))
    try:
        clock._hold(Contender("submission", worker, None), list(buffers), check_all_inputs=check_all_inputs)
        refused = None
    except SubmissionError as error:
        refused = error.reason
    assert paused == [True]
    return looked, refused


def test_inputs_are_looked_at_while_their_contender_is_held():
    """One of those that it was given, one of all, and every one where others could be blamed."""
    assert held(None, check_all_inputs=False) == ({2, 7}, None)
    assert held(2, check_all_inputs=False)[1] == Reason.INPUT_MODIFIED
    assert held(7, check_all_inputs=False)[1] == Reason.INPUT_MODIFIED
    assert held(4, check_all_inputs=True) == (set(range(8)), Reason.INPUT_MODIFIED)


def test_the_whole_call_is_read_once_the_contender_stands_still():
    happened = []
    worker = SimpleNamespace(pause=lambda: happened.append("paused"))
    reader = SimpleNamespace(read_at=lambda *where: happened.append(where))
    clock = object.__new__(Clock)
    clock._forms = [FORM, FORM]
    assert clock._hold_and_read(Contender("submission", worker, reader), np.array([4096, 8192])) == [None, None]
    assert happened == [
        "paused",
        (4096, FORM.shape, FORM.stride, FORM.dtype),
        (8192, FORM.shape, FORM.stride, FORM.dtype),
    ]


def test_where_graphs_write_is_mapped_before_the_round_that_launches_them():
    """Of all buffers that are captured: a round launches some of them, secretly chosen."""
    refs = [OutputRef(4096 * (1 + i), [1], [1], "float32", "cuda", "torch.Tensor", allocation=0) for i in range(3)]
    learnt = []
    worker = SimpleNamespace(ask=lambda request, timeout_s: Captured(outputs=[[ref] for ref in refs], handles=["ab"]))
    reader = SimpleNamespace(learn=lambda *what: learnt.append(what))
    clock = object.__new__(Clock)
    clock._pool, clock._in_use, clock._timeout_s = SimpleNamespace(has_late_part=False), [5, 2, 7, 4], 1.0
    assert clock._ready_buffers(Contender("submission", worker, reader, captured=True), calls=1) == [5, 2, 7]
    assert learnt == [(refs, ["ab"])]


def test_addresses_have_to_be_one_for_each_output_of_each_call():
    clock = object.__new__(Clock)
    clock._forms = [FORM, FORM]
    assert clock._addresses(SimpleNamespace(addresses=[[1, 2], [3, 4]]), 2).tolist() == [[1, 2], [3, 4]]
    for addresses in ([[1, 2]], [[1, 2], [3]], [[1, 2], [3, 4], [5, 6]]):
        with pytest.raises(SubmissionError, match="2 calls gave"):
            clock._addresses(SimpleNamespace(addresses=addresses), 2)


@pytest.mark.parametrize("rounds", [15])
def test_the_interval_of_a_speedup_holds_the_true_ratio_as_often_as_it_says(rounds):
    """Of 1,000 drawn cases 930 at least. A percentile bootstrap of paired medians is wide with few rounds: 988."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        machine = rng.lognormal(0, 0.05, rounds)  # what slows both
        eager, own = (machine * median * rng.lognormal(0, 0.03, rounds) for median in (150.0, 100.0))
        low, high = stats.speedup(eager, own).interval
        hits += low <= 1.5 <= high
    assert 930 <= hits <= 995


def test_a_contender_s_numbers_follow_from_its_rounds():
    """Rounds of 4 calls of 25 µs beside 100 µs, of which null rounds take 90 to 110."""
    own = Contender(
        "submission", None, None, calls=4, round_s=[200e-6] * 7, issue_us=[20.0] * 6 + [24.0],
        null_s=[90e-6, *[100e-6] * 5, 110e-6],
    )  # fmt: skip
    assert own.fixed_us() == pytest.approx(100.0)
    assert own.samples_us() == pytest.approx([25.0] * 7)
    assert own.null_spread_us() == pytest.approx(20.0)
    # At most: as if its rounds had cost no more than the cheapest null round, less the doubt.
    assert own.at_most_us(doubt_us=0.0) == pytest.approx((200 - 90) / 4)
    assert own.at_most_us(doubt_us=20.0) == pytest.approx((200 - 70) / 4)
    assert own.median_issue_us() == 20.0
    assert not own.launch_bound() and own.known_within(0.0) and not own.below_noise()
    own.start_again(8)
    assert (own.calls, own.round_s, own.null_s, own.issue_us) == (8, [], [], [])


def test_a_call_is_launch_bound_from_nine_tenths_on():
    for issue_us, bound in ((89.0, False), (91.0, True)):
        own = Contender("submission", None, None, calls=1, round_s=[100e-6] * 6, null_s=[0.0] * 6,
                        issue_us=list(itertools.repeat(issue_us, 6)))  # fmt: skip
        assert own.launch_bound() is bound
