"""What the report says of a defect that the emulator saw, and where it says that it was."""

import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.errors import Inconclusive, SubmissionError
from harness.judging import correctness
from harness.problem import Case
from harness.protocol.replies import as_error
from harness.reasons import Reason
from harness.records import Finding
from harness.settings import Settings
from tests.helpers import ROOT, judged, run_eval

SMALL = "tests/fixtures/problems/small_layernorm.py"
FRAGILE = ROOT / "tests" / "hostile" / "fragile"


def message_of(name, *options):
    path = (FRAGILE / f"{name}.py").relative_to(ROOT).as_posix()
    run = judged(path, "--problem", SMALL, "--device", "emulator", "-k", "large eps", "--no-timing", *options)
    (evaluation,) = run.results["evaluations"]
    assert evaluation["status"] == "rejected"
    return evaluation["message"]


def lines_of(name, *parts):
    lines = (FRAGILE / f"{name}.py").read_text().splitlines()
    return {i for i, line in enumerate(lines, 1) if any(part in line for part in parts)}


def test_a_race_names_kernel_both_lines_block_and_thread():
    message = message_of("no_barrier", "--check")
    place = re.search(
        r"The other access is at line (\d+)\. "
        r"\(kernel layer_norm_kernel, no_barrier\.py:(\d+), launch \d+, block \(\d+,0,0\), thread \(\d+,0,0\)\)",
        message,
    )
    assert place, message
    assert len(set(place.groups())) == 2
    assert set(map(int, place.groups())) <= lines_of("no_barrier", "partial[threadIdx.x] =", "+= partial[i]")


@pytest.mark.parametrize(
    ("known", "place"),
    [
        ({}, ""),
        ({"line": 7}, " (line 7)"),
        ({"kernel": "k", "file": "/a/b.py", "line": 7, "launch": 2}, " (kernel k, b.py:7, launch 2)"),
        ({"block": (0, 0, 0), "thread": (5, 0, 1)}, " (block (0,0,0), thread (5,0,1))"),
    ],
)
def test_what_is_not_known_of_a_finding_is_left_out(known, place):
    error = as_error([Finding("data_race", "Two threads.", **known)], emulated=True)
    assert (error.reason, error.message) == ("data_race", f"Two threads.{place}")


@pytest.mark.parametrize(
    ("kinds", "emulated", "error", "reason"),
    [
        (["unsupported_by_emulator"], True, Inconclusive, "unsupported_by_emulator"),
        (["unsupported_by_emulator", "data_race"], True, SubmissionError, "data_race"),
        (["unsupported_by_emulator"], False, SubmissionError, "unsupported_by_emulator"),
    ],
)
def test_what_the_emulator_cannot_do_rejects_nothing_and_hides_no_defect(kinds, emulated, error, reason):
    raised = as_error([Finding(Reason(kind), "Seen.") for kind in kinds], emulated=emulated)
    assert (type(raised), raised.reason) == (error, reason)


IN_A_KERNEL = "nothing<<<1, 1>>>();"
IN_PYTHON = "torch.cuda.CUDAGraph().debug_dump('graph.dot')"


@pytest.mark.parametrize("what", [IN_A_KERNEL, IN_PYTHON])
@pytest.mark.parametrize("wrong", [False, True])
def test_what_is_not_emulated_is_an_error_where_no_other_case_fails(what, wrong, tmp_path):
    """One case alone meets it, and in another the kernel is wrong or right."""
    source = (FRAGILE / "no_barrier.py").read_text().replace("HARMLESS = False", "HARMLESS = True")
    source = source.replace("__device__ float block_sum", "__global__ void nothing() {}\n__device__ float block_sum")
    if what == IN_A_KERNEL:
        source = source.replace("float sum = 0;", "if (eps > 0.05f) nothing<<<1, 1>>>();\n  float sum = 0;")
    else:
        source = source.replace(
            "def forward(self, x):", "def forward(self, x):\n        if self.eps > 0.05:\n            " + what
        )
    if wrong:
        source = source.replace("weight[i] + bias[i]", "weight[i]")
    file = tmp_path / "mine.py"
    file.write_text(source)
    run = run_eval(file, "--problem", SMALL, "--device", "emulator", "--no-timing")
    (evaluation,) = run.results["evaluations"]
    if wrong:
        assert (evaluation["status"], evaluation["reason"], run.code) == ("rejected", "wrong_output", 1)
        return
    assert (evaluation["status"], evaluation["reason"], run.code) == ("error", "unsupported_by_emulator", 3)
    assert {case["status"] for case in evaluation["cases"]} == {"passed", "not_run"}
    assert "'large eps'" in evaluation["message"]


def test_what_looks_wrong_is_run_again_with_all_detectors_and_the_race_leads():
    """Without --check the emulator sees wrong values alone."""
    where = ("--problem", SMALL, "--device", "emulator", "-k", "large eps")
    run = run_eval(FRAGILE / "no_barrier.py", *where)
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["reason"], evaluation["finding"]["reason"]) == ("wrong_output", "data_race")
    assert "--check" in evaluation["finding"]["repeat"]
    told = run_eval(FRAGILE / "no_barrier.py", *where, json_results=False).stdout
    assert told.startswith("REJECTED  no_barrier  wrong_output, for a defect that all detectors see: data_race: ")
    marked = {line.strip(" ^│") for line in told.splitlines() if re.match(r" +│ +\^", line)}
    assert marked == {"wrote", "reads"} and "a __syncthreads() between the two would order them" in told
    assert "hint:" not in told


def test_detectors_that_see_nothing_say_so_and_what_no_kernel_did_is_not_run_again(tmp_path):
    wrong = tmp_path / "no_bias.py"
    right = (ROOT / "tests" / "fixtures" / "mistakes" / "right.py").read_text()
    wrong.write_text(right.replace(" + bias[i];", ";"))
    (evaluation,) = run_eval(wrong, "--problem", SMALL, "--device", "emulator").results["evaluations"]
    assert evaluation["finding"] is None and "Run again with all detectors" in evaluation["notes"][-1]
    ignores_bias = ROOT / "tests" / "hostile" / "specification" / "ignores_bias.py"
    (on_the_cpu,) = run_eval(ignores_bias, "--problem", SMALL, "--device", "cpu").results["evaluations"]
    assert on_the_cpu["finding"] is None and on_the_cpu["notes"] == []


ENDLESS = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = '''
#include <torch/extension.h>
__global__ void endless(volatile float* y) { while (y[0] == y[0] || true) {} }
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    endless<<<1, 32>>>(y.data_ptr<float>());
    return y;
}
'''
extension = load_inline("endless", "torch::Tensor forward(torch::Tensor x);", CUDA, functions=["forward"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))

    def forward(self, x):
        return extension.forward(x)
"""


def test_a_kernel_that_never_ends_is_waited_for_twice_and_not_once_for_each_case(tmp_path):
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS)
    run = run_eval(path, "--problem", "layernorm", "-k", "trailing", "--device", "emulator", "--timeout", "12")
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["status"], evaluation["reason"]) == ("rejected", "endless_kernel")
    states = [case.get("reason") or case["message"] for case in evaluation["cases"]]
    assert states == ["endless_kernel"] * 2 + ["Not run: in 2 cases a kernel did not end."] * 2


def test_all_cases_together_have_a_limit_and_those_that_were_judged_are_kept(monkeypatch):
    """A second passes at each case; ten limits of a call are 2.5 of them."""
    seconds = iter(range(100))
    monkeypatch.setattr(correctness.time, "monotonic", lambda: float(next(seconds)))
    judging = correctness.Correctness(Mock(), Mock(path=Path("p.py")), Mock(), Mock(), Settings(seed=1, timeout_s=0.25))
    monkeypatch.setattr(judging, "_judge", lambda _runner, case: case.name)
    monkeypatch.setattr(judging, "_not_run", lambda case, message: f"{case.name}: {message}")
    living = Mock(worker=Mock(has_ended=False))
    judging.run(living, [Case(name) for name in "abcd"], Mock())
    left_out = "Not run: those before it took 2.5 s together; --timeout gives more."
    assert judging.results == ["a", "b", f"c: {left_out}", f"d: {left_out}"]
    assert judging.out_of_time


def test_further_defects_of_a_call_are_named_behind_the_first(tmp_path):
    source = (FRAGILE / "no_barrier.py").read_text()
    file = tmp_path / "mine.py"
    file.write_text(source.replace("float sum = 0;", "float sum = threadIdx.x == 63 ? x[8 * 321] : 0;"))
    where = (file, "--problem", SMALL, "--device", "emulator", "-k", "large eps", "--no-timing", "--check")
    run = run_eval(*where)
    (evaluation,) = run.results["evaluations"]
    (case,) = evaluation["cases"]
    assert {evaluation["reason"], *(said.split(":")[0] for said in case["also"])} == {"out_of_bounds", "data_race"}
    told = run_eval(*where, json_results=False).stdout
    assert re.search(r"^  also (data_race|out_of_bounds): .*", told, re.MULTILINE)
