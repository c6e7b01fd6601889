"""What the report says of a defect that the emulator saw, and where it says that it was."""

import re

import pytest

from harness.protocol.replies import as_error
from harness.records import Finding
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
    error = as_error(Finding("data_race", "Two threads.", **known))
    assert (error.reason, error.message) == ("data_race", f"Two threads.{place}")


@pytest.mark.parametrize(("options", "hinted"), [((), True), (("--check",), False), (("-q",), False)])
def test_a_rejection_on_the_emulator_says_what_else_can_be_looked_for(options, hinted):
    arguments = ("--problem", SMALL, "--device", "emulator", "-k", "large eps", *options)
    run = run_eval(FRAGILE / "no_barrier.py", *arguments, json_results=False)
    assert "REJECTED  no_barrier" in run.stdout
    assert ("\n  hint: --check also looks for races, " in run.stdout) == hinted


def test_only_what_ran_on_the_emulator_and_failed_gets_the_hint():
    right = run_eval(FRAGILE / "control_cuda.py", "--problem", SMALL, "--device", "emulator", json_results=False)
    wrong = ROOT / "tests" / "hostile" / "specification" / "ignores_bias.py"
    on_the_cpu = run_eval(wrong, "--problem", SMALL, "--device", "cpu", json_results=False)
    assert "ACCEPTED  control_cuda" in right.stdout and "REJECTED  ignores_bias" in on_the_cpu.stdout
    assert "hint:" not in right.stdout + on_the_cpu.stdout
