"""What holds for all values: statistics, tolerances, messages, keys and seeds, on cases that hypothesis draws."""

import dataclasses
import json
import socket
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import oracle
from harness.exits import Exit, of_results, why_not_fast
from harness.protocol.channel import Channel
from harness.protocol.extension import Extension, SourceText
from harness.protocol.values import decode_value, encode_value
from harness.protocol.wire import Named, OutputRef, Played, Ran
from harness.settings import fresh_seed, sub_seed
from harness.timing import roofline, stats
from harness.timing.rounds.calls import choose_calls, most_calls
from harness.verdict import Accepted, Errored, Rejected

settings.register_profile("kernelgate", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("kernelgate")

times = st.floats(1e-3, 1e6)
samples = st.lists(times, min_size=stats.MIN_SAMPLES, max_size=40)


# ---------------------------------------------------------------------- statistics


@given(samples)
def test_an_interval_holds_the_median_and_is_made_of_samples(drawn):
    low, high = stats.median_interval(drawn)
    assert low in drawn and high in drawn
    assert low <= np.median(drawn) <= high


@given(samples, st.floats(0.01, 100.0))
def test_slower_by_a_factor_is_an_interval_times_that_factor(drawn, factor):
    scaled = stats.median_interval([factor * sample for sample in drawn])
    assert scaled == pytest.approx([factor * end for end in stats.median_interval(drawn)])


@given(samples)
def test_a_larger_half_width_is_of_no_steadier_samples(drawn):
    wider = [*drawn, min(drawn) / 10, max(drawn) * 10, min(drawn) / 10, max(drawn) * 10]
    low, high = stats.median_interval(drawn)
    assert stats.relative_half_width(drawn) == pytest.approx((high - low) / 2 / np.median(drawn))
    assert stats.relative_half_width([*drawn, *drawn]) <= stats.relative_half_width(wider) * (1 + 1e-9)


@settings(max_examples=15)
@given(st.lists(st.tuples(times, times), min_size=6, max_size=20))
def test_a_speedup_turned_round_is_one_over_it(pairs):
    eager, own = (list(column) for column in zip(*pairs, strict=True))
    there, back = stats.speedup(eager, own), stats.speedup(own, eager)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.interval == pytest.approx((1 / back.interval[1], 1 / back.interval[0]), rel=1e-6)
    assert there.interval[0] <= there.ratio * (1 + 1e-9) and there.ratio <= there.interval[1] * (1 + 1e-9)


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1), st.floats(10.0, 1e5), st.integers(3, 2000))
def test_a_round_has_calls_enough_and_no_more_than_there_are_buffers_for(call_us, round_us, buffers):
    most = most_calls(buffers)
    chosen = choose_calls(call_us, round_us, most)
    assert chosen.keys() == call_us.keys()
    assert all(1 <= calls <= max(most, 2) for calls in chosen.values())


@given(*[st.integers(0, 1 << 40)] * 2, st.integers(1, 1000), st.integers(0, 1 << 30), st.floats(1e9, 1e13))
def test_no_time_is_impossible_that_moves_every_byte_at_the_bandwidth(read, written, calls, cache, bandwidth):
    bound_us = roofline.impossible_us(read, written, calls, cache, bandwidth)
    assert 0 <= bound_us <= roofline.floor_us(read + written, bandwidth) * (1 + 1e-9)
    assert bound_us >= roofline.floor_us(read - cache / calls, bandwidth) * (1 - 1e-9)


# ---------------------------------------------------------------------- tolerances


def compared(values, wanted, tolerance):
    form = oracle.Form((len(values),), (1,), torch.float64)
    expected = oracle.Expected(torch.tensor(wanted, dtype=torch.float64), form, tolerance, 0.0)
    return oracle.compare(torch.tensor(values, dtype=torch.float64), expected)


anything = st.floats(width=32)


@given(st.lists(anything, min_size=1, max_size=20), st.floats(0, 1.0))
def test_what_is_bit_for_bit_expected_is_right_whatever_it_is(values, tolerance):
    assert compared(values, values, tolerance).ok


@given(st.lists(st.tuples(anything, anything), min_size=1, max_size=20), st.floats(0.0, 1e3))
def test_an_output_is_right_exactly_when_each_element_is(pairs, tolerance):
    def is_right(value, wanted):
        same = value == wanted or (np.isnan(value) and np.isnan(wanted))
        return same or (np.isfinite(value) and np.isfinite(wanted) and abs(value - wanted) <= tolerance)

    values, wanted = zip(*pairs, strict=True)
    result = compared(values, wanted, tolerance)
    assert result.ok == all(is_right(*pair) for pair in pairs)
    if not result.ok:
        assert not is_right(*pairs[result.worst_index[0]])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.integers(0, 7), st.floats(1e-3, 1.0))
def test_one_element_beyond_the_tolerance_is_found_wherever_it_is(values, place, tolerance):
    place %= len(values)
    got = list(values)
    got[place] += 1.01 * tolerance
    result = compared(got, values, tolerance)
    assert not result.ok and result.worst_index == (place,)


# ---------------------------------------------------------------------- messages


plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(one, other):
    """Equal, and of equal types all the way down: a tuple is no list and 1 is not True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


@given(values)
def test_arguments_come_out_of_json_as_they_went_in(value):
    assert same(decode_value(json.loads(json.dumps(encode_value(value)))), value)


natural = st.integers(0, 2**63 - 1)
refs = st.builds(
    OutputRef, address=natural, shape=st.lists(natural, max_size=4), stride=st.lists(natural, max_size=4),
    dtype=st.text(max_size=9), device=st.text(max_size=9), type=st.text(max_size=9),
    allocation=st.integers(-1, 9), allocation_offset=natural,
)  # fmt: skip
replies = (
    st.builds(Ran, outputs=st.lists(refs, max_size=3), handles=st.lists(st.text("0123456789abcdef"), max_size=2))
    | st.builds(Played, addresses=st.lists(st.lists(natural, max_size=3), max_size=4), issue_us=st.floats(0, 1e9))
    | st.builds(Named, outputs=st.lists(st.lists(refs, max_size=2), max_size=2))
)


@given(st.lists(replies, min_size=1, max_size=4))
def test_replies_come_as_they_were_sent_and_in_their_order(sent):
    ours, theirs = socket.socketpair()
    judge, worker = Channel(ours, judge=True), Channel(theirs, judge=False)
    with ours, theirs:
        for reply in sent:
            worker.send(reply)
            assert judge.receive(5) == reply


@given(replies)
def test_no_field_of_a_reply_may_be_of_another_type(reply):
    """Decoded strictly: a number as text is refused."""
    built = msgspec.to_builtins(reply)
    (field,) = [name for name in built if name in ("outputs", "addresses")]
    built[field] = "0"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(built, type(reply))


# ---------------------------------------------------------------------- keys and seeds

BASE = Extension("a", (SourceText("int f();"),), cuda_sources=(SourceText("int g();"),), functions=(("f", ""),))
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
WORDS = {"extra_cflags", "extra_cuda_cflags", "extra_ldflags", "extra_include_paths"}


def test_every_field_of_an_extension_is_in_its_key():
    """One that is added has to be added here, and so be thought of."""
    varied = {
        "name": "b",
        "cpp_sources": (SourceText("int h();"),),
        "cuda_sources": (SourceText("int h();"),),
        "functions": (("f", "a docstring"),),
        **{name: ("-x",) for name in WORDS},
        "no_implicit_headers": True,
    }
    assert varied.keys() == {field.name for field in dataclasses.fields(Extension)}
    keys = {dataclasses.replace(BASE, **{name: value}).digest("gcc") for name, value in varied.items()}
    assert len(keys | {BASE.digest("gcc")}) == len(varied) + 1


@given(texts, texts)
def test_two_toolchains_do_not_share_a_build(one, other):
    assert (BASE.digest(one) == BASE.digest(other)) == (one == other)


@given(st.sampled_from(sorted(WORDS)), st.lists(texts, max_size=3), st.lists(texts, max_size=3))
def test_flags_are_told_apart_as_lists_of_words(name, one, other):
    """Not by their words joined: ('-a', 'b') is not ('-a b')."""
    keys = [dataclasses.replace(BASE, **{name: tuple(words)}).digest("gcc") for words in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@given(st.integers(0, 2**53 - 1), st.lists(texts, min_size=1, max_size=3), st.lists(texts, min_size=1, max_size=3))
def test_a_seed_of_one_purpose_is_no_seed_of_another(seed, one, other):
    first, second = sub_seed(seed, *one), sub_seed(seed, *other)
    assert 0 <= first < 2**63
    assert first == sub_seed(seed, *one) != sub_seed(seed + 1, *one)
    assert (first == second) == ("/".join(one) == "/".join(other))


def test_without_a_seed_each_run_has_its_own():
    seeds = {fresh_seed() for _ in range(64)}
    assert len(seeds) == 64
    assert all(0 <= seed < 2**53 for seed in seeds)
    assert max(seeds).bit_length() > 45  # of 64 draws of 53 bits one is nearly surely as large


# ---------------------------------------------------------------------- exit codes

evaluations = st.lists(st.sampled_from([Accepted, Rejected, Errored]), min_size=1, max_size=6)


@given(evaluations)
def test_a_run_ends_with_the_worst_that_happened(kinds):
    code = of_results([Mock(spec=kind) for kind in kinds], None)
    worst = Rejected if Rejected in kinds else Errored if Errored in kinds else Accepted
    assert code == {Rejected: Exit.REJECTED, Errored: Exit.HARNESS, Accepted: Exit.ACCEPTED}[worst]


@pytest.mark.parametrize(
    ("speedup", "interval", "code", "why"),
    [
        (2.1, (2.0, 2.2), Exit.ACCEPTED, ""),
        (2.1, (1.9, 2.3), Exit.TOO_SLOW, "at 2.10× [1.90, 2.30] not shown to reach the 2× asked for"),
        (1.8, (1.7, 1.9), Exit.TOO_SLOW, "at 1.80× [1.70, 1.90] below the 2× asked for"),
        (None, None, Exit.HARNESS, "nothing is said of its speedup: eager was not timed on every timed case"),
    ],
)
def test_the_whole_interval_decides_whether_a_speedup_was_reached(speedup, interval, code, why):
    evaluation = Mock(
        spec=Accepted, submission="mine", geomean_speedup=speedup, geomean_interval=interval, not_timed=None
    )
    assert of_results([evaluation], 2.0) == code
    assert [why in said for said in why_not_fast([evaluation], 2.0)] == [True] * bool(why)
