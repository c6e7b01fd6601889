"""Times that a program asks a pool for: taken with nothing beside them."""

import pytest

from harness import Pool, Stage
from harness.reasons import Reason
from tests import machine
from tests.test_api import PROBLEM, RIGHT, WRONG

pytestmark = pytest.mark.alone


def test_times_are_taken_for_who_asks(tmp_path):
    problem = tmp_path / "timed.py"
    problem.write_text(PROBLEM.read_text().replace('distribution="rows"', 'distribution="rows", timed=True'))
    stages = []
    with machine.alone(), Pool(2, problem=str(problem), device="cpu", effort="quick", against="eager") as pool:
        results = pool.run([RIGHT, WRONG, RIGHT], on_stage=lambda index, stage: stages.append((index, stage)))
    assert {index for index, stage in stages if stage is Stage.TIMING} == {0, 2}
    assert results[1].status == "rejected"
    for evaluation in (results[0].evaluation, results[2].evaluation):
        assert evaluation.reason == Reason.TOO_NOISY or any(case.timing for case in evaluation.cases)
