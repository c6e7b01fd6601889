"""CUDA submissions on the emulator: what is shipped is accepted, what is broken is named."""

from pathlib import Path

import pytest

from tests.helpers import ROOT, run_eval
from tests.test_verdicts import expected

FOLDER = Path(__file__).parent / "fixtures" / "cuda"
PROBLEM = Path(__file__).parent / "fixtures" / "problems" / "small_layernorm.py"
SEED = ROOT.parent / "shared" / "seeds" / "004_submission.py"


@pytest.fixture(scope="module")
def evaluations():
    run = run_eval(FOLDER, "--problem", PROBLEM, "--device", "emulator")
    return {e["submission"]: e for e in run.results["evaluations"]}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.stem)
def test_verdict(path, evaluations):
    evaluation = evaluations[path.stem]
    status, reason = expected(path)
    assert evaluation["status"] == status, evaluation["message"]
    if reason:
        assert evaluation["reason"] == reason, evaluation["message"]


def test_a_compile_error_names_the_line_of_the_python_file(evaluations):
    path = FOLDER / "does_not_compile.py"
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "= nothing;" in text)
    assert f"does_not_compile.py:{line}:" in evaluations["does_not_compile"]["message"]


def test_a_missing_cpp_sources_is_named(evaluations):
    assert "cpp_sources" in evaluations["no_cpp_sources"]["message"]


def test_shipped_submissions_are_accepted_on_every_case():
    run = run_eval(ROOT / "submissions", "--no-timing")
    failed = {e["submission"]: e["message"] for e in run.results["evaluations"] if e["status"] != "accepted"}
    assert failed == {}
    assert run.code == 0
    assert len(run.results["evaluations"]) >= 6
    for evaluation in run.results["evaluations"]:
        assert [c["name"] for c in evaluation["cases"] if c["status"] != "passed"] == []
        assert len(evaluation["cases"]) >= 30


needs_seed = pytest.mark.skipif(not SEED.exists(), reason="the source material is not beside this checkout")


@needs_seed
def test_the_source_materials_submission_lacks_cpp_sources():
    run = run_eval(SEED, "--problem", PROBLEM)
    (evaluation,) = run.results["evaluations"]
    assert run.code == 1
    assert evaluation["reason"] == "load_failed"
    assert "cpp_sources" in evaluation["message"]


@needs_seed
def test_the_source_materials_submission_is_judged_once_it_builds(tmp_path):
    """With cpp_sources it builds and is right on data around 0.5; E[x^2] - m^2 fails where the mean is large."""
    declaration = "torch::Tensor layer_norm_cuda(torch::Tensor, torch::Tensor, torch::Tensor, float);"
    text = SEED.read_text().replace("    cuda_sources=", f"    cpp_sources='{declaration}',\n    cuda_sources=")
    path = tmp_path / "seed.py"
    path.write_text(text)
    around_a_half = run_eval(path, "--problem", "layernorm", "-k", "headline")
    assert around_a_half.code == 0, around_a_half.results
    large_mean = run_eval(path, "--problem", "layernorm", "-k", "N(1e4, 1)")
    assert large_mean.code == 1
    assert large_mean.results["evaluations"][0]["reason"] == "wrong_output"
