"""What submissions say in the log of a GitHub workflow: nothing that the runner obeys."""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.helpers import ROOT, forked_eval

LOUD = """print("##[error]printed")
raise RuntimeError('no\\n::error file=x::forged\\n  ::set-output name=x::y\\n::stop-commands::x\\n::x::\\n##[error]old')
"""


def loud(folder):
    """A submission to `tiny` whose error is full of commands."""
    path = folder / "tiny" / "loud.py"
    path.parent.mkdir()
    path.write_text(LOUD)
    return path


def commands(log):
    """What GitHub's runner would obey in a log, as src/Runner.Worker/ActionCommandManager.cs reads its lines."""
    obeyed, word = [], ""
    for line in map(str.strip, log.splitlines()):
        if word:
            word = "" if line == f"::{word}::" else word
        elif line.startswith("::stop-commands::"):
            word = line.removeprefix("::stop-commands::")
        elif line.startswith("::") or "##[" in line:
            obeyed.append(line)
    assert not word, "commands are stopped for all later steps, too"
    return obeyed


def run(tmp_path, *words, stdout=None, **environment):
    """A pipe takes what it says, or `stdout`."""
    problem = tmp_path / "tiny.py"
    problem.write_text(PROBLEM)
    words = [loud(tmp_path), "--problem", problem, "--no-store", *words]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")} | environment
    if stdout:
        command = [sys.executable, ROOT / "eval.py", *words]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=kept)
    else:
        done = forked_eval(words, kept, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    return done


PROBLEM = """
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


CASES = [dict(name="small", init=[], shapes=[(4, 64)])]
"""


def test_without_a_workflow_they_are_as_they_are(tmp_path):
    done = run(tmp_path)
    assert "::error file=x::forged" in commands(done.stdout) and "stop-commands::x" in done.stdout


@pytest.mark.parametrize("words", [(), ("--show-output", "-v"), ("--report", "markdown=-"), ("--report", "comment=-")])
def test_what_people_read_stands_between_lines_that_stop_commands(tmp_path, words):
    done = run(tmp_path, *words, GITHUB_ACTIONS="true")
    assert [commands(stream) for stream in (done.stdout, done.stderr)] == [[], []]
    assert "::error file=x::forged" in done.stdout


@pytest.mark.parametrize("name", ["json", "jsonl", "sarif", "junit"])
def test_what_programs_read_says_the_same_and_commands_nothing(tmp_path, name):
    done = run(tmp_path, "--report", f"{name}=-", GITHUB_ACTIONS="true")
    assert commands(done.stdout) == []
    said = " ".join(ElementTree.fromstring(done.stdout).itertext()) if name == "junit" else str(json.loads(done.stdout))
    assert "##[error]old" in said and "::error file=x::forged" in said


def test_annotations_are_commands_of_the_judge_alone(tmp_path):
    done = run(tmp_path, "--report", "github=-", GITHUB_ACTIONS="true")
    assert [re.match(r"::\w+", line)[0] for line in commands(done.stdout)] == ["::error"]
    assert commands(done.stdout)[0].startswith("::error file=tiny/loud.py,line=2,title=kernelgate%3A load_failed::")
    assert commands(done.stderr) == []


def test_a_file_is_no_log(tmp_path):
    with open(tmp_path / "summary.md", "w") as file:
        run(tmp_path, "--report", "markdown=-", stdout=file, GITHUB_ACTIONS="true")
    assert "stop-commands::x" in (text := (tmp_path / "summary.md").read_text())
    assert not text.startswith("::")
