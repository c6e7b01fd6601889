"""Every command and code block of the documents is run: as it stands, or as the marker in front of it says.

What is not run here is skipped with its name and reason, which pytest's summary lists.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.documents import blocks, commands
from tests.helpers import ALL_DETECTORS, ROOT, judged, judged_with_all_detectors

HAS_GPU = torch.cuda.is_available()
SHELL = [b for b in blocks() if b.language == "sh"]
PYTHON = [b for b in blocks() if b.language == "python" and b.marker != "quote"]
AS_THEY_STAND = {b.text for b in SHELL if b.marker == "" or (b.marker in ("tested as", "needs") and HAS_GPU)}


def _run(script):
    """A shell block in the repository's root, with this Python as `python`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env={**os.environ, "PATH": path},
                          capture_output=True, text=True, timeout=580)  # fmt: skip


@pytest.fixture(scope="module")
def instead():
    """The cheaper commands, each of which test_cuda_submissions may have run already."""
    wanted = {} if HAS_GPU else {b.said: shlex.split(b.said)[2:] for b in SHELL if b.marker == "tested as"}
    return {said: _judged(*arguments) for said, arguments in wanted.items()}


def _judged(submission, *options):
    """The run that judged a submission, and its evaluations."""
    if options == ALL_DETECTORS:
        return judged_with_all_detectors(ROOT / submission)
    run = judged(submission, *options)
    return run, run.results.get("evaluations", [])


@pytest.fixture(scope="module")
def outcomes(instead):
    """Each distinct block that runs as it stands; after the others, which leave their builds."""
    return {text: _run(text) for text in AS_THEY_STAND}


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_a_command_succeeds(block, instead, outcomes):
    if block.marker in ("evaluate command", "test command"):
        pytest.skip(f"NOT RUN HERE: {block} is what .ci/run installs and starts; its parts are tests of their own")
    if block.text in outcomes:
        outcome = outcomes[block.text]
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    elif block.marker == "tested as":
        run, evaluations = instead[block.said]
        assert evaluations, run.stderr
        assert {e["status"] for e in evaluations} == {"accepted"}, [e["message"] for e in evaluations]
    else:
        pytest.skip(f"NOT RUN HERE: {block} needs a GPU: {'; '.join(commands(block.text))}")


@pytest.mark.parametrize("block", [b for b in PYTHON if b.marker == ""], ids=str)
def test_a_python_block_runs(block, tmp_path):
    process = subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("block", [b for b in PYTHON if b.marker == "problem"], ids=str)
def test_a_problem_shown_whole_tells_right_from_forbidden(block, tmp_path):
    problem = tmp_path / "shown.py"
    problem.write_text(block.text)
    its_reference = tmp_path / "reference.py"
    its_reference.write_text(f"{block.text}\nclass ModelNew(Model): pass\n")
    run = judged(block.said, str(its_reference), "--problem", str(problem), "--no-timing")
    verdicts = [(e["status"], e["reason"]) for e in run.results["evaluations"]]
    assert verdicts == [("accepted", None), ("rejected", "forbidden_op")]


@pytest.mark.parametrize("block", [b for b in PYTHON if b.marker == "submission"], ids=str)
def test_a_submission_shown_whole_is_accepted(block, tmp_path):
    path = tmp_path / "shown.py"
    path.write_text(block.text)
    run = judged(str(path), *shlex.split(block.said))
    assert run.code == 0, run.results or run.stderr


def exercises():
    """The marker of each exercise with all of its diffs: that behind the marker, and those without one behind it."""
    found = {}
    for block in (b for b in blocks() if b.language == "diff"):
        if block.marker == "exercise":
            found[str(block)] = (block.said, [block.text])
        else:
            next(reversed(found.values()))[1].append(block.text)
    return found


def changed(source, diff):
    """The source with the lines of a diff: those with a minus are gone, those with a plus are there."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
    assert source.count(before) == 1, f"{source.count(before)} places have\n{before}"
    return source.replace(before, after)


@pytest.mark.parametrize("said, diffs", exercises().values(), ids=exercises().keys())
def test_an_exercise_has_the_answer_that_its_page_gives(said, diffs, tmp_path):
    file, options, answer = said.split("; ")
    source = (ROOT / file).read_text()
    for diff in diffs:
        source = changed(source, diff)
    path = tmp_path / Path(file).name
    path.write_text(source)
    run = judged(str(path), "--problem", "layernorm", "--device", "emulator", *shlex.split(options))
    verdicts = [f"{e['status']} {e['reason'] or ''}".strip() for e in run.results["evaluations"]]
    assert verdicts == [answer], run.results
