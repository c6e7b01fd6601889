"""`--against` with other implementations: what is installed is judged, then timed; what is not is left out with a note.

No peer but `unfused` is needed here: a package under apex's name, made for these tests, stands in for one that is
installed. It has none of the real one's code.
"""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import types

import pytest
import torch
from torch.nn import functional

from harness import peers
from harness.notes import MAX_WHY
from harness.worker import implementations
from tests.helpers import ROOT, run_eval, run_timed

pytestmark = pytest.mark.alone

CONTROL = ROOT / "tests" / "fixtures" / "wrong" / "rmsnorm" / "control.py"
CASE = ("--problem", "rmsnorm", "-k", "768")

APEX = """import torch

fused_layer_norm = fused_layer_norm_affine = None


def fused_rms_norm_affine(x, weight, shape, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
"""

# Submissions that the other is compared with: a name, and what stands in forward.
OTHERS = {
    "refuses": "raise RuntimeError('rows of 768 are too long\\n' + 9000 * 'and here is why\\n')",
    "gives_a_tuple": "return (x,)",
    "ends": "__import__('os')._exit(7)",
}
MODEL = """import torch
from torch import nn


class ModelNew(nn.RMSNorm):
    def forward(self, x):
        {body}
"""


def stand_in(folder):
    """Write a package that is found as apex, of version 9.9."""
    package = folder / "apex" / "normalization"
    package.mkdir(parents=True)
    for name in (package.parent / "__init__.py", package / "__init__.py"):
        name.write_text("")
    (package / "fused_layer_norm.py").write_text(APEX)
    information = folder / "apex-9.9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: apex\nVersion: 9.9\n")


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """One run on the CPU against all: unfused as it is, a package of our own under apex's name, submissions that
    cannot be timed, and three that need a GPU, of which one would end its process when it is imported."""
    folder = tmp_path_factory.mktemp("packages")
    stand_in(folder)
    for name, body in OTHERS.items():
        (folder / f"{name}.py").write_text(MODEL.format(body=body))
    (folder / "cudnn.py").write_text("import os\n\nos._exit(7)\n")
    files = (str(folder / f"{name}.py") for name in OTHERS)
    against = ",".join(["unfused", "apex", "liger", "quack", "cudnn", *files])
    run = run_timed(CONTROL, *CASE, "--device", "cpu", "--against", against, env={"PYTHONPATH": str(folder)})
    assert run.code == 0, run.stderr
    return run.results["evaluations"][0]


def baselines(evaluation):
    (timing,) = [case["timing"] for case in evaluation["cases"] if case["timing"]]
    return timing["baselines"]


def test_unfused_and_an_installed_peer_are_timed_and_say_their_versions(evaluation):
    versions = {name: baseline["version"] for name, baseline in baselines(evaluation).items()}
    assert versions == {"unfused": f"torch {importlib.metadata.version('torch')}", "apex": "apex 9.9"}
    assert all(baseline["median_us"] > 0 for baseline in baselines(evaluation).values())


@pytest.mark.parametrize("problem", ["layernorm_train", "rmsnorm_train"])
def test_a_training_step_is_compared_with_its_operator(problem, tmp_path):
    """By the whole step and by its forward and backward alone."""
    control = ROOT / "tests" / "fixtures" / "wrong" / problem / "control.py"
    if problem == "rmsnorm_train":
        control = tmp_path / "formula.py"
        scale = "torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)"
        control.write_text(MODEL.format(body=f"return x * {scale} * self.weight"))
    run = run_timed(control, "--problem", problem, "-k", "32x128x768", "--device", "cpu", "--against", "unfused")
    assert run.code == 0, run.stderr
    (timed,) = [case for case in run.results["evaluations"][0]["cases"] if case["timing"]]
    assert len(timed["parts"]) == 2
    for part in (timed["timing"], *timed["parts"].values()):
        assert part["baselines"]["unfused"]["median_us"] > 0


def left_out(evaluation, name):
    """The one note on it, and the sentence that people read."""
    noted = zip(evaluation["noted"], evaluation["notes"], strict=True)
    ((note, said),) = [(n, s) for n, s in noted if n["note"] == "baseline_left_out" and n["baseline"] == name]
    return note, said


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ("refuses", "rows of 768 are too long"),
        ("gives_a_tuple", "returned a tuple"),
        ("ends", "exited with code 7"),
    ],
)
def test_a_baseline_that_refuses_is_wrong_or_dies_is_left_out_with_a_note(other, sentence, evaluation):
    note, said = left_out(evaluation, other)
    assert sentence in note["why"] and sentence in said


def test_of_what_a_baseline_says_people_are_shown_the_first_line_and_programs_so_much(evaluation):
    note, said = left_out(evaluation, "refuses")
    assert "here is why" in note["why"] and len(note["why"]) == MAX_WHY
    assert said.endswith("rows of 768 are too long")


@pytest.mark.parametrize("peer", ["liger", "quack", "cudnn"])
def test_what_needs_a_gpu_is_not_asked_on_the_cpu(peer, evaluation):
    note, said = left_out(evaluation, peer)
    assert (note["why"], note["case"]) == ("it runs on a GPU alone.", "")
    assert said == f"{peer} was left out: it runs on a GPU alone."


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


MODEL_OF_MINE = """
class Model:
    def __init__(self, width, eps=0.25): ...
"""


def test_a_problem_of_another_name_says_which_operator_it_is_and_its_defaults_hold(tmp_path):
    problem = tmp_path / "rows_of_mine.py"
    problem.write_text(f'OPERATOR = "rmsnorm"\n{MODEL_OF_MINE}')
    build, version = implementations.peer("unfused", problem)
    assert (build(64).eps, version) == (0.25, f"torch {importlib.metadata.version('torch')}")
    problem.write_text(MODEL_OF_MINE)
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


@pytest.fixture
def quack(monkeypatch):
    """The peer, over PyTorch's functions under quack's names."""
    kernels = types.ModuleType("quack.rmsnorm")
    kernels.layernorm_fwd = lambda x, weight, bias, eps: functional.layer_norm(
        x.float(), weight.shape, weight, bias, eps
    )
    kernels.rmsnorm_fwd = lambda x, weight, eps: (functional.rms_norm(x, weight.shape, weight, eps).detach(), None)
    kernels.rmsnorm = lambda x, weight, eps: functional.rms_norm(x, weight.shape, weight, eps)
    monkeypatch.setitem(sys.modules, "quack", types.ModuleType("quack"))
    monkeypatch.setitem(sys.modules, "quack.rmsnorm", kernels)
    monkeypatch.delitem(sys.modules, "harness.peers.quack", raising=False)
    yield importlib.import_module("harness.peers.quack")
    sys.modules.pop("harness.peers.quack", None)


def test_of_quack_a_training_step_takes_what_has_a_backward(quack):
    x = torch.randn(4, 64, requires_grad=True)
    quack.RMSNorm(64, eps=1e-6)(x).sum().backward()
    assert x.grad is not None
    with pytest.raises(NotImplementedError, match="no backward"):
        quack.LayerNorm(64)(x)


def test_quack_sees_weights_that_change(quack):
    """Its LayerNorm takes weights in fp32: what is kept of them is converted anew when they change."""
    model = quack.LayerNorm(64).bfloat16()
    x = torch.randn(4, 64).bfloat16()
    for change in (None, "in place", "load_state_dict"):
        new = {"weight": torch.randn(64).bfloat16(), "bias": torch.randn(64).bfloat16()}
        if change == "in place":
            with torch.no_grad():
                model.weight.copy_(new["weight"])
                model.bias.copy_(new["bias"])
        elif change:
            model.load_state_dict(new)
        wanted = functional.layer_norm(x.float(), (64,), model.weight.float(), model.bias.float())
        with torch.no_grad():
            torch.testing.assert_close(model(x), wanted)


def test_a_package_that_is_there_and_fails_is_told_from_one_that_is_not(tmp_path):
    """As one whose shared library lacks another."""
    (tmp_path / "quack").mkdir()
    (tmp_path / "quack" / "__init__.py").write_text("raise ImportError('libtvm.so: cannot open shared object file')\n")
    (tmp_path / "quack_kernels-0.2.4.dist-info").mkdir()
    (tmp_path / "quack_kernels-0.2.4.dist-info" / "METADATA").write_text("Name: quack-kernels\nVersion: 0.2.4\n")
    program = "from harness import peers; peers.load('quack', 'layernorm')"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    said = run.stderr.splitlines()[-1]
    assert "quack-kernels 0.2.4 is installed here, and cannot be imported" in said and "libtvm.so" in said
