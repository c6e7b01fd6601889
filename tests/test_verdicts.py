"""Each small submission in fixtures/verdicts gets the verdict that its docstring names, in one run of eval.py.

One run for all of them is the point: whatever a submission does to its own process, the next one's
evaluation is unharmed, and the machine is clean afterwards.
"""

import ast
from pathlib import Path

import psutil
import pytest

from tests.helpers import run_eval

FOLDER = Path(__file__).parent / "fixtures" / "verdicts"
FILES = sorted(FOLDER.glob("*.py"))


def expected(path):
    """('rejected', 'wrong_output') from the line 'expect: rejected wrong_output' at the file's head."""
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.startswith("expect: "))
    status, *reason = line.removeprefix("expect: ").split()
    return status, reason[0] if reason else None


@pytest.fixture(scope="module")
def evaluations():
    """All verdicts, by submission, on two cases of which one has a large eps and one a large mean."""
    selected = [str(path) for path in FILES]
    problem = Path(__file__).parent / "fixtures" / "problems" / "small_layernorm.py"
    plain = run_eval(*selected, "--problem", problem, "--timeout", "6")
    return {e["submission"]: e for e in plain.results["evaluations"]}


TIMED = ("remembers_by_address", "remembers_by_content", "works_ahead", "wrong_when_unobserved")


@pytest.mark.parametrize("path", [p for p in FILES if p.stem not in TIMED], ids=lambda p: p.stem)
def test_verdict(path, evaluations):
    evaluation = evaluations[path.stem]
    status, reason = expected(path)
    assert (evaluation["status"], evaluation["reason"]) == (status, reason), evaluation["message"]
    assert status == "accepted" or len(evaluation["message"]) > 20
    assert "Traceback" not in evaluation["message"]


@pytest.mark.parametrize("name", TIMED)
def test_what_only_timed_calls_show(name):
    run = run_eval(FOLDER / f"{name}.py", "--problem", "layernorm", "-k", "32x128x768", "--against", "eager", "--quick")
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["status"], evaluation["reason"]) == expected(FOLDER / f"{name}.py")
    assert run.code == 1


def test_every_fixture_is_python_or_says_that_it_is_not():
    for path in FILES:
        if path.stem != "syntax_error":
            ast.parse(path.read_text())


def test_nothing_is_left_behind(evaluations):
    assert evaluations
    left = [p.cmdline() for p in psutil.process_iter(["cmdline"]) if "harness.worker" in (p.info["cmdline"] or [])]
    assert left == []
