"""What the report says of a defect that the emulator saw, and where it says that it was."""

import re

import pytest

from harness.protocol.replies import as_error
from harness.protocol.wire import WireFinding
from tests.helpers import ROOT, judged

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
    assert set(map(int, place.groups())) == lines_of("no_barrier", "partial[threadIdx.x] =", "+= partial[i]")


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
    error = as_error(WireFinding("data_race", "Two threads.", **known))
    assert (error.reason, error.message) == ("data_race", f"Two threads.{place}")
