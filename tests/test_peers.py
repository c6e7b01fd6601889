"""`--against` with other implementations: what is installed is judged, then timed; what is not is left out with a note.

No peer but `unfused` is needed here: a package under a peer's name, made for these tests, stands in for what a real
one may do. It has none of the real one's code.
"""

import importlib.metadata

import pytest

from harness import peers
from harness.paths import PROBLEMS
from harness.worker import implementations
from tests.helpers import ROOT, run_eval, run_timed

pytestmark = pytest.mark.alone

CONTROL = ROOT / "tests" / "fixtures" / "wrong" / "rmsnorm" / "control.py"
CASE = ("--problem", "rmsnorm", "-k", "768")

# Peer -> the module that harness.peers imports, the function that it takes from there, and what that does here.
STAND_INS = {
    "apex": ("apex/normalization/fused_layer_norm.py", "fused_rms_norm_affine",
             "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight"),
    "liger": ("liger_kernel/ops.py", "LigerRMSNormFunction", "raise RuntimeError('rows of 768 are too long')"),
    "quack": ("quack/rmsnorm.py", "rmsnorm_fwd", "return (x,)"),
}  # fmt: skip


def stand_in(folder, peer):
    """Write a package that `peer` finds, of version 9.9."""
    file, function, body = STAND_INS[peer]
    path = folder / file
    path.parent.mkdir(parents=True)
    for package in path.relative_to(folder).parents[:-1]:
        (folder / package / "__init__.py").write_text("")
    others = "fused_layer_norm = fused_layer_norm_affine = LigerLayerNormFunction = layernorm_fwd = None"
    signature = "x, weight, shape, eps" if peer == "apex" else "x, weight, eps"
    path.write_text(
        f"import torch\n\n{others}\n\n\ndef {function}({signature}):\n    {body}\n\n\n{function}.apply = {function}\n"
    )
    distribution = peers.DISTRIBUTIONS[peer]
    information = folder / f"{distribution.replace('-', '_')}-9.9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.9\n")


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """One run against all: unfused as it is, three packages of our own under peers' names, and one that ends its
    process when it is imported."""
    folder = tmp_path_factory.mktemp("packages")
    for peer in STAND_INS:
        stand_in(folder, peer)
    (folder / "cudnn.py").write_text("import os\n\nos._exit(7)\n")
    run = run_timed(CONTROL, *CASE, "--against", "unfused,apex,liger,quack,cudnn", env={"PYTHONPATH": str(folder)})
    assert run.code == 0, run.stderr
    return run.results["evaluations"][0]


def baselines(evaluation):
    (timing,) = [case["timing"] for case in evaluation["cases"] if case["timing"]]
    return timing["baselines"]


def test_unfused_and_an_installed_peer_are_timed_and_say_their_versions(evaluation):
    versions = {name: baseline["version"] for name, baseline in baselines(evaluation).items()}
    assert versions == {"unfused": f"torch {importlib.metadata.version('torch')}", "apex": "apex 9.9"}
    assert all(baseline["median_us"] > 0 for baseline in baselines(evaluation).values())


@pytest.mark.parametrize(
    ("peer", "sentence"),
    [
        ("liger", "rows of 768 are too long"),
        ("quack", "further from the float64 reference"),
        ("cudnn", "exited with code 7"),
    ],
)
def test_a_peer_that_refuses_is_wrong_or_dies_is_left_out_with_a_note(peer, sentence, evaluation):
    why = [
        note["why"] for note in evaluation["noted"] if note["note"] == "baseline_left_out" and note["baseline"] == peer
    ]
    assert why and sentence in why[0], evaluation["noted"]


def test_the_fastest_of_the_baselines_is_a_peer_too(evaluation):
    """Without eager there is no speedup over it, and still one over the faster of the others."""
    assert evaluation["geomean_speedup"] is None
    assert evaluation["geomean_speedup_over_best"] > 0


def test_what_is_not_installed_is_named():
    with pytest.raises(peers.NotAvailable, match="liger-kernel is not installed here"):
        peers.load("liger", "rmsnorm")


def test_a_peer_without_the_operator_says_what_it_has():
    with pytest.raises(peers.NotAvailable, match="has nothing for sorting; it has layernorm"):
        peers.load("unfused", "sorting")


def test_a_problem_of_another_name_says_which_operator_it_is(tmp_path):
    problem = tmp_path / "rows_of_mine.py"
    problem.write_text('OPERATOR = "rmsnorm"\n')
    assert implementations.peer("unfused", problem) == implementations.peer("unfused", PROBLEMS / "rmsnorm.py")
    problem.write_text("")
    with pytest.raises(implementations.LoadFailed, match="has nothing for rows_of_mine"):
        implementations.peer("unfused", problem)


def test_a_file_is_a_peer_once_it_names_its_distribution(tmp_path):
    (tmp_path / "_shared.py").write_text("")
    (tmp_path / "trial.py").write_text("import no_such_package\n\nDISTRIBUTION = 'trial-kernels'\n")
    assert peers.find([str(tmp_path)]) == {"trial": "trial-kernels"}
    (tmp_path / "silent.py").write_text("IMPLEMENTATIONS = {}\n")
    with pytest.raises(ValueError, match=r"silent\.py sets no DISTRIBUTION"):
        peers.find([str(tmp_path)])


def test_an_unknown_name_is_a_usage_error_that_lists_the_known_ones():
    run = run_eval(CONTROL, *CASE, "--against", "eager,nobody", json_results=False)
    assert run.code == 2
    assert "'nobody'" in run.stderr
    assert all(name in run.stderr for name in peers.DISTRIBUTIONS)
