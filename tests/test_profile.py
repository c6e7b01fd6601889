"""`eval.py profile`: what it prints with Nsight Compute, without it, and without the permission to count.

There is no GPU here. The table in fixtures/tools was written by hand in the form of ncu's raw page (its documentation
gives the form and the metrics' names), with figures made up; the `ncu` on the path is a script that runs what it is
given and then prints that table.
"""

import os
import stat
import subprocess
import sys

import pytest

from harness.tools import ncu
from tests.helpers import ROOT

TABLE = ROOT / "tests" / "fixtures" / "tools" / "ncu_raw_page.csv"
CONTROL = ROOT / "tests" / "hostile" / "form" / "control.py"
SMALL = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"

FAKE_NCU = f"""#!{sys.executable}
import pathlib, subprocess, sys
words = sys.argv[1:]
if "--import" in words:
    print(pathlib.Path({str(TABLE)!r}).read_text())
    sys.exit()
pathlib.Path(words[words.index("--export") + 1]).write_text("a report")
sys.exit(subprocess.run(words[words.index("-m") - 1 :]).returncode)
"""
NO_PERMISSION = "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission' >&2\nexit 1\n"


def profile(tmp_path, *arguments, ncu_script=""):
    """Run the verb in an empty folder, with `ncu_script` as the only ncu on the path."""
    folders = [f for f in os.environ["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(f, "ncu"))]
    if ncu_script:
        tool = tmp_path / "bin" / "ncu"
        tool.parent.mkdir()
        tool.write_text(ncu_script)
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        folders.insert(0, str(tool.parent))
    return subprocess.run(
        [sys.executable, str(ROOT / "eval.py"), "profile", *map(str, arguments)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PATH": os.pathsep.join(folders)}, timeout=300,
    )  # fmt: skip


def test_the_table_becomes_what_a_kernel_writer_looks_at():
    first, second = ncu.parse_raw_page(TABLE.read_text())
    assert first.kernel == "whole_rows<float, 4, 256, 4>"
    assert first.time_us == pytest.approx(70.144)
    assert first.dram_bytes == 134_217_728 + 120_000_000
    assert (first.dram_share, first.l2_share) == (pytest.approx(0.8725), pytest.approx(0.515))
    assert (first.registers, first.blocks, first.threads) == (44, 8192, 256)
    assert (first.occupancy, first.occupancy_possible) == (pytest.approx(0.469), pytest.approx(0.5))
    assert first.limited_by == "registers"
    assert first.stalls[0] == ("long scoreboard", pytest.approx(10 / 15))
    assert second.time_us == pytest.approx(2.048)
    assert (second.dram_bytes, second.dram_share, second.limited_by, second.stalls) == (None, None, "", ())


def test_units_of_older_versions_are_converted_and_no_table_is_no_launch():
    header = '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"'
    (launch,) = ncu.parse_raw_page(f'{header}\n"","","msecond","Mbyte"\n"0","k(int)","1.5","2"\n')
    assert (launch.kernel, launch.time_us, launch.dram_bytes) == ("k", 1500.0, 2e6)
    assert ncu.parse_raw_page("==PROF== No kernels were profiled.\n") == []


def test_with_ncu_each_kernel_and_the_bytes_against_the_floor_are_printed(tmp_path):
    run = profile(tmp_path, CONTROL, "--problem", SMALL, "-k", "large eps", "--out", "r.ncu-rep", ncu_script=FAKE_NCU)
    assert run.returncode == 0, run.stderr
    for words in (
        "whole_rows<float, 4, 256, 4>",
        "70.1 µs",
        "87% of peak",
        "limited by registers",
        "long scoreboard 67%",
    ):
        assert words in run.stdout
    least = 4 * (2 * 8 * 321 + 2 * 321)  # x, y, weight and bias once
    assert f"once are {least / 1e3:.3g} KB" in run.stdout
    assert (tmp_path / "r.ncu-rep").read_text() == "a report"


def test_a_report_s_name_is_one_that_ncu_writes_to(tmp_path):
    run = profile(tmp_path, CONTROL, "--problem", SMALL, "-k", "large eps", "--out", "mine", ncu_script=FAKE_NCU)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "mine.ncu-rep").read_text() == "a report"


def test_a_step_shows_the_submission_s_work_and_not_what_makes_gradients(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def __init__(self, width, approximate='none'):\n"
        "        super().__init__()\n"
        "        self.bias = torch.nn.Parameter(torch.zeros(width))\n"
        "    def forward(self, x):\n"
        "        return torch.sigmoid(x + self.bias)\n"
    )
    run = profile(tmp_path, mine, "--problem", "bias_gelu_train", "--device", "cpu", "-k", "random 1")
    assert run.returncode == 0, run.stderr
    assert "aten::sigmoid_backward" in run.stdout
    assert "aten::ones_like" not in run.stdout


@pytest.mark.parametrize(
    ("script", "sentence"),
    [("", "Nsight Compute (ncu) is not on the path"), (NO_PERMISSION, "may not read the GPU's counters")],
    ids=["missing", "no permission"],
)
def test_where_ncu_cannot_look_torch_profiler_does(script, sentence, tmp_path):
    run = profile(tmp_path, CONTROL, "--problem", SMALL, ncu_script=script)
    assert run.returncode == 0, run.stderr
    assert sentence in " ".join(run.stdout.split())
    assert "from torch.profiler" in run.stdout
    assert "aten::mean" in run.stdout  # an operator, where there are no kernels


def test_a_submission_that_fails_is_1_with_its_line(tmp_path):
    broken = ROOT / "tests" / "hostile" / "form" / "raises.py"
    run = profile(tmp_path, broken, "--problem", SMALL)
    assert run.returncode == 1
    assert "cannot be profiled" in run.stderr and "at line" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_problem_of_numbers_and_labels_is_profiled(tmp_path):
    """Of what index tensors would give, and of a model that looks at values, shapes alone say little."""
    problem = tmp_path / "labels.py"
    problem.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, scores, labels):\n"
        "        assert int(labels.max()) < scores.shape[1]\n"
        "        return torch.nn.functional.cross_entropy(scores, labels)\n"
        "def get_inputs():\n"
        "    return [torch.randn(64, 32), torch.randint(0, 32, (64,))]\n"
        "def get_init_inputs():\n"
        "    return []\n"
    )
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, scores, labels):\n"
        "        picked = scores.gather(1, labels[:, None])[:, 0]\n"
        "        return (scores.exp().sum(1).log() - picked).mean()\n"
    )
    run = profile(tmp_path, mine, "--problem", problem)
    assert run.returncode == 0, run.stderr
    assert "aten::gather" in run.stdout
