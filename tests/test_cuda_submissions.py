"""CUDA submissions on the emulator: what is shipped is accepted, what is broken is named."""

import re
from pathlib import Path

import pytest

from harness.submission import read_submission
from tests.helpers import ROOT, has_cuda, judged_with_all_detectors, run_eval

FORM = ROOT / "tests" / "hostile" / "form"
PROBLEM = Path(__file__).parent / "fixtures" / "problems" / "small_layernorm.py"
SUBMISSIONS = sorted((ROOT / "submissions").rglob("*.py"))
SHIPPED = [path for path in SUBMISSIONS if has_cuda(path)]
GPU_ONLY = [path for path in SUBMISSIONS if read_submission(path).gpu_language]
CPU_ONLY = [path for path in SUBMISSIONS if path not in SHIPPED + GPU_ONLY]

# The README's table has the fastest of each problem. Of those beside it, the ladder alone is judged in any case.
FASTEST = set(re.findall(r"^\| (\w+) \| `(\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE))
WITH_A_FASTEST = {problem for problem, _ in FASTEST}
STOOD_FOR = [
    path
    for path in SHIPPED
    if path.parent.name in WITH_A_FASTEST - {"layernorm"} and (path.parent.name, path.stem) not in FASTEST
]
STANDS_FOR_IT = pytest.mark.whole("the fastest of its problem is judged, and by the gate what the last commit changes")

SEED = ROOT.parent / "shared" / "seeds" / "004_submission.py"


# Without functions for Python this is one unit; with them three, two of which read all of torch's headers as text.
HALF = '''
from torch.utils.cpp_extension import load_inline

load_inline(name="half", cpp_sources="", is_python_module=False, cuda_sources="""
#include <cuda_fp16.h>
float sum() { return __half2float(__float2half(1.0f) + __float2half(2.0f)) + nothing; }
""", extra_cuda_cflags=["-U__CUDA_NO_HALF_OPERATORS__"])
'''


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    half = tmp_path_factory.mktemp("submissions") / "half.py"
    half.write_text(HALF)
    paths = [FORM / "does_not_compile.py", FORM / "no_cpp_sources.py", half]
    run = run_eval(*paths, "--problem", PROBLEM, "--device", "emulator")
    return {e["submission"]: e for e in run.results["evaluations"]}


def test_a_compile_error_names_the_line_of_the_python_file(evaluations):
    path = FORM / "does_not_compile.py"
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "= nothing;" in text)
    assert f"does_not_compile.py:{line}:" in evaluations["does_not_compile"]["message"]


def test_a_missing_cpp_sources_is_named(evaluations):
    assert "cpp_sources" in evaluations["no_cpp_sources"]["message"]


def test_operators_of_half_are_there_once_they_are_asked_for(evaluations):
    """torch has nvcc leave them out, and -U brings them back: the only error is the one that follows."""
    message = evaluations["half"]["message"]
    assert "nothing" in message
    assert "operator+" not in message


def _parameter(path):
    return pytest.param(path, marks=STANDS_FOR_IT if path in STOOD_FOR else (), id=f"{path.parent.name}/{path.stem}")


@pytest.mark.parametrize("path", map(_parameter, SHIPPED))
def test_a_shipped_submission_is_accepted_on_every_case_with_all_detectors_silent(path, whole):
    run, evaluations = judged_with_all_detectors(path, left_out=() if whole else STOOD_FOR)
    assert [e["problem"] for e in evaluations] == [path.parent.name, *read_submission(path).also_for], run.stderr
    for evaluation in evaluations:
        assert evaluation["status"] == "accepted", evaluation["message"]
        assert evaluation["device"] == "emulator"
        assert [c["name"] for c in evaluation["cases"] if c["status"] != "passed"] == []
        assert len(evaluation["cases"]) >= 15
        assert any(c["counts"] for c in evaluation["cases"])


def test_a_shipped_submission_without_cuda_is_accepted_on_the_cpu():
    run = run_eval(*CPU_ONLY)
    problems = [(name, p.stem) for p in CPU_ONLY for name in (p.parent.name, *read_submission(p).also_for)]
    judged = {(e["problem"], e["submission"]): e["status"] for e in run.results["evaluations"]}
    assert judged == dict.fromkeys(problems, "accepted")


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
    assert around_a_half.code == 0, repr(around_a_half)
    large_mean = run_eval(path, "--problem", "layernorm", "-k", "N(1e4, 1)")
    assert large_mean.code == 1
    assert large_mean.results["evaluations"][0]["reason"] == "wrong_output"
