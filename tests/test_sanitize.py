"""`--sanitize`: compute-sanitizer's reports as a verdict.

There is no GPU here. The reports below were written by hand in the form that the tool's documentation shows, but for
OUT_OF_ROOM, whose warning and error an H200's synccheck printed; the `compute-sanitizer` on the path is a script
that runs what it is given and writes such a report.
"""

import os
import re
import stat
import sys

import pytest

from harness.errors import HarnessError
from harness.notes import SanitizerFailed, SanitizerSilent
from harness.problem import load_problem, select_cases
from harness.submission import read_submission
from harness.tools import sanitizing
from harness.verdict import Accepted, Errored, Rejected
from tests.helpers import ROOT, run_eval

# The others only report: starting the driver takes seconds.
TOOL_THAT_RUNS = "initcheck"

CONTROL = ROOT / "tests" / "hostile" / "form" / "control.py"
SMALL = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at layer_norm_kernel(const float *, float *, long)+0x1a0 in rung9.py:41
=========     by thread (31,0,0) in block (7,0,0)
=========     Address 0x7f51c2a00c84 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f51c2a00c00 of size 132 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x33]
=========
========= Invalid __global__ read of size 4 bytes
=========     at layer_norm_kernel(const float *, float *, long)+0x1a0 in rung9.py:41
=========     by thread (30,0,0) in block (7,0,0)
=========     Address 0x7f51c2a00c84 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f51c2a00c00 of size 132 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at block_sum(float)+0x70 in rung9.py:12
=========     and Read access at block_sum(float)+0xa0 in rung9.py:14 [256 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<4>(int)+0x60 in Loops.cuh:1
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block
=========     at layer_norm_kernel(const float *, float *, long)+0x80 in rung9.py:20
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
OUT_OF_ROOM = """========= COMPUTE-SANITIZER
========= Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect. Try using --num-cuda-barriers to fix the issue
=========
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
"""  # noqa: E501
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("tool", "log", "reason"),
    [
        ("memcheck", MEMCHECK, "out_of_bounds"),
        ("racecheck", RACECHECK, "data_race"),
        ("synccheck", SYNCCHECK, "divergent_barrier"),
        ("initcheck", INITCHECK.replace("at::native::", "my::"), "uninitialised_read"),
    ],
)
def test_each_tools_report_is_one_finding_that_names_the_line(tool, log, reason):
    (finding,) = sanitizing.findings_in(tool, log)
    assert finding.reason == reason
    assert ".py:" in finding.message or "Loops.cuh" in finding.message
    assert "Host Frame" not in finding.message


def test_pytorchs_own_kernels_clean_reports_and_the_tools_own_troubles_are_no_findings():
    assert sanitizing.findings_in("synccheck", OUT_OF_ROOM) == []
    assert sanitizing.findings_in("initcheck", INITCHECK) == []
    assert sanitizing.findings_in("memcheck", CLEAN) == []


@pytest.fixture
def sanitize(tmp_path, monkeypatch):
    """Sanitize the control with tools that write the given reports, or clean ones, and may die with them."""

    def run(reports, *, die=()):
        tool = tmp_path / "compute-sanitizer"
        tool.write_text(
            f"#!{sys.executable}\n"
            "import os, pathlib, subprocess, sys\n"
            "assert os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'] == '1'\n"
            "words = sys.argv[1:]\n"
            "tool = words[words.index('--tool') + 1]\n"
            f"report = {reports!r}.get(tool, {CLEAN!r})\n"
            "pathlib.Path(words[words.index('--log-file') + 1]).write_text(report)\n"
            f"if tool in {list(die)!r}:\n"
            "    print('RuntimeError: CUDA error: unspecified launch failure\\nframe #34: _start', file=sys.stderr)\n"
            "    os.abort()\n"
            f"if tool != {TOOL_THAT_RUNS!r}:\n"
            "    sys.exit()\n"
            "sys.exit(subprocess.run(words[words.index('-m') - 1 :]).returncode)\n"
        )
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        problem = load_problem(SMALL, 0)
        accepted = Accepted(problem="p", submission="control", source_sha256="", device="cpu", seed=1, cases=[])
        return sanitizing.sanitized(
            accepted, read_submission(CONTROL), problem, select_cases(problem, "large eps"), "cpu", lambda _text: None
        )

    return run


def test_a_finding_rejects(sanitize):
    evaluation = sanitize({"memcheck": MEMCHECK})
    assert isinstance(evaluation, Rejected)
    assert evaluation.reason == "out_of_bounds"
    assert "rung9.py:41" in evaluation.message


def test_a_finding_that_ends_the_process_rejects_too(sanitize):
    evaluation = sanitize({"memcheck": MEMCHECK}, die=["memcheck"])
    assert isinstance(evaluation, Rejected)
    assert evaluation.reason == "out_of_bounds"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        pytest.param(CLEAN, "it ended with -6: .*unspecified launch failure", id="dies"),
        pytest.param(OUT_OF_ROOM, "Detected overflow of tracked cuda::barrier structures", id="out of room"),
    ],
)
def test_a_tool_that_fails_without_a_finding_is_an_error_and_nothing_of_the_submissions(sanitize, report, said):
    evaluation = sanitize({"synccheck": report}, die=["synccheck"])
    assert isinstance(evaluation, Errored)
    assert re.search(f"synccheck could not finish: {said}", evaluation.message)
    assert evaluation.message.endswith("Nothing was found by: memcheck, racecheck, initcheck.")


def test_a_tool_that_lost_track_is_not_believed_when_its_process_ends_well(sanitize):
    assert isinstance(sanitize({"synccheck": OUT_OF_ROOM + SYNCCHECK}), Errored)


def test_what_other_tools_found_rejects_beside_one_that_failed(sanitize):
    evaluation = sanitize({"racecheck": RACECHECK, "synccheck": OUT_OF_ROOM}, die=["synccheck"])
    assert isinstance(evaluation, Rejected)
    assert evaluation.reason == "data_race"
    failed = evaluation.notes[-1]
    assert isinstance(failed, SanitizerFailed) and failed.tool == "synccheck"


def test_no_finding_leaves_the_acceptance_with_a_note(sanitize):
    evaluation = sanitize({})
    assert isinstance(evaluation, Accepted)
    assert evaluation.notes[-1] == SanitizerSilent(tools=["memcheck", "racecheck", "initcheck", "synccheck"])


def test_without_the_tool_it_is_3_with_a_sentence(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(HarnessError, match="comes with the CUDA toolkit"):
        sanitizing.require_tool()
    run = run_eval(CONTROL, "--problem", SMALL, "--device", "cpu", "--sanitize", json_results=False)
    assert run.code == 3
    assert "--sanitize" in run.stderr and "Traceback" not in run.stderr
