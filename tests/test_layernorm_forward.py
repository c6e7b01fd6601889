"""The raw forward's pair of statistics is judged, and the two faults that such kernels are known for are found."""

import pytest

from tests.helpers import ROOT, run_eval

SHIPPED = ROOT / "submissions" / "layernorm_forward" / "block_per_row.py"

# What each fault changes in the shipped kernel, the cases that must show it, and one that cannot: the sum of the wrong
# lane is right where a row has one element. One pass over squares may fail anywhere, as the means of the run fall.
FAULTS = {
    "wrong_lane": [("__shfl_xor_sync(0xffffffffu, value, across)", "__shfl_down_sync(0xffffffffu, value, across)")],
    "one_pass": [
        ("squares += (x[i] - mean) * (x[i] - mean);", "squares += x[i] * x[i];"),
        ("block_sum(squares) / width + eps", "fmaxf(block_sum(squares) / width - mean * mean, 0.0f) + eps"),
    ],
}
MUST_FAIL = {"wrong_lane": {"2x33", "16x1024", "3x4096"}, "one_pass": {"N(1e4, 1)"}}
MUST_PASS = {"wrong_lane": {"D = 1"}, "one_pass": set()}


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "layernorm_forward"
    folder.mkdir()
    for name, changes in FAULTS.items():
        source = SHIPPED.read_text()
        for right, wrong in changes:
            assert source.count(right) == 1
            source = source.replace(right, wrong)
        (folder / f"{name}.py").write_text(source)
    run = run_eval(folder, "--problem", "layernorm_forward", "--device", "emulator", "--no-timing")
    return {evaluation["submission"]: evaluation for evaluation in run.results["evaluations"]}


@pytest.mark.parametrize("name", FAULTS)
def test_a_known_fault_is_a_wrong_output(evaluations, name):
    evaluation = evaluations[name]
    assert evaluation["status"] == "rejected", evaluation["message"]
    assert evaluation["reason"] in ("wrong_output", "wrong_when_called_again"), evaluation["message"]
    failed = {case["name"] for case in evaluation["cases"] if case["status"] == "failed"}
    assert failed >= MUST_FAIL[name]
    assert not failed & MUST_PASS[name]
