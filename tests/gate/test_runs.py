"""Whole gates in a repository of its own, with the reports that CI reads."""

import json
import os
from xml.etree import ElementTree

import pytest

from harness.submission import read_submission
from harness.verbs.gating.runner import choose_device
from tests.gate.repositories import CUDA, FAULTS, PROBLEM, commit, faulty, git, line_of_fault
from tests.helpers import ROOT, forked_eval
from tests.test_workflow_log import commands, loud


def eval_gate(folder, *words, code, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    given = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment
    done = forked_eval(["gate", "--db", folder / "results.db", *words], kept | given, folder=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A repository with a right kernel, a branch with wrong ones, and the reports of a gate on it."""
    folder = tmp_path_factory.mktemp("toy")
    files = {"problems/tiny.py": PROBLEM, "submissions/tiny/good.py": CUDA, "kernelgate.toml": "max-registers = 64\n"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".gitignore").write_text("results.db*\nreports\n")
    (folder / "reports").mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    for name in FAULTS:
        (folder / "submissions/tiny" / f"{name}.py").write_text(faulty(name))
    return folder


@pytest.fixture(scope="module")
def reports(toy):
    """Of one gate on what differs from main, as a workflow asks for them."""
    words = [word for name in ("junit=j.xml", "sarif=s.json", "comment=c.md")
             for word in ("--report", name.replace("=", "=reports/"))]  # fmt: skip
    summary = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(toy / "reports/summary.md"),
        "GITHUB_WORKSPACE": str(toy),
    }
    done = eval_gate(toy, "--since", "main", "--report", "github=-", *words, code=1, **summary)
    return done, toy / "reports"


def test_a_right_kernel_passes_and_what_was_not_looked_at_is_said(toy):
    done = eval_gate(toy, "submissions/tiny/good.py", code=0)
    assert "ACCEPTED  good" in done.stdout
    assert (
        "note: submissions/tiny/good.py: max-registers left out: its kernels were compiled for no GPU." in done.stdout
    )
    assert done.stdout.splitlines()[-1] == "gate: passed: 1 of 1 judged, no rule broken."


def test_wrong_kernels_fail_with_a_line_each(reports):
    done, _ = reports
    found = [line for line in done.stderr.splitlines() if line.startswith("BROKEN")]
    assert len(found) == len(FAULTS)
    for name, (*_, reason) in FAULTS.items():
        assert any(f"submissions/tiny/{name}.py: verdict: rejected on emulator: {reason}: " in line for line in found)
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("::")]
    assert said[-1] == "gate: failed: 4 of 4 judged, 4 rules broken."


@pytest.mark.parametrize("name", FAULTS)
def test_annotations_stand_at_the_faulty_line(reports, name):
    place = f"file=submissions/tiny/{name}.py,line={line_of_fault(name)},"
    (line,) = [line for line in reports[0].stdout.splitlines() if f"/{name}.py,line=" in line]
    assert line.startswith(f"::error {place}title=kernelgate%3A {FAULTS[name][2]}::"), line


@pytest.mark.parametrize("name", FAULTS)
def test_sarif_stands_at_the_faulty_line(reports, name):
    (run,) = json.loads((reports[1] / "s.json").read_text())["runs"]
    (found,) = [r for r in run["results"] if f"tiny/{name}.py" in json.dumps(r["locations"])]
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": f"submissions/tiny/{name}.py", "uriBaseId": "%SRCROOT%"}
    assert (place["region"]["startLine"], found["ruleId"]) == (line_of_fault(name), FAULTS[name][2])


def test_the_steps_summary_is_the_comment(reports):
    comment = (reports[1] / "c.md").read_text()
    assert (reports[1] / "summary.md").read_text() == comment + "\n"
    assert comment.startswith("<!-- kernelgate -->\n### kernelgate: failed: 4 of 4 judged, 4 rules broken.\n")


def test_junit_has_a_test_for_each_case(reports):
    root = ElementTree.parse(reports[1] / "j.xml").getroot()
    tests = {(t.get("classname"), t.get("name")): t for t in root.iter("testcase")}
    assert tests["tiny.emulator.beyond", "small"].find("failure") is None
    assert tests["tiny.emulator.beyond", "odd"].find("failure").get("type") == "out_of_bounds"
    assert tests["tiny.emulator.broken", "verdict"].find("failure").get("type") == "build_failed"


def test_a_submissions_words_command_no_runner(toy, tmp_path):
    path = loud(tmp_path)
    done = eval_gate(toy, str(path), "--no-require-check", code=1, GITHUB_ACTIONS="true")
    assert [commands(stream) for stream in (done.stdout, done.stderr)] == [[], []]
    assert "::error file=x::forged" in done.stdout


def test_where_nothing_that_is_judged_differs_the_gate_is_open(toy):
    done = eval_gate(toy, "submissions/tiny/good.py", "--since", "main", code=0)
    assert done.stdout.splitlines() == [
        "note: nothing that is judged differs since main.", "gate: passed: 0 of 0 judged, no rule broken.",
    ]  # fmt: skip


def test_a_file_for_a_problem_that_is_not_listed_is_named(toy):
    done = eval_gate(toy, "submissions/tiny/good.py", "--problems", "layernorm", code=5)
    said = "note: submissions/tiny/good.py was passed over: it is for tiny, and problems lists layernorm."
    assert said in done.stdout.splitlines()


def test_a_reference_that_nothing_can_be_judged_with_costs_other_problems_nothing(toy, tmp_path):
    for name, text in {
        "tiny": PROBLEM,
        "drawn": PROBLEM.replace("x * 2", "nn.functional.dropout(x, 0.5, True)"),
    }.items():
        (tmp_path / f"problems/{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"problems/{name}.py").write_text(text)
        (tmp_path / f"submissions/{name}").mkdir(parents=True)
        (tmp_path / f"submissions/{name}/good.py").write_text(CUDA)
    done = eval_gate(tmp_path, "--no-store", code=3)
    assert "ACCEPTED  good" in done.stdout
    (broken,) = [line for line in done.stdout.splitlines() if line.startswith("BROKEN")]
    assert "submissions/drawn/good.py: devices: no verdict: " in broken and "draws random numbers" in broken
    assert done.stdout.splitlines()[-1] == "gate: failed: 1 of 2 judged, 1 rule broken."


def test_what_is_passed_over_is_said_where_nothing_else_differs(history):
    (history / "submissions/tiny/new.py").write_text("import torch\n")
    done = eval_gate(history, "--since", "main", "--problems", "second", code=0)
    assert "note: nothing that is judged differs since main." in done.stdout
    assert "submissions/tiny/new.py were passed over: they are for tiny, and problems lists second." in done.stdout


def test_a_gate_that_finds_no_submission_is_closed(toy, tmp_path):
    (tmp_path / "submissions").mkdir()
    done = eval_gate(tmp_path, code=5)
    assert "BROKEN  eval.py gate: results: nothing was judged; asked for: a verdict at least" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min-speedup", "-1"], "eval.py: The command line: min-speedup: "),
        (["--devices", "gpu"], "eval.py: The command line: each of devices is one of cuda, cpu, emulator, and 'gpu'"),
        (["--since", "nowhere"], "eval.py: --since: there is no commit or branch 'nowhere' in "),
        (["--config", "none.toml"], "eval.py: none.toml cannot be read: No such file or directory."),
        (["--report", "junit=no/such/folder.xml"], "there is no folder"),
        (["nothing.py"], "eval.py: There is no file or folder nothing.py."),
    ],
)
def test_what_cannot_be_is_a_sentence(toy, words, said):
    done = eval_gate(toy, *words, code=2)
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_device_that_is_not_here_closes_the_gate(toy):
    if choose_device(None, read_submission(toy / "submissions/tiny/good.py")) == "cuda":
        pytest.skip("there is a GPU here")
    done = eval_gate(toy, "submissions/tiny/good.py", "--devices", "cuda", code=3)
    assert "BROKEN  submissions/tiny/good.py: devices: no verdict: " in done.stdout
    assert "ACCEPTED  good" in done.stdout  # by the detectors, which are asked for as well
