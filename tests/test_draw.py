"""Drawing cases: the same data whenever it happens, and nothing kept that a later one needs the room for."""

import os
import signal

import pytest
import torch

from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.oracle.ahead import Ahead, Known
from harness.oracle.draw import Draws
from harness.paths import PROBLEMS
from harness.problem import load_problem

DEVICE = HostDevice("cpu", MemoryFile())
PROBLEM = load_problem(PROBLEMS / "layernorm.py", random_seed=0)


def case(name):
    (found,) = (case for case in PROBLEM.cases if case.name == name)
    return found


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.data.inputs, other.data.inputs, strict=True)) and all(
        torch.equal(a.values, b.values) and (a.form, a.tolerance) == (b.form, b.tolerance)
        for a, b in zip(one.expected, other.expected, strict=True)
    )


def test_what_is_drawn_ahead_is_what_would_be_drawn():
    small, large = case("2x33"), case("8192x4096")
    ahead = Draws(PROBLEM, DEVICE, seed=1)
    ahead.draw_ahead([large, small], stop=lambda: False)
    drawn = ahead.draw(small)
    assert ahead.draw(small) is drawn
    assert same(drawn, Draws(PROBLEM, DEVICE, seed=1).draw(small))
    assert not same(drawn, Draws(PROBLEM, DEVICE, seed=2).draw(small))


def test_nothing_more_is_drawn_ahead_when_there_is_something_else_to_do():
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 3

    draws = Draws(PROBLEM, DEVICE, seed=1)
    small = [case for case in PROBLEM.cases if not case.timed][:10]
    draws.draw_ahead(small, stop)
    assert len(asked) == 4


def test_timing_has_the_forms_of_a_case_and_no_data():
    large = case("8192x4096")
    draws = Draws(PROBLEM, DEVICE, seed=1)
    drawn, kept = draws.draw(large), draws.forms(large)
    assert kept.reference is drawn.reference
    assert kept.results == [e.form for e in drawn.expected]
    assert [(f.shape, f.dtype) for f in kept.inputs] == [(t.shape, t.dtype) for t in drawn.data.inputs]
    assert not any(isinstance(value, torch.Tensor) for form in kept.inputs for value in vars(form).values())
    assert draws.forms(large) is kept


# ---------------------------------------------------------------------- another process

SMALL = [case for case in PROBLEM.cases if not case.timed and "row" not in case.name][:12]


@pytest.fixture
def ahead():
    draws = Draws(PROBLEM, DEVICE, seed=1)
    draws.compute_ahead(SMALL, further=True)
    yield draws
    draws.end_ahead()


def test_another_process_computes_what_the_judge_would(ahead):
    for case in SMALL:
        drawn, own = ahead.draw(case), Draws(PROBLEM, DEVICE, seed=1).draw(case)
        assert same(drawn, own)
        for known, computed in zip(drawn.further.expect_ahead(), own.further.expect_ahead(), strict=True):
            assert [(e.tolerance, e.reference_error) for e in known] == [
                (e.tolerance, e.reference_error) for e in computed
            ]
            assert all(torch.equal(a.values, b.values) for a, b in zip(known, computed, strict=True))
        assert drawn.further.inputs.known is not None, "the judge computed it itself"


def test_a_process_that_is_gone_costs_no_more_than_its_help(ahead):
    assert same(ahead.draw(SMALL[0]), Draws(PROBLEM, DEVICE, seed=1).draw(SMALL[0]))
    os.kill(ahead._ahead._pid, signal.SIGKILL)
    assert all(same(ahead.draw(c), Draws(PROBLEM, DEVICE, seed=1).draw(c)) for c in SMALL)


def test_a_process_that_stands_still_is_given_up(ahead, monkeypatch):
    monkeypatch.setattr("harness.oracle.ahead.PATIENCE_S", 0.2)
    os.kill(ahead._ahead._pid, signal.SIGSTOP)
    assert all(same(ahead.draw(c), Draws(PROBLEM, DEVICE, seed=1).draw(c)) for c in SMALL)
    assert ahead._ahead._pid == 0


def test_what_cannot_be_computed_is_left_to_the_judge():
    process = Ahead(["right", "wrong", "passed over", "last"], lambda name: Known([], []) if name != "wrong" else 1 / 0)
    assert [process.take(name) for name in ("right", "wrong", "last", "last")] == [
        Known([], []), None, Known([], []), None,
    ]  # fmt: skip
    process.end()
    assert process.take("passed over") is None
