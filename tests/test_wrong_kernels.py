"""Each file in fixtures/wrong/PROBLEM is wrong in one way that its problem's cases must show, or is the control.

They are written with PyTorch's operators: what is tested is the cases and the judge, and nothing has to be compiled.
"""

from pathlib import Path

import pytest

from tests.helpers import expected, run_eval

FOLDER = Path(__file__).parent / "fixtures" / "wrong"
FILES = sorted(FOLDER.rglob("*.py"))

# A fault that only some data show is found in the first call or in a later one, as the data of the run fall; a
# training step's perhaps where the gradients of two calls are added.
FOUND_IN_A_CALL = {"wrong_output", "wrong_when_called_again", "gradients_not_added"}


@pytest.fixture(scope="module")
def evaluations():
    """One run without --problem: the folder of each file says which problem it answers."""
    run = run_eval(FOLDER, "-x")
    return {(e["problem"], e["submission"]): e for e in run.results["evaluations"]}


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_verdict(path, evaluations):
    evaluation = evaluations[path.parent.name, path.stem]
    status, reason = expected(path)
    reasons = FOUND_IN_A_CALL if reason == "wrong_output" else {reason}
    assert evaluation["status"] == status and evaluation["reason"] in reasons, evaluation["message"]


def test_every_problem_has_a_control_and_several_wrong_ones():
    for folder in FOLDER.iterdir():
        verdicts = [expected(path)[0] for path in folder.glob("*.py")]
        assert verdicts.count("accepted") == 1
        assert verdicts.count("rejected") >= 3


def test_what_follows_the_first_failure_is_not_run(evaluations):
    for evaluation in evaluations.values():
        if evaluation["status"] == "rejected" and evaluation["cases"]:
            statuses = [case["status"] for case in evaluation["cases"]]
            first = statuses.index("failed")
            assert set(statuses[:first]) <= {"passed"}
            assert set(statuses[first + 1 :]) <= {"not_run"}
