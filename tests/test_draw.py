"""Drawing cases: the same data whenever it happens, and nothing kept that a later one needs the room for."""

import torch

from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
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
