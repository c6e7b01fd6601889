"""What eval.py says to mistakes that people make; benchmarks/mistakes.py replays all of them."""

import io
import re
import sys

import psutil
import pytest
from rich.console import Console

from harness.events import DeviceTaken, EmulatorBuilding
from harness.report.progress import listening
from harness.report.view import WIDTH_OF_FILES, View
from tests.helpers import ROOT, run_eval

sys.path.insert(0, str(ROOT / "benchmarks"))
import mistakes

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
BY_NAME = {mistake.name: mistake for mistake in mistakes.mistakes()}


@pytest.mark.parametrize(
    "name",
    [
        "name_not_defined",
        "functions_left_out",
        "attribute_misspelt",
        "constructor_without_arguments",
        "barrier_left_out",
    ],
)
def test_a_mistake_is_answered_on_one_screen_with_its_file_line_and_remedy(name):
    found = mistakes.replay(BY_NAME[name], show=True)
    assert found.code == 1 and found.helps
    assert (found.names_file, found.names_line, found.names_remedy) == (True, True, True)


def test_what_a_run_says_while_it_waits_is_no_part_of_its_report():
    mistake = BY_NAME["constructor_without_arguments"]
    cause = mistake.cause.replace("\\", "")  # of a pattern
    report = f"REJECTED  {mistake.name}\n{cause}\n"
    waits = [EmulatorBuilding(), DeviceTaken(mistake.name, "layernorm", "emulator", 1234567)]
    said = io.StringIO()
    with listening(Console(file=said, width=WIDTH_OF_FILES), View()) as tell:
        for event in waits:
            tell(event)
    assert len(said.getvalue().splitlines()) == len(waits)
    alone, behind = (mistakes._judged(mistake, 1.0, 1, before + report) for before in ("", said.getvalue()))
    assert alone == behind and alone.before_cause == 1


def test_there_are_forty():
    assert len(BY_NAME) == 40


def judged(tmp_path, source, *options, **more):
    path = tmp_path / "mine.py"
    path.write_text(source)
    return run_eval(path, "--problem", PROBLEM, "--device", "cpu", "-k", "large eps", *options, **more)


# A compiler that says its version, and otherwise never ends and leaves its process's number.
COMPILER = """#!/bin/sh
case "$*" in *--version*|*--help*) exec c++ "$@";; esac
echo $$ >> {started}
exec sleep 1000
"""

EXTENSION = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
extension = load_inline(name="one", cpp_sources="int one() { return 1; }", functions=["one"])
"""


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("class ModelNew(nn.Modul): pass", "load_failed"),
        ("class Model(nn.Module): pass", "load_failed"),
        ("class ModelNew(nn.Module: pass", "load_failed"),
        ('load_inline(name="two", cpp_sources="int two();")', "load_failed"),
    ],
    ids=["a name", "no ModelNew", "no Python", "functions= left out"],
)
def test_what_is_wrong_with_the_python_is_said_without_waiting_for_a_compiler(rest, reason, tmp_path):
    """What is built while the file is imported is ended."""
    started, compiler = tmp_path / "started", tmp_path / "compiler"
    compiler.write_text(COMPILER.format(started=started))
    compiler.chmod(0o755)
    # A cache of its own, in which nothing is built already.
    run = judged(tmp_path, EXTENSION + rest, env={"CXX": str(compiler), "KERNELGATE_CACHE": str(tmp_path / "cache")})
    (evaluation,) = run.results["evaluations"]
    assert evaluation["reason"] == reason, evaluation
    compilers = started.read_text().split() if started.exists() else []
    assert not any(psutil.pid_exists(int(number)) for number in compilers)


MODEL = """
import os, sys
import torch
from torch import nn

class ModelNew(nn.LayerNorm):
    def forward(self, x):
        {body}
"""


def printed(run):
    (evaluation,) = run.results["evaluations"]
    return evaluation["printed"]


def test_the_last_lines_that_a_failing_case_printed_are_kept_without_control_sequences(tmp_path):
    body = "print(*range(1000), sep='\\n'); print('\\x1b[2Jmean', end='', flush=True); return x"
    found = printed(judged(tmp_path, MODEL.format(body=body)))
    assert found["lines"] == [*map(str, range(981, 1000)), "?[2Jmean"]
    assert found["case"] == "large eps"


def test_what_stood_in_buffers_of_c_when_the_process_died_is_kept(tmp_path):
    body = "import ctypes; ctypes.CDLL(None).puts(b'from C'); os.abort()"
    assert "from C" in printed(judged(tmp_path, MODEL.format(body=body)))["lines"]


def test_gigabytes_of_output_are_not_read(tmp_path):
    body = "os.write(1, b'a' * (8 << 20)); os.write(1, b'\\nlast\\n'); return x"
    found = printed(judged(tmp_path, MODEL.format(body=body)))
    assert found["lines"][-1] == "last" and len(found["lines"][0]) < 1000


def test_a_right_submissions_output_is_shown_when_it_is_asked_for(tmp_path):
    right = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        print("called", flush=True)
        mean = x.double().mean(-1, keepdim=True)
        rest = x.double() - mean
        scale = torch.rsqrt((rest * rest).mean(-1, keepdim=True) + self.eps)
        return (rest * scale * self.weight + self.bias).float()
"""
    assert printed(judged(tmp_path, right)) is None
    shown = judged(tmp_path, right, "--show-output", json_results=False)
    assert re.search(r"it printed:\n    │ called\n", shown.stdout) and "ACCEPTED" in shown.stdout


def test_equal_failures_are_one_line_with_the_smallest(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODEL.format(body="return x + 1"))
    run = run_eval(path, "--problem", PROBLEM, "--device", "cpu", json_results=False)
    assert "\n  cases: all 2 fail so, the smallest is 'large eps' (8×321); -v shows every case\n" in run.stdout
    assert run.stdout.startswith("REJECTED  mine  wrong_output: 2 of 2 cases failed; ")
    assert "eager's\n" not in run.stdout
    assert "eager's\n" in run_eval(path, "--problem", PROBLEM, "--device", "cpu", "-v", json_results=False).stdout


def test_a_missing_name_is_said_before_the_emulator_is_built(tmp_path):
    """A cache of its own, where a compiler that does nothing would end the run."""
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\nclass ModelNew(nm.Module): pass\n")
    cache = tmp_path / "cache"
    run = run_eval(path, "--problem", PROBLEM, "--device", "emulator", env={"KERNELGATE_CACHE": str(cache)})
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["reason"], evaluation["frame"]["marks"][0]["line"]) == ("load_failed", 2)
    assert not list(cache.glob("emulator/*")) and "The emulator is built" not in run.stderr


def test_what_only_a_device_tells_is_left_to_judging(tmp_path):
    """Without one, an attribute of the extension cannot be known."""
    from harness.device.memory_file import MemoryFile
    from harness.isolation.levels import choose_isolation
    from harness.judging import first_look
    from harness.submission import read_submission

    path = tmp_path / "mine.py"
    common = dict(problem="p", submission="mine", source_sha256="", device="emulator", seed=1)
    memory, isolation = MemoryFile(), choose_isolation("auto", "emulator")

    def refused(source):
        path.write_text(source)
        return first_look.refusal(read_submission(path), memory.fd, isolation, PROBLEM, common)

    assert (
        refused(EXTENSION + "try: extension.two\nexcept Exception: two = missing\nclass ModelNew(nn.Module): pass")
        is None
    )
    assert refused(EXTENSION + "raise ValueError\nclass ModelNew(nn.Module): pass") is None
    assert refused(EXTENSION + "class ModelNew(nn.Module): pass") is None
    assert refused(EXTENSION + "two = missing").reason == "load_failed"


FORGETS_INIT = """
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        self.eps = 1e-5

    def forward(self, x):
        return x
"""


def test_a_module_whose_init_was_left_out_is_told_so(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FORGETS_INIT)
    (evaluation,) = run_eval(path, "--problem", "layernorm", "--device", "cpu", "-k", "4x128").results["evaluations"]
    assert evaluation["reason"] == "load_failed"
    assert "Call super().__init__() at the beginning of its __init__" in evaluation["message"]
