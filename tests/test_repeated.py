"""Further calls: which case gets which, and what data they have. tests/hostile/again is what they find."""

import collections
from dataclasses import replace

import pytest
import torch

from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.errors import UsageError
from harness.judging.repeated import DEALT_TIMES, STEPS, deal
from harness.oracle import further
from harness.oracle.draw import draw_case
from harness.paths import PROBLEMS
from harness.problem import load_problem
from tests.helpers import ROOT, run_eval

CONTROL = ROOT / "tests/hostile/form/control.py"


def drawn(problem, name):
    loaded = load_problem(PROBLEMS / f"{problem}.py", 1)
    (case,) = [case for case in loaded.cases if case.name == name]
    return draw_case(loaded, case, HostDevice("cpu", MemoryFile()), 1)


@pytest.mark.parametrize("count", [1, 2, 7, 15, 60])
def test_each_step_is_dealt_as_often_as_the_others(count):
    dealt = deal([str(i) for i in range(count)], seed=3)
    times = collections.Counter(step for steps in dealt.values() for step in steps)
    assert set(times) == set(STEPS)
    assert max(times.values()) - min(times.values()) <= 1
    assert min(times.values()) >= min(DEALT_TIMES, count)
    assert all(len(set(steps)) == len(steps) for steps in dealt.values())


def test_what_is_dealt_is_another_thing_in_each_run():
    names = [str(i) for i in range(20)]
    assert deal(names, 1) == deal(names, 1) != deal(names, 2)


@pytest.mark.parametrize("problem, name", [("layernorm", "16x1024"), ("layernorm_train", "16x1024")])
def test_other_weights_and_rows_are_other(problem, name):
    case = drawn(problem, name)
    other = case.further.weights
    assert other.reference.case.shapes[0][0] > 16
    assert other.reference.case.shapes[0][1:] == (1024,)
    assert other.expected[0].values.shape == other.reference.case.shapes[0]
    for name, tensor in case.reference.state.items():
        assert not torch.equal(tensor, other.reference.state[name])
    assert not torch.equal(case.further.inputs.data.inputs[0], case.data.inputs[0])


def test_rows_stay_where_they_are_no_batch():
    assert drawn("layernorm", "four trailing dims").further.weights.reference.case.shapes == ((6, 5, 12, 32),)


def test_large_cases_have_no_further_data(monkeypatch):
    monkeypatch.setattr(further, "MOST_BYTES", 1000)
    assert drawn("layernorm", "16x1024").further is None


def test_a_result_within_the_whole_tolerance_is_right_whatever_the_smaller_one_says():
    variant = drawn("layernorm", "2x33").further.inputs
    (small,), (whole,) = variant.expected, variant.expected_in_full
    assert small.tolerance <= whole.tolerance
    at_the_edge = whole.values.clone()
    at_the_edge[0, 0] += 0.999 * whole.tolerance
    assert variant.compare([at_the_edge])[0].ok
    at_the_edge[0, 0] += 0.002 * whole.tolerance
    assert not variant.compare([at_the_edge])[0].ok


def test_a_batch_needs_a_first_dimension(tmp_path):
    path = tmp_path / "scalar.py"
    path.write_text("import torch.nn as nn\nclass Model(nn.Identity): pass\n"
                    "CASES = [dict(name='a', shapes=[()], batch=True)]\n")  # fmt: skip
    with pytest.raises(UsageError, match="batch=True"):
        load_problem(path, 1)


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_constructor_arguments_of_another_case_are_those_that_the_device_runs(device):
    """A headline's own may be of a size that it cannot hold."""
    loaded = load_problem(PROBLEMS / "layernorm.py", 1)
    run_there = {repr(case.on(device).init) for case in loaded.cases}
    whole = {repr(case.init) for case in loaded.cases} - run_there
    (small,) = (case for case in loaded.cases if case.name == "2x33")
    found = {repr(further.other_init(loaded, small, seed, device)) for seed in range(200)}
    assert whole and len(found) > 10 and found <= run_there - {repr(small.init)}


def test_where_all_cases_have_the_same_constructor_arguments_there_are_no_others():
    loaded = load_problem(PROBLEMS / "layernorm_dropout.py", 1)
    only = [case for case in loaded.cases if repr(case.init) == repr(loaded.cases[0].init)]
    assert further.other_init(replace(loaded, cases=only), only[0], 1, "cuda") is None


def test_arguments_that_only_another_case_has_are_refused_in_that_case_alone(tmp_path):
    """small_layernorm has two cases, of which one gives eps: what another case needs is no fault in the one judged."""
    path = tmp_path / "mine.py"
    path.write_text(
        CONTROL.read_text().replace("normalized_shape, eps=1e-5)", "normalized_shape)").replace("= eps", "= 1e-5")
    )
    words = [path, "--problem", ROOT / "tests/fixtures/problems/small_layernorm.py", "--device", "cpu"]
    alone, both = run_eval(*words, "-k", "large mean"), run_eval(*words)
    assert alone.code == 0, alone
    cases = both.results["evaluations"][0]["cases"]
    assert [(case["status"], case.get("reason")) for case in cases] == [("failed", "load_failed"), ("passed", None)]
