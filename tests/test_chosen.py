"""Which files and cases are judged, and on which device."""

import errno
import hashlib
import json
import os
import threading
from types import SimpleNamespace

import pytest

import harness.run
from harness.device import choose
from harness.device.emulator.building import compilers
from harness.errors import HarnessError
from harness.run import _Beside
from harness.submission import read_submission
from tests.helpers import ROOT, forked_eval, run_eval

CONTROL = ROOT / "tests" / "hostile" / "form" / "control.py"
SMALL = ("--problem", ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py")


def test_a_problem_without_a_fitting_case_is_left_out_with_a_note(tmp_path):
    for problem in ("rmsnorm", "layernorm"):
        (tmp_path / problem).mkdir()
        (tmp_path / problem / f"for_{problem}.py").write_text(CONTROL.read_text())
    run = run_eval(tmp_path, "--device", "cpu", "-k", "eps = 100", json_results=False)
    assert "Left out: layernorm, no case of which matches -k 'eps = 100'." in run.stderr
    assert "for_rmsnorm" in run.stdout
    assert "for_layernorm" not in run.stdout


def test_a_problem_here_that_is_called_like_a_shipped_one_is_not_used_and_said_to_be(tmp_path):
    """Unless it is the same, as in another checkout, or named as a file."""
    shipped = (ROOT / "problems" / "layernorm.py").read_bytes()
    (tmp_path / "problems").mkdir()
    own = tmp_path / "problems" / "layernorm.py"

    def said(text, problem):
        own.write_bytes(text)
        words = [CONTROL, "--problem", problem, "--device", "cpu", "-k", "2x33", "--no-timing"]
        return forked_eval(words, os.environ, folder=tmp_path).stderr

    sentence = (
        "Not used: problems/layernorm.py, since a problem of its name ships. --problem problems/layernorm.py judges "
        "with it."
    )
    assert sentence in said(shipped + b"# mine", "layernorm")
    assert "Not used" not in said(shipped, "layernorm")
    assert "Not used" not in said(shipped + b"# mine", "problems/layernorm.py")


def test_a_kernel_that_only_a_gpu_runs_is_left_out_of_a_folder_and_refused_when_it_is_named(tmp_path):
    triton = tmp_path / "in_triton.py"
    triton.write_text("import triton\nimport triton.language as tl\n")
    (tmp_path / "control.py").write_text(CONTROL.read_text())
    run = run_eval(tmp_path, *SMALL, "--device", "cpu", json_results=False)
    assert run.code == 0
    assert "Left out: in_triton, whose kernels are written in Triton, which runs on a GPU alone." in run.stderr
    run = run_eval(triton, *SMALL, "--device", "cpu", json_results=False)
    assert run.code == 3
    assert run.stderr == (
        "eval.py: in_triton cannot be judged here: its kernels are written in Triton, which runs on a GPU alone. "
        "Judge it on a machine that has one; the emulator runs CUDA C++.\n"
    )


def test_the_shipped_triton_kernel_is_told_in_a_sentence_where_it_cannot_run():
    run = run_eval(ROOT / "submissions" / "layernorm" / "row_in_triton.py", "--device", "emulator", json_results=False)
    assert (run.code, run.stdout) == (3, "")
    assert run.stderr.startswith("eval.py: row_in_triton cannot be judged here: its kernels are written in Triton,")


INLINE = "from torch.utils.cpp_extension import load_inline\n"
BRINGS_CUDA = {
    "load_inline('a', '', 'x')": True,
    "CUDA = 'x'\nextension = load_inline('a', cpp_sources='', cuda_sources=CUDA)": True,
    "CUDA = 'x'\nextension = load_inline(name='a', cpp_sources='', cuda_sources=[CUDA])": True,
    "apply = load_inline('a', '', 'x').apply": True,
    "load_inline('a', 'x', '')": False,
    "load_inline('a', 'x', cuda_sources=[])": False,
    "import torch\nif torch.cuda.is_available(): load_inline('a', '', 'x')": False,
    "import torch\nCUDA = 'x' if torch.cuda.is_available() else ''\nload_inline('a', 'y', CUDA)": False,
    "def build(): return load_inline('a', '', 'x')": False,
    "import torch\nload_inline('a', 'x')\ntorch.cuda.is_available()": False,
}


@pytest.mark.parametrize("source", BRINGS_CUDA)
def test_a_source_that_builds_cuda_kernels_whatever_the_device_is_none_for_the_cpu(source, tmp_path):
    """What may build them elsewhere alone is judged there."""
    path = tmp_path / "submission.py"
    path.write_text(INLINE + source)
    submission = read_submission(path)
    assert submission.brings_cuda == BRINGS_CUDA[source]
    if not submission.brings_cuda:
        assert choose.choose_device("cpu", submission) == "cpu"


def test_cuda_kernels_are_left_out_of_a_folder_on_the_cpu_and_refused_when_they_are_named(tmp_path):
    cuda = tmp_path / "in_cuda.py"
    cuda.write_text(INLINE + "extension = load_inline('a', '', 'x')\n")
    (tmp_path / "control.py").write_text(CONTROL.read_text())
    run = run_eval(tmp_path, *SMALL, "--device", "cpu", "--no-timing")
    assert "Left out: in_cuda, which has CUDA kernels, and --device cpu cannot run them." in run.stderr
    assert (run.code, [e["submission"] for e in run.results["evaluations"]]) == (0, ["control"])
    run = run_eval(cuda, *SMALL, "--device", "cpu", json_results=False)
    assert (run.code, run.stdout) == (3, "")
    assert run.stderr == (
        "eval.py: in_cuda cannot be judged here: it has CUDA kernels, which --device cpu cannot run. Leave "
        "--device out: without a GPU the emulator runs them.\n"
    )


WITH_A_GPU = {
    "import torch\nclass ModelNew(torch.nn.Module): ...": "cuda",
    "import triton": "cuda",
    "from torch.utils.cpp_extension import load_inline\nload_inline('a', cuda_sources='x')": "cuda",
    "from torch.utils.cpp_extension import load_inline\nload_inline('a', cpp_sources='x')": "cpu",
    "import torch.utils.cpp_extension as c\nc.load_inline('a', 'x')": "cpu",
    "import torch.utils.cpp_extension as c\nc.load_inline('a', 'x', 'y')": "cuda",
    "import torch.utils.cpp_extension as c\nx = dict(cuda_sources='')\nc.load_inline('a', 'x', cuda_sources=y)": "cuda",
}


@pytest.mark.parametrize("source", WITH_A_GPU)
def test_where_there_is_a_gpu_all_but_host_code_is_judged_on_it(source, tmp_path, monkeypatch):
    path = tmp_path / "submission.py"
    path.write_text(source)
    monkeypatch.setattr(choose, "_has_gpu", lambda: True)
    assert choose.choose_device(None, read_submission(path)) == WITH_A_GPU[source]


def test_what_is_no_file_is_not_taken_for_a_submission(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "to_nothing.py").symlink_to("nothing")
    (tmp_path / "right.py").write_text(CONTROL.read_text())
    run = run_eval(tmp_path, *SMALL, timeout_s=120)
    assert [(e["submission"], e["status"]) for e in run.results["evaluations"]] == [("right", "accepted")]
    run = run_eval(tmp_path / "pipe.py", *SMALL, timeout_s=120)
    assert (run.code, run.stderr.strip()) == (2, f"eval.py: The submission {tmp_path}/pipe.py is no file.")


def test_a_problem_beside_its_submissions_is_no_submission_unless_it_is_named(tmp_path):
    problem = tmp_path / "23_LayerNorm.py"
    problem.write_text(SMALL[1].read_text())
    run = run_eval(tmp_path, "--problem", problem, json_results=False)
    assert (run.code, "beside the problem's own" in run.stderr) == (5, True)
    (tmp_path / "right.py").write_text(CONTROL.read_text())
    run = run_eval(tmp_path, "--problem", problem)
    assert [e["submission"] for e in run.results["evaluations"]] == ["right"]
    run = run_eval(problem, "--problem", problem)
    assert [e["submission"] for e in run.results["evaluations"]] == ["23_LayerNorm"]


def test_who_waits_for_the_emulator_to_be_built_is_told(tmp_path, monkeypatch):
    from harness.device import choose, emulator

    announced, built = [], []
    monkeypatch.setattr(choose, "emulator_cache", lambda: tmp_path)
    monkeypatch.setattr(emulator, "prepare", lambda cache, submissions, check: built.append(cache))
    choose.prepare_device("emulator", [], check=False, on_build=lambda: announced.append("building"))
    monkeypatch.setattr(emulator, "is_prepared", lambda cache, submissions, check: True)
    for device in ("emulator", "cpu"):
        choose.prepare_device(device, [], check=False, on_build=lambda: announced.append("building again"))
    assert announced == ["building"]
    assert built == [tmp_path, tmp_path]


def test_a_cache_that_cannot_be_written_is_said_to_be_that(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv("KERNELGATE_CACHE", str(cache))
    with pytest.raises(HarnessError) as raised:
        choose.prepare_device("emulator", [], check=False, on_build=lambda: None)
    compilers.begin()  # which the failure had ended, for this process's other tests as well
    assert str(raised.value) == (
        f"The emulator cannot be used here: it is built in the cache {cache}, which cannot be written: Not a directory "
        f"({cache}/emulator). Set KERNELGATE_CACHE to another folder."
    )


def test_what_else_the_system_refuses_blames_no_cache(monkeypatch):
    def refuse(*given, **options):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "g++")

    monkeypatch.setattr("harness.device.emulator.prepare", refuse)
    monkeypatch.setattr("harness.device.emulator.is_prepared", lambda *given, **options: False)
    with pytest.raises(HarnessError, match=r"here: \[Errno 2\] No such file or directory: 'g\+\+'$"):
        choose.prepare_device("emulator", [], check=False, on_build=lambda: None)


def test_groups_for_which_the_device_lacks_least_are_judged_first_and_who_takes_the_processors_last(monkeypatch):
    lacks = {"a": 3, "b": 2, "timed": 0, "c": 2}
    devices = dict.fromkeys(lacks, "emulator") | {"timed": "cpu"}
    groups = [SimpleNamespace(device=devices[name], submissions=[SimpleNamespace(path=name)]) for name in lacks]
    monkeypatch.setattr(harness.run, "unprepared", lambda device, paths, check: lacks[paths[0]])
    plan = SimpleNamespace(groups=groups, settings=SimpleNamespace(check=False, timing=True))
    turns = [(position, [groups.index(other) for other in coming]) for position, coming in _Beside(plan).turns()]
    assert turns == [(1, [3, 0, 2]), (3, [0, 2]), (0, [2]), (2, [])]
    plan.settings.timing = False
    assert [position for position, _ in _Beside(plan).turns()] == [1, 3, 2, 0]


def test_who_waits_for_a_device_does_something_else_meanwhile(monkeypatch):
    from harness.device import choose

    other_is_done = threading.Event()
    monkeypatch.setattr(choose, "is_prepared", lambda device, paths, check: False)
    monkeypatch.setattr(choose, "prepare_device", lambda *parts, **options: other_is_done.wait(60))
    with choose.Preparing(check=False) as preparing:
        preparing.begin("emulator", [])(other_is_done.set)
    assert other_is_done.is_set()


ALSO = 'ALSO_FOR = ["layernorm_dtypes"]\n'

# A row of 16 bits with a large mean needs sums in float32.
FORWARD = CONTROL.read_text().split("    def forward", 1)[1]
IN_FLOAT32 = """(self, given):
        x = given.float()
        y = x - x.mean(-1, keepdim=True)
        scaled = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (scaled * self.weight + self.bias).to(given.dtype)
"""


def judged_on(run):
    return [(e["problem"], e["submission"], e["status"]) for e in run.results["evaluations"]]


@pytest.fixture
def for_two(tmp_path):
    """A file for layernorm that names another problem, too."""
    folder = tmp_path / "layernorm"
    folder.mkdir()
    path = folder / "mine.py"
    path.write_text(ALSO + CONTROL.read_text().replace(FORWARD, IN_FLOAT32))
    return path


def test_a_submission_is_judged_on_every_problem_that_it_names(for_two):
    run = run_eval(for_two, "--device", "cpu", "-k", "no rows", "--no-timing")
    assert judged_on(run) == [("layernorm", "mine", "accepted"), ("layernorm_dtypes", "mine", "accepted")]
    assert "2 of 2: ACCEPTED  layernorm_dtypes · mine" in run.stderr


def test_problem_goes_before_what_a_submission_names(for_two):
    run = run_eval(for_two, "--problem", "layernorm", "--device", "cpu", "-k", "no rows", "--no-timing")
    assert judged_on(run) == [("layernorm", "mine", "accepted")]


@pytest.mark.parametrize("names, sentence", [
    ('["layer_norm"]', "ALSO_FOR names the problem 'layer_norm', which problems/ does not have."),
    ('["../tests/fixtures/softmax_rows"]', "which problems/ does not have."),  # the judge imports problems
    ('"layernorm"', 'ALSO_FOR (line 1) is `"layernorm"`; write names of problems there, each in quotes'),
    ("[chosen()]", "ALSO_FOR (line 1) is `[chosen()]`; write names of problems there"),
    ("[0x" + "f" * 6000 + "]", "ALSO_FOR (line 1) is `[0xfff"),  # Python does not write such a number
    ("x" + "+x" * 900, "ALSO_FOR (line 1) is `x+x"),
])  # fmt: skip
def test_what_names_no_problem_gets_a_sentence(names, sentence, for_two):
    for_two.write_text(for_two.read_text().replace('["layernorm_dtypes"]', names, 1))
    run = run_eval(for_two, "--device", "cpu", json_results=False)
    assert run.code == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr


def test_problems_and_submissions_are_those_of_the_folder_that_one_is_in(tmp_path):
    """A shipped problem has no other in its place: strangers' folders have problems, too."""
    own, mine = tmp_path / "problems" / "small.py", tmp_path / "submissions" / "small" / "mine.py"
    for path, source in ((own, ROOT / "tests/fixtures/problems/small_layernorm.py"), (mine, CONTROL)):
        path.parent.mkdir(parents=True)
        path.write_text(source.read_text())
    (tmp_path / "problems" / "layernorm.py").write_text("raise RuntimeError")
    for words, problem in (
        ([], own),
        ([mine], own),
        ([mine, "--problem", "small"], own),
        ([mine, "--problem", "layernorm", "-k", "4x128"], ROOT / "problems/layernorm.py"),
    ):
        run = forked_eval([*words, "--no-timing", "--no-store", "--json", "-"], {**os.environ}, folder=tmp_path)
        (evaluation,) = json.loads(run.stdout)["evaluations"]
        assert (evaluation["submission"], evaluation["status"]) == ("mine", "accepted")
        assert evaluation["problem_sha256"] == hashlib.sha256(problem.read_bytes()).hexdigest()


def test_an_import_takes_no_kernel_in_cuda_away_from_the_emulator(tmp_path):
    path = tmp_path / "submission.py"
    path.write_text("import triton\n" + next(source for source in WITH_A_GPU if "cuda_sources='x'" in source))
    assert read_submission(path).gpu_language == ""
