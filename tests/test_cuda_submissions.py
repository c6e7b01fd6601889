"""CUDA submissions on the emulator: what is shipped is accepted, what is broken is named."""

from pathlib import Path

import pytest

from harness.submission import read_submission
from tests.helpers import ALL_DETECTORS, ROOT, has_cuda, judged_with_all_detectors, run_eval

FORM = ROOT / "tests" / "hostile" / "form"
PROBLEM = Path(__file__).parent / "fixtures" / "problems" / "small_layernorm.py"
RING = ROOT / "submissions" / "layernorm" / "speed_of_light.py"
RING_WITH_STATISTICS = ROOT / "submissions" / "layernorm_forward" / "speed_of_light.py"
RING_OF_OPTIONS = ROOT / "submissions" / "layernorm_options" / "read_once.py"
SIGNATURES = (
    "Pack4* y, Mail* mail, int rows, int blocks,\n          float eps)",
    "Pack4* y, float* mean_of, float* inv_std_of,\n          Mail* mail, int rows, int blocks, float eps)",
)
KNOWN = "const Statistics statistics = {row.mean, row.correction, rstd};"
WRITTEN_DOWN = " if (block == 0 && threadIdx.x == 0) write_down(statistics, mean_of, inv_std_of, row_of(turn));"
SLICES = {
    RING: PROBLEM.with_name("rows_of_slices.py"),
    RING_WITH_STATISTICS: PROBLEM.with_name("statistics_of_slices.py"),
    RING_OF_OPTIONS: PROBLEM.with_name("options_of_slices.py"),
}
# All rows by one team of two blocks, a slice for each: the emulator has room for a team to every row, and then none
# comes round. And nothing but the ring.
ONE_TEAM = ("resident = ring_blocks", "resident = 2 + 0 * ring_blocks")
IF_IT_CAN = ("if (ring(call)) return;", 'TORCH_CHECK(ring(call), "not by the ring"); return;')
NO_CLUSTERS = (
    ("kFewPacks = 128 * 1024;", "kFewPacks = 0;"),
    ("kClusterPacks = 16 * 1024;", "kClusterPacks = 0;"),
)
OR_SPLIT = (
    "if (!ring<T, kSize>(call)) split<T, kSize>(call);",
    'const bool by_ring = ring<T, kSize>(call); TORCH_CHECK(by_ring, "not by the ring");',
)
BY_ITS_RING = {
    RING: (ONE_TEAM, IF_IT_CAN, *NO_CLUSTERS),
    RING_WITH_STATISTICS: (ONE_TEAM, IF_IT_CAN),
    RING_OF_OPTIONS: (ONE_TEAM, OR_SPLIT),
}
SUBMISSIONS = sorted((ROOT / "submissions").rglob("*.py"))
SHIPPED = [path for path in SUBMISSIONS if has_cuda(path)]
GPU_ONLY = [path for path in SUBMISSIONS if read_submission(path).gpu_language]
CPU_ONLY = [path for path in SUBMISSIONS if path not in SHIPPED + GPU_ONLY]
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


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_shipped_submission_is_accepted_on_every_case_with_all_detectors_silent(path):
    run, evaluations = judged_with_all_detectors(path)
    assert [e["problem"] for e in evaluations] == [path.parent.name, *read_submission(path).also_for], run.stderr
    for evaluation in evaluations:
        assert evaluation["status"] == "accepted", evaluation["message"]
        assert evaluation["device"] == "emulator"
        assert [c["name"] for c in evaluation["cases"] if c["status"] != "passed"] == []
        assert len(evaluation["cases"]) >= 15
        assert any(c["counts"] for c in evaluation["cases"])


@pytest.mark.parametrize("path", SLICES, ids=lambda p: p.parent.name)
def test_a_ring_is_accepted_when_it_has_come_round(path, tmp_path):
    """With all detectors, on three rows of two slices: the third finds the slots and the boxes that the first had."""
    text = path.read_text()
    for found, instead in BY_ITS_RING[path]:
        assert text.count(found) == 1, found
        text = text.replace(found, instead)
    submission = tmp_path / path.name
    submission.write_text(text)
    run = run_eval(submission, "--problem", SLICES[path], *ALL_DETECTORS, "--timeout", "400")
    assert run.code == 0, run.results


def ring_of(path):
    """The lines of `path` from the words for barriers to the end of the kernel."""
    text = path.read_text()
    end = text.index("\n}\n", text.index("ring_rows(const"))
    return text[text.index("__device__ __forceinline__ unsigned shared_address") : end]


def test_the_ring_that_gives_statistics_is_the_other_one_but_for_them():
    """A submission is one file, so it stands in both: what is mended in one is mended in the other."""
    expected = ring_of(RING).replace(*SIGNATURES).replace(KNOWN, KNOWN + WRITTEN_DOWN)
    assert len(expected.splitlines()) > 400
    assert ring_of(RING_WITH_STATISTICS).split() == expected.split()


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
