"""What people copy into CI: the scripts of its steps, run in a clean checkout of a repository of kernels."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.gate.repositories import CUDA, PROBLEM, commit, faulty, git, line_of_fault
from tests.helpers import ROOT

CI = ROOT / "docs" / "ci"
WORKFLOWS = sorted(CI.glob("*.yml"))
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


def read(path):
    return yaml.safe_load(path.read_text())


def steps():
    return read(ROOT / "action.yml")["runs"]["steps"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A repository with a right kernel on main, and a branch for each kind of pull request."""
    folder = tmp_path_factory.mktemp("origin")
    for name, text in {"problems/tiny.py": PROBLEM, "submissions/tiny/mine.py": CUDA}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    changed = {"right": CUDA.replace("2 * x[i]", "x[i] + x[i]"), "wrong": faulty("beyond")}
    for branch, text in changed.items():
        git(folder, "checkout", "-q", "-b", branch, "main")
        (folder / "submissions/tiny/mine.py").write_text(text)
        commit(folder)
    git(folder, "checkout", "-q", "-b", "words", "main")
    (folder / "README.md").write_text("words")
    commit(folder)
    return folder


def checkout(origin, branch, folder):
    """As a runner has it."""
    git(origin, "clone", "-q", "--branch", branch, str(origin), str(folder))
    return folder


def bash(script, folder, environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_"))}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]  # as GitHub starts it
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=580,
                          env={**kept, "OMP_NUM_THREADS": "1", **environment})  # fmt: skip


def filled(text, known):
    """A value with its expressions replaced, each of which must be known."""
    return EXPRESSION.sub(lambda found: known[found[1]], text)


def run_action(folder, temp, **inputs):
    """The steps of action.yml, each with what its expressions stand for; the last one's process, and all outputs."""
    known = {f"inputs.{name}": value["default"] for name, value in read(ROOT / "action.yml")["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(ROOT)}
    for step in steps():
        output = temp / f"{step['id']}.out"
        environment = {key: filled(value, known) for key, value in step["env"].items()}
        of_runner = {"RUNNER_TEMP": temp, "GITHUB_OUTPUT": output, "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": folder}
        done = bash(step["run"], folder, environment | {key: str(value) for key, value in of_runner.items()})
        pairs = [line.split("=", 1) for line in output.read_text().splitlines()]
        known |= {f"steps.{step['id']}.outputs.{name}": value for name, value in pairs}
    return done, known


@pytest.mark.parametrize(("branch", "code"), [("right", 0), ("wrong", 1), ("words", 0)])
def test_the_action_lets_right_kernels_pass_and_marks_the_line_of_wrong_ones(origin, tmp_path, branch, code):
    folder, temp = checkout(origin, branch, tmp_path / "work"), tmp_path / "temp"
    temp.mkdir()
    done, known = run_action(
        folder, temp, since="origin/main", python=sys.executable, arguments="--no-store\n--quiet\n"
    )
    assert done.returncode == code, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    place = f"file=submissions/tiny/mine.py,line={line_of_fault('beyond')},"
    assert [place in line for line in found] == ([True] if branch == "wrong" else [])
    reports = temp / "kernelgate-reports"
    assert known["steps.gate.outputs.reports"] == str(reports)
    assert {path.name for path in reports.iterdir()} == {"junit.xml", "kernelgate.sarif", "comment.md"}
    assert ("passed" if code == 0 else "failed") in (reports / "comment.md").read_text().splitlines()[1]


def test_no_script_holds_an_expression():
    """GitHub puts its value into the text of a script before bash reads it: a branch's name would be commands."""
    jobs = [job for path in WORKFLOWS for job in read(path).get("jobs", {}).values()]
    scripts = [step["run"] for step in [*steps(), *(step for job in jobs for step in job["steps"])] if "run" in step]
    assert len(scripts) >= 3
    assert [script for script in scripts if "${{" in script] == []


def test_the_workflow_that_comments_on_forks_follows_the_one_that_measures_them_alone():
    names = {path.name: read(path)["name"] for path in WORKFLOWS if path.name != "gitlab-ci.yml"}
    assert len({*names.values()}) == len(names)
    triggers = read(CI / "fork-comment.yml")
    assert triggers[True]["workflow_run"]["workflows"] == [names["fork-measure.yml"]]  # YAML's `on` is a truth value


@pytest.mark.parametrize("path", [path for path in WORKFLOWS if path.name != "gitlab-ci.yml"], ids=lambda p: p.stem)
def test_a_workflow_gives_the_action_inputs_that_it_has(path):
    known = read(ROOT / "action.yml")["inputs"]
    used = [step for job in read(path)["jobs"].values() for step in job["steps"] if "OWNER" in step.get("uses", "")]
    assert all(set(step["with"]) <= set(known) for step in used)
    assert used or path.name == "fork-comment.yml"


def test_what_runs_strangers_code_may_write_nothing_and_what_may_runs_none():
    measure, comment = read(CI / "fork-measure.yml"), read(CI / "fork-comment.yml")
    assert measure["permissions"] == {"contents": "read"}
    assert comment["permissions"]["pull-requests"] == "write"
    uses = [step.get("uses", "") for job in comment["jobs"].values() for step in job["steps"]]
    assert not any(word in use for use in uses for word in ("checkout", "OWNER"))
    assert comment[True]["workflow_run"]["workflows"] == [measure["name"]]  # YAML 1.1 reads `on` as true


# ---------------------------------------------------------------------- the comment

GH = """#!/usr/bin/env bash
echo "$*" >> "$LOG"
case "$*" in
  *pulls*) echo "$NUMBER";;
  *--paginate*) echo "$KNOWN";;
esac
"""


def commented(tmp_path, text, number="7", known=""):
    """What the step asks `gh` for, a call a line."""
    (step,) = [step for step in read(CI / "fork-comment.yml")["jobs"]["comment"]["steps"] if "run" in step]
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "comment.md").write_text(text)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(tmp_path / "log"), "NUMBER": number,
                   "KNOWN": known, "REPOSITORY": "o/r", "HEAD_OWNER": "x", "HEAD_BRANCH": "b; rm -rf .",
                   "HEAD_SHA": "abc"}  # fmt: skip
    done = bash(step["run"], tmp_path, environment)
    log = tmp_path / "log"
    return done, log.read_text().splitlines() if log.exists() else []


MARKED = "<!-- kernelgate -->\n### kernelgate: passed\n"


@pytest.mark.parametrize(
    ("known", "call"),
    [("", "api --method POST repos/o/r/issues/7/comments"), ("42", "api --method PATCH repos/o/r/issues/comments/42")],
)
def test_a_comment_is_written_once_and_then_replaced(tmp_path, known, call):
    done, calls = commented(tmp_path, MARKED, known=known)
    assert done.returncode == 0, done.stderr
    assert calls[0].startswith("api --method GET repos/o/r/pulls -f state=open -f head=x:b; rm -rf . ")
    assert calls[-1] == f"{call} -F body=@comment.md"


def test_nothing_is_written_for_a_commit_that_is_no_longer_there(tmp_path):
    done, calls = commented(tmp_path, MARKED, number="")
    assert done.returncode == 0 and len(calls) == 1


@pytest.mark.parametrize("text", ["Buy now!", MARKED + "x" * 65_536])
def test_what_is_none_of_kernelgates_is_not_posted(tmp_path, text):
    done, calls = commented(tmp_path, text)
    assert done.returncode == 1 and calls == []


# ---------------------------------------------------------------------- others


@pytest.mark.parametrize(("branch", "code"), [("right", 0), ("wrong", 1)])
def test_gitlabs_script_gives_a_junit_file(origin, tmp_path, branch, code):
    job = read(CI / "gitlab-ci.yml")["kernels"]
    folder = checkout(origin, branch, tmp_path / "work")
    base = git(folder, "merge-base", "origin/main", "HEAD")
    given = {"KERNELGATE": str(ROOT), "PYTHON": sys.executable, "CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    assert set(given) - {"CI_MERGE_REQUEST_DIFF_BASE_SHA"} <= set(job["variables"])
    done = bash("\n".join(job["script"]), folder, given)
    assert done.returncode == code, done.stdout + done.stderr
    assert f'failures="{2 * code}"' in (folder / job["artifacts"]["reports"]["junit"]).read_text().splitlines()[1]


@pytest.mark.parametrize(("branch", "code"), [("right", 0), ("wrong", 1)])
def test_the_hook_of_pre_commit_judges_the_files_of_a_commit(origin, tmp_path, branch, code):
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    folder = checkout(origin, branch, tmp_path / "work")
    files = [name for name in git(folder, "ls-files").splitlines() if re.search(hook["files"], name)]
    assert files == ["submissions/tiny/mine.py"]
    program, *words = hook["entry"].split()
    assert os.access(ROOT / program, os.X_OK)
    path = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    done = bash(f"{ROOT / program} {' '.join([*words, *files])}", folder, path)
    assert done.returncode == code, done.stdout + done.stderr
