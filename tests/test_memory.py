"""What a case needs is known before it is drawn; who filled the memory is found out, and the judge outlives its own
failing to get any."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
import torch

from harness import memory
from harness.device.cuda import CudaDevice
from harness.device.host import HostDevice
from harness.device.memory_file import MemoryFile
from harness.errors import Inconclusive, SubmissionError, memory_is_said, out_of_memory
from harness.events import nobody
from harness.fitting.fit import Room, fit, needed, room_on
from harness.fitting.sizes import sizes
from harness.isolation.levels import choose_isolation
from harness.isolation.sandbox import Worker
from harness.isolation.starter import Starter
from harness.judge import Judge
from harness.problem import load_problem
from harness.reasons import Reason
from harness.report.words import sentence
from harness.settings import Settings
from harness.submission import read_submission
from harness.verdict import status_of
from tests.helpers import ROOT, run_eval
from tests.hostile import corpus

MIB, GIB = 1 << 20, 1 << 30

RMS = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)

batch_size = {batch}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
WHOLE = "torch.rand(batch_size, 64, 512, 512)"

HONEST = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)
"""


def rms(tmp_path, batch=112, inputs=WHOLE):
    """A problem in KernelBench's form; with these its input is 7.5 GB."""
    path = tmp_path / "rms.py"
    path.write_text(RMS.format(batch=batch, inputs=inputs))
    return load_problem(path, 0)


def device(name):
    return HostDevice(name, MemoryFile())


# ---------------------------------------------------------------------- before anything is drawn


def test_what_a_reference_needs_is_known_without_its_tensors(tmp_path):
    problem = rms(tmp_path)
    found = sizes(problem, problem.cases[0])
    given = 4 * 112 * 64 * 512 * 512
    assert found.known
    assert (found.given, found.outputs, found.given_exact, found.outputs_exact) == (given, given, 2 * given, 2 * given)
    assert 2 * given <= found.working_exact < 2.5 * given  # x ** 2 is gone before there is a quotient
    assert needed(found, 0).together >= 9 * given


def test_a_reference_that_looks_at_values_is_not_known(tmp_path):
    path = tmp_path / "values.py"
    path.write_text(
        RMS.format(batch=4, inputs="torch.rand(4, 4)").replace("return x /", "return x if x.sum() > 0 else x /")
    )
    problem = load_problem(path, 0)
    assert not sizes(problem, problem.cases[0]).known


@pytest.mark.parametrize("name", ["cpu", "emulator"])
def test_what_does_not_fit_is_judged_with_a_smaller_batch_that_is_said(tmp_path, name):
    problem = rms(tmp_path)
    (case,) = problem.cases
    fitted = fit(problem, case, device(name), 0, Room(16 * GIB, 12 * GIB))
    smaller = fitted.case.on(name)
    batch = smaller.shapes[0][0]
    assert 1 <= batch <= 16
    assert smaller.shapes == ((batch, 64, 512, 512),)
    assert f"a first dimension of {batch} in place of 112" in sentence(fitted.note)
    assert needed(sizes(problem, smaller), 0).together <= 16 * GIB
    tiny = replace(smaller, shapes=((1, 64, 512, 512),))
    assert [t.shape for t in problem.draw_inputs(tiny, 0, torch.device("cpu"))] == [(1, 64, 512, 512)]


def test_what_fits_stays_as_it_is(tmp_path):
    problem = rms(tmp_path)
    (case,) = problem.cases
    fitted = fit(problem, case, device("cpu"), 0, Room(1000 * GIB, 1000 * GIB))
    assert (fitted.case, fitted.note, fitted.refusal) == (case, None, "")


def test_what_cannot_be_made_smaller_is_refused_with_both_numbers(tmp_path):
    problem = rms(tmp_path, inputs="torch.rand(batch_size * 64 * 512 * 512).reshape(112, 64, 512, 512)")
    fitted = fit(problem, problem.cases[0], device("cpu"), 0, Room(16 * GIB, 12 * GIB))
    assert "need some 6" in fitted.refusal
    assert "16.0 GiB are free" in fitted.refusal
    assert "-k" in fitted.refusal


@pytest.mark.parametrize("name", ["cpu", "emulator"])
def test_a_dimension_that_is_no_batch_is_not_made_one_by_a_size_of_one(tmp_path, name):
    """As KernelBench's 100_HingeLoss: one row times one target says nothing of which target is whose."""
    path = tmp_path / "hinge.py"
    path.write_text(
        "import torch, torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, x, y): return torch.mean(torch.clamp(1 - x * y, min=0))\n"
        "def get_inputs(): return [torch.rand(32768, 32768), torch.randint(0, 2, (32768,)).float() * 2 - 1]\n"
        "def get_init_inputs(): return []\n"
    )
    problem = load_problem(path, 0)
    fitted = fit(problem, problem.cases[0], device(name), 0, Room(16 * GIB, 12 * GIB))
    assert fitted.note is None and "16.0 GiB are free" in fitted.refusal


def test_outputs_that_are_larger_than_inputs_are_seen(tmp_path):
    path = tmp_path / "outer.py"
    path.write_text(
        "import torch, torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, a, b): return a @ b\n"
        "def get_inputs(): return [torch.rand(32768, 64), torch.rand(64, 32768)]\n"
        "def get_init_inputs(): return []\n"
    )
    problem = load_problem(path, 0)
    fitted = fit(problem, problem.cases[0], device("cpu"), 0, Room(16 * GIB, 12 * GIB))
    assert fitted.note
    assert fitted.case.on("cpu").shapes[1] == (64, 32768)


def test_a_reference_whose_shapes_are_declared_is_not_run_for_it(tmp_path):
    path = tmp_path / "declared.py"
    path.write_text(
        "import torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, x): raise AssertionError\n"
        "CASES = [{'name': 'a', 'shapes': [(64, 64)]}]\n"
    )
    problem = load_problem(path, 0)
    assert fit(problem, problem.cases[0], device("cpu"), 3, Room(GIB, GIB)).note is None


def test_a_case_without_room_is_an_error_with_the_exit_code_of_errors(tmp_path):
    submission = tmp_path / "submission.py"
    submission.write_text(HONEST)
    problem = rms(tmp_path, inputs="torch.rand(batch_size * 64 * 512 * 512).reshape(112, 64, 512, 512)")
    limited = {"KERNELGATE_MEMORY_GIB": "1"}
    run = run_eval(submission, "--problem", problem.path, "--device", "cpu", "--no-timing", env=limited)
    (evaluation,) = run.results["evaluations"]
    assert (run.code, evaluation["status"], evaluation["reason"]) == (3, "error", "not_enough_memory")
    assert [case["status"] for case in evaluation["cases"]] == ["not_run"]


# ---------------------------------------------------------------------- who filled it


def small_machine(monkeypatch, room):
    """The machine as if it had `room` bytes, of which only this test and what it starts take any: what else runs on
    the machine meanwhile comes and goes."""
    start, in_files_at_start = _held(), memory.memory_files_bytes(_family())

    def scopes():
        held, in_files = _held() - start, memory.memory_files_bytes(_family()) - in_files_at_start
        return [memory.Scope(total=room, available=room - held - in_files, anonymous=held, shared=in_files)]

    monkeypatch.setattr(memory, "scopes", scopes)
    monkeypatch.setattr(memory, "IDLE_BYTES", 0)


def _held():
    return memory.private_bytes(_family())


def _family():
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


class Holder:
    """A process that holds memory, of its own or in a memory file."""

    def __init__(self, nbytes, *, in_file=False):
        code = f"x = bytearray({nbytes}); x[::4096] = b'1' * len(x[::4096]); print(flush=True); input()"
        if in_file:
            code = (
                f"import os; f = os.memfd_create('x'); os.posix_fallocate(f, 0, {nbytes}); print(flush=True); input()"
            )
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def __enter__(self):
        return self.process

    def __exit__(self, *_exception):
        self.process.kill()
        self.process.communicate()


def test_others_are_told_from_what_is_gone(monkeypatch):
    small_machine(monkeypatch, 512 * MIB)
    watch = memory.Watch(list)
    with Holder(448 * MIB):
        assert watch.others_filled()
    assert not watch.others_filled()  # what the process held went with it


def test_what_the_judge_holds_is_not_taken_for_others(monkeypatch):
    small_machine(monkeypatch, 1024 * MIB)
    judges: list[int] = []
    watch = memory.Watch(lambda: judges)
    with Holder(448 * MIB) as holder:
        judges.append(holder.pid)
        assert not watch.others_filled()


def started():
    worker = Worker("cpu", MemoryFile().fd, choose_isolation("basic", "cpu"))
    worker.wait_until_ready()
    worker._holdings._watch._processes = lambda: [os.getpid()]  # what a test starts beside it is others'
    return worker


def test_a_worker_that_ends_since_others_filled_the_machine_is_no_rejection(monkeypatch):
    small_machine(monkeypatch, 2 * GIB)
    with started() as worker, Holder(1600 * MIB):
        monkeypatch.setattr(memory, "is_scarce", lambda: True)
        with pytest.raises(Inconclusive, match="Others filled") as caught:
            worker.hear(30)
    assert caught.value.reason == Reason.NOT_ENOUGH_MEMORY


def ended_with(worker, holder, monkeypatch):
    """As where the judge of `holder` ends it, too, when the memory is used up."""
    end = worker.end

    def both():
        holder.kill()
        holder.wait()
        end()

    monkeypatch.setattr(worker, "end", both)


@pytest.mark.parametrize("in_file", [False, True], ids=["of its own", "in a memory file"])
def test_a_worker_that_ends_since_another_filled_the_machine_and_ended_too_is_no_rejection(monkeypatch, in_file):
    small_machine(monkeypatch, 2 * GIB)
    with started() as worker, Holder(1600 * MIB, in_file=in_file) as holder:
        ended_with(worker, holder, monkeypatch)
        monkeypatch.setattr(memory, "is_scarce", lambda: True)
        with pytest.raises(Inconclusive, match="Others filled") as caught:
            worker.hear(30)
    assert caught.value.reason == Reason.NOT_ENOUGH_MEMORY


@pytest.mark.parametrize("in_file", [False, True], ids=["of its own", "in a memory file"])
def test_what_the_worker_holds_is_not_taken_for_others(monkeypatch, in_file):
    small_machine(monkeypatch, 512 * MIB)
    watch = memory.Watch(list)
    with Holder(448 * MIB, in_file=in_file) as holder:
        assert not watch.others_filled([holder.pid])
        assert watch.others_filled()  # so it would be without that word


def test_a_worker_that_the_system_ends_since_others_filled_the_machine_is_no_rejection(monkeypatch):
    small_machine(monkeypatch, 2 * GIB)
    monkeypatch.setattr(memory.Watch, "system_killed", lambda _watch: True)
    with started() as worker, Holder(1600 * MIB):
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(Inconclusive, match="Others filled"):
            worker.hear(30)


def test_where_nobody_else_filled_it_the_worker_is_rejected(monkeypatch):
    small_machine(monkeypatch, 2 * GIB)
    with started() as worker:
        monkeypatch.setattr(memory, "is_scarce", lambda: True)
        with pytest.raises(SubmissionError) as caught:
            worker.hear(30)
    assert caught.value.reason == Reason.OUT_OF_MEMORY
    monkeypatch.setattr(memory, "is_scarce", lambda: False)
    monkeypatch.setattr(memory.Watch, "system_killed", lambda _watch: True)
    with started() as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(SubmissionError) as caught:
            worker.hear(30)
    assert caught.value.reason == Reason.OUT_OF_MEMORY


def test_a_worker_may_hold_a_share_of_its_container(monkeypatch):
    """Of a container's limit, not of the machine around it."""
    machine = memory.Scope(total=64 * GIB, available=64 * GIB, anonymous=0)
    with started() as worker:
        container = memory.Scope(total=64 * MIB, available=64 * MIB, anonymous=0)  # less than a worker with torch has
        monkeypatch.setattr(memory, "scopes", lambda: [machine, container])
        with pytest.raises(SubmissionError, match=r"0\.0 GiB is the limit") as caught:
            worker.hear(30)
    assert caught.value.reason == Reason.OUT_OF_MEMORY
    assert room_on(torch.device("cpu")).worker == 48 * MIB


def test_what_others_put_into_memory_files_outside_of_the_container_is_not_the_workers(monkeypatch):
    with started() as worker:
        worker._holdings._shared_at_start = 0
        machine = memory.Scope(total=64 * GIB, available=32 * GIB, anonymous=0, shared=32 * GIB)
        container = memory.Scope(total=4 * GIB, available=4 * GIB, anonymous=0, shared=0)
        monkeypatch.setattr(memory, "scopes", lambda: [machine, container])
        worker._holdings.check(worker._family)


GREEDY = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 MiB.")
"""


@pytest.mark.parametrize(
    ("is_filled", "status", "reason"),
    [(True, "error", Reason.NOT_ENOUGH_MEMORY), (False, "rejected", Reason.OUT_OF_MEMORY)],
)
def test_who_gets_no_memory_of_a_filled_gpu_is_not_rejected(tmp_path, monkeypatch, is_filled, status, reason):
    """With a device that says so: here is no GPU to be filled."""
    submission, problem = tmp_path / "submission.py", rms(tmp_path, batch=2, inputs="torch.rand(2, 4)")
    submission.write_text(GREEDY)
    monkeypatch.setattr(HostDevice, "is_filled", lambda _device: is_filled)
    arena = MemoryFile()
    starter = Starter("cpu", arena.fd, choose_isolation("auto", "cpu"), [problem.path])
    settings = Settings(seed=7, timing=False)
    try:
        with Judge(problem, problem.cases, HostDevice("cpu", arena), starter, settings, [], nobody) as judge:
            evaluation = judge.evaluate(read_submission(submission))
    finally:
        starter.end()
    assert (status_of(evaluation), evaluation.reason) == (status, reason)
    assert [case.name for case in evaluation.cases] == ["rms"]


@pytest.mark.parametrize(("free", "own", "is_filled"), [(0, 10, True), (40, 10, True), (41, 10, False), (0, 90, False)])
def test_a_gpu_is_filled_when_others_hold_half_of_it(monkeypatch, free, own, is_filled):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free * GIB, 100 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: own * GIB)
    gpu = CudaDevice.__new__(CudaDevice)
    gpu.torch_device = torch.device("cuda", 0)
    assert gpu.is_filled() == is_filled


def test_a_submission_that_takes_memory_without_end_is_rejected_for_it(tmp_path):
    """By its own growth: no error comes of it, which says nothing."""
    bomb = ROOT / "tests" / "hostile" / "process" / "memory_bomb.py"
    limited = {"KERNELGATE_MEMORY_GIB": "1.5"}
    run = run_eval(bomb, "--problem", corpus.PROBLEM, "-k", "large eps", "--device", "cpu", "--no-timing", env=limited)
    assert [e["reason"] for e in run.results["evaluations"]] == ["out_of_memory"]
    assert run.code == 1


HOLDS = """
import os, sys
fd = os.memfd_create("held")
for _ in range(int(sys.argv[1])):
    os.write(fd, bytes(1 << 20))
print("holds", flush=True)
sys.stdin.read()
"""

LOOKS = """
import subprocess, sys
from harness.errors import SubmissionError
from harness.isolation.holdings import Holdings
from harness.isolation.home import Home

class Family:
    def members(self, at_most):
        return [worker.pid]

home = Home()
holdings = Holdings(home)
worker = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdout.readline()
print("ready", flush=True)
sys.stdin.readline()
try:
    holdings.check(Family())
    print("within its limit")
except SubmissionError as error:
    print(error)
worker.communicate()
home.remove()
"""


@pytest.mark.parametrize(("worker_mib", "other_mib", "said"), [(1, 700, "within its limit"), (700, 1, "It held")])
def test_memory_files_that_others_have_open_are_not_the_workers(worker_mib, other_mib, said):
    """Of another judge's arena, say, or of what another judge's submission takes without end."""
    with process("-c", LOOKS, HOLDS, worker_mib, env={"KERNELGATE_MEMORY_GIB": "0.5"}) as judge:
        assert judge.stdout.readline() == "ready\n"
        with process("-c", HOLDS, other_mib) as other:
            assert other.stdout.readline() == "holds\n"
            found, _ = judge.communicate("\n", timeout=60)
    assert found.startswith(said)


@contextlib.contextmanager
def process(*words, env=None):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, *map(str, words)], cwd=ROOT, env=os.environ | (env or {}), **pipes
    ) as started:
        try:
            yield started
        finally:
            started.kill()


# ---------------------------------------------------------------------- the judge's own


def _limit_addresses():
    resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB))


def test_the_judge_outlives_an_allocation_of_its_own_that_fails():
    code = (
        "import torch\n"
        "from harness import memory\n"
        "from harness.errors import Inconclusive, memory_is_said\n"
        "assert memory.free_bytes() < 4 << 30\n"
        "for take in (lambda: torch.empty(5 << 30, dtype=torch.uint8), lambda: bytearray(5 << 30)):\n"
        "    try:\n"
        "        with memory_is_said('the case'):\n"
        "            take()\n"
        "    except Inconclusive as error:\n"
        "        print(error.reason, error.message)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, preexec_fn=_limit_addresses
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 2, run.stderr
    assert all(line.startswith("not_enough_memory The judge has not enough memory for the case.") for line in lines)


TWO_CASES = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        if x.shape[0] == 3:
            torch.empty(1 << 46)
        return x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)

CASES = [{"name": name, "shapes": [(rows, 8)]} for name, rows in (("small", 4), ("vast", 3), ("last", 5))]
"""


def test_cases_that_were_judged_stay_where_the_judge_has_no_memory_for_another(tmp_path):
    problem, submission = tmp_path / "two.py", tmp_path / "submission.py"
    problem.write_text(TWO_CASES)
    submission.write_text(HONEST)
    run = run_eval(submission, "--problem", problem, "--device", "cpu", "--no-timing")
    (evaluation,) = run.results["evaluations"]
    assert [case["status"] for case in evaluation["cases"]] == ["passed", "not_run", "passed"]
    assert (evaluation["status"], evaluation["reason"], run.code) == ("error", "not_enough_memory", 3)
    assert "The judge has not enough memory for case 'vast'" in evaluation["message"]


def test_what_is_no_want_of_memory_is_not_said_to_be():
    assert out_of_memory(OSError(12, "Cannot allocate memory"))
    with pytest.raises(RuntimeError, match="another"), memory_is_said("the case"):
        raise RuntimeError("another")


@pytest.mark.parametrize("kept", [False, True])
def test_memory_that_is_freed_again_and_again_is_mapped_once_where_it_is_kept(kept):
    mapped = """
import resource, torch
from harness import memory
if {kept}:
    memory.keep_freed()
for round in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(8 << 20, dtype=torch.uint8) for block in range(8)]
    del blocks
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults * resource.getpagesize() >> 20)
"""
    run = subprocess.run([sys.executable, "-c", mapped.format(kept=kept)], cwd=ROOT, capture_output=True, text=True)
    assert (int(run.stdout) < 8) == kept, run.stdout + run.stderr
