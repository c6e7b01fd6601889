"""Submissions to a folder of problems: which is for which, and what shares are correct."""

import json
from pathlib import Path

import pytest

from harness.pairing import problem_for, problems_in
from tests.helpers import run_eval

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {result}
def get_inputs():
    return [torch.randn(16, 64)]
def get_init_inputs():
    return []
"""
SUBMISSION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {result}
"""


@pytest.fixture
def levels(tmp_path):
    """Folders of problems in KernelBench's form."""
    results = {"level1/1_Double.py": "2 * x", "level1/19_ReLU.py": "x.relu()", "level2/1_Triple.py": "3 * x"}
    for name, result in results.items():
        file = tmp_path / "problems" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PROBLEM.format(result=result))
    return tmp_path / "problems"


@pytest.mark.parametrize(
    ("submission", "problem"),
    [
        ("level_1_problem_1_sample_0_kernel.py", "level1/1_Double.py"),
        ("level_2_problem_1_sample_0_kernel.py", "level2/1_Triple.py"),
        ("level_1_problem_19_sample_3_kernel.py", "level1/19_ReLU.py"),
        ("19_ReLU/mine.py", "level1/19_ReLU.py"),
        ("runs/1_Triple.py", "level2/1_Triple.py"),
        ("level_3_problem_1_sample_0_kernel.py", None),  # two have the number, none the level
        ("level_1_problem_2_sample_0_kernel.py", None),
        ("level_1_problem_190_sample_0_kernel.py", None),
        ("mine.py", None),
    ],
)
def test_names_say_which_problem_a_submission_is_for(levels, submission, problem):
    expected = (levels / problem).resolve() if problem else None
    assert problem_for(Path(submission), problems_in(levels)) == expected


def test_a_folder_is_judged_against_a_folder_and_scored(levels, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for name, result in {
        "level_1_problem_1_sample_0_kernel": "x + x",
        "level_1_problem_1_sample_1_kernel": "x + 1",
        "level_1_problem_19_sample_0_kernel": "x * (x > 0)",
        "level_2_problem_1_sample_0_kernel": "x + x + x",
        "notes": "x",
    }.items():
        (runs / f"{name}.py").write_text(SUBMISSION.format(result=result))
    out = tmp_path / "out.json"
    words = ("--problem", levels, "--device", "cpu", "--no-store", "--json", out)
    run = run_eval(runs, *words, json_results=False)
    assert "Left out: notes, which fits no problem of" in run.stderr
    found = [(e["submission"][6:24], e["problem"], e["status"]) for e in json.loads(out.read_text())["evaluations"]]
    assert sorted(found) == [
        ("1_problem_19_sampl", "19_ReLU", "accepted"),
        ("1_problem_1_sample", "1_Double", "accepted"),
        ("1_problem_1_sample", "1_Double", "rejected"),
        ("2_problem_1_sample", "1_Triple", "accepted"),
    ]
    assert "\n4 submissions to 3 problems on cpu: 75% correct (3 of 4)\n" in run.stdout


def test_a_file_that_fits_no_problem_and_a_folder_without_one_are_sentences(levels, tmp_path):
    (tmp_path / "mine.py").write_text(SUBMISSION.format(result="x"))
    run = run_eval(tmp_path / "mine.py", "--problem", levels, json_results=False)
    assert run.code == 2 and f"mine.py fits no problem of {levels}" in run.stderr
    (tmp_path / "empty").mkdir()
    run = run_eval(tmp_path / "mine.py", "--problem", tmp_path / "empty", json_results=False)
    assert run.code == 2 and "eval.py: There is no problem file in" in run.stderr


def test_where_all_is_left_out_it_is_said_why(levels, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "19_fast.py").write_text(SUBMISSION.format(result="x"))
    run = run_eval(tmp_path / "runs", "--problem", levels, json_results=False)
    assert run.code == 5 and run.stderr.startswith(f"eval.py: No submission in {tmp_path / 'runs'} is judged.\n")
    assert "\nLeft out: 19_fast, which fits no problem of" in run.stderr
    assert "no .py file was found" not in run.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_reference_that_cannot_be_judged_with_costs_a_folders_other_problems_nothing(levels, tmp_path, jobs):
    """As KernelBench's 66_Matmul_Dropout_Softmax, whose dropout is before its softmax."""
    (levels / "level1" / "1_Double.py").write_text(PROBLEM.format(result="torch.dropout(x, 0.5, True).softmax(1)"))
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("level_1_problem_1_sample_0", "level_1_problem_1_sample_1", "level_1_problem_19_sample_0"):
        (runs / f"{name}.py").write_text(SUBMISSION.format(result="x.relu()") + f"# {name}")
    run = run_eval(runs, "--problem", levels, "--device", "cpu", "--no-store", "--jobs", jobs)
    found = [(e["problem"], e["status"], e["reason"]) for e in run.results["evaluations"]]
    assert sorted(found) == [("19_ReLU", "accepted", None), *2 * [("1_Double", "error", "not_judged")]]
    assert {e["message"].split(" in case ")[0].split("/")[-1] for e in run.results["evaluations"] if e["reason"]} == {
        "1_Double.py draws random numbers"
    }
    assert run.code == 3
    run = run_eval(runs, "--problem", levels / "level1" / "1_Double.py", "--device", "cpu", "--no-store")
    assert run.code == 2 and "draws random numbers" in run.stderr  # nobody else waits for a verdict


def test_files_of_one_name_are_told_apart_by_their_folders(levels, tmp_path):
    for folder, result in {"a/19_ReLU": "x.relu()", "b/19_ReLU": "x.clamp(min=0)", "a/1_Triple": "3 * x"}.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "mine.py").write_text(SUBMISSION.format(result=result))
    words = ("--problem", levels, "--device", "cpu", "--no-store", "--report", f"markdown={tmp_path / 'out.md'}")
    run = run_eval(tmp_path / "a", tmp_path / "b", *words, json_results=False)
    ranking = run.stdout.partition("Verdicts · 19_ReLU")[2]
    assert "a/19_ReLU/mine" in ranking and "b/19_ReLU/mine" in ranking
    assert "### a/19\\_ReLU/mine · 19\\_ReLU · cpu" in (tmp_path / "out.md").read_text()
