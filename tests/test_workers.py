"""A worker is the same whether it is a program of its own or forked from a process that has loaded torch."""

import errno
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.device.emulator.building import Compilers
from harness.device.memory_file import MemoryFile
from harness.errors import HarnessError, SubmissionError
from harness.isolation import launch, processes
from harness.isolation.conversation import death
from harness.isolation.family import Family
from harness.isolation.hold import Hold
from harness.isolation.holdings import MAX_PROCESSES, Holdings
from harness.isolation.home import Home
from harness.isolation.launch import Zygote
from harness.isolation.levels import Isolation, choose_isolation
from harness.isolation.sandbox import Worker
from harness.isolation.starter import Starter, kept_zygotes
from harness.memory import worker_limit
from harness.protocol.wire import Load
from tests.helpers import ROOT, run_eval
from tests.hostile import corpus

ISOLATION = choose_isolation("landlock" if choose_isolation("auto", "cpu").landlock_abi else "basic", "cpu")

# What a submission finds around it, said by the only words that it has before it is called.
NOSY = """
import ctypes, json, os, resource, signal, sys, tempfile
import torch
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
home = os.path.dirname(os.environ["HOME"])
raise RuntimeError(json.dumps({
    "environment": {name: value.replace(home, "HOME") for name, value in sorted(os.environ.items())
                    if name not in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")},
    "folder": os.getcwd().replace(home, "HOME"),
    "temporary": tempfile.gettempdir().replace(home, "HOME"),
    "leads_a_session": os.getsid(0) == os.getpid(),
    "files": sorted(os.readlink(f"/proc/self/fd/{n}").replace(home, "HOME").split(":")[0]
                    for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")),
    "status": {name: status[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "SigIgn", "SigBlk")},
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "file_bytes": resource.getrlimit(resource.RLIMIT_FSIZE),
    "interrupted_by": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "readable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "threads_of_torch": torch.get_num_threads(),
    "compiler": "torch._inductor" in sys.modules,
}))
"""


def parent(worker):
    return int(open(f"/proc/{worker.pid}/stat").read().rpartition(")")[2].split()[1])


def said(source, zygote, tmp_path):
    """What a submission of this source raises, as JSON, in a worker of its own."""
    path = tmp_path / "nosy.py"
    path.write_text(source)
    memory = MemoryFile()
    with Worker("cpu", memory.fd, ISOLATION, zygote=zygote) as worker:
        copy = worker.home.place("nosy.py", path.read_bytes())
        worker.wait_until_ready()
        assert parent(worker) == os.getpid()
        builds = worker.home.lend_builds("0" * 64)
        reply = worker.ask(Load("submission", bytes(copy), str(builds), False, [], []), 60)
    return json.loads(reply.message[reply.message.index("{") :])


def surroundings(zygote, tmp_path):
    return said(NOSY, zygote, tmp_path)


@pytest.fixture
def zygote():
    zygote = Zygote("cpu")
    yield zygote
    zygote.end()


@pytest.fixture
def interruptible():
    """As a job in the foreground. One in the background ignores SIGINT: a program that it starts inherits that, and a
    forked worker does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_forked_worker_is_as_one_that_was_started(interruptible, zygote, tmp_path):
    started = surroundings(None, tmp_path)
    assert surroundings(zygote, tmp_path) == started
    assert started["environment"]["HOME"] == "HOME/home"
    assert started["temporary"] == "HOME/tmp"
    assert started["leads_a_session"]


@pytest.mark.parametrize(("said_by_the_user", "threads"), [(None, 1), ("2", 2)])
def test_a_gpus_worker_has_few_threads_whatever_the_processors(said_by_the_user, threads, tmp_path, monkeypatch):
    """There is no GPU: a worker of the CPU, in a GPU's environment. A machine may have no more than two processors,
    and torch takes no more threads than those: one stands for few."""
    monkeypatch.setitem(launch.THREADS_BESIDE_A_GPU, "OMP_NUM_THREADS", "1")
    if said_by_the_user:
        monkeypatch.setenv("OMP_NUM_THREADS", said_by_the_user)
    else:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    of_a_gpu = launch.environment("cuda")
    monkeypatch.setattr(launch, "environment", lambda device: of_a_gpu)
    zygote = Zygote("cpu")
    try:
        assert surroundings(zygote, tmp_path)["threads_of_torch"] == threads
    finally:
        zygote.end()


@pytest.mark.parametrize("value", ["no\udcfftext", "/long" * 20_000], ids=["no_text", "long"])
def test_an_environment_may_be_odd(value, monkeypatch):
    for name in ("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, value)
    starter = Starter("cpu", MemoryFile().fd, ISOLATION)
    starter.take().wait_until_ready()
    starter.end()


def test_workers_of_one_zygote_have_nothing_of_each_other(zygote, tmp_path):
    memory = MemoryFile()
    with (
        Worker("cpu", memory.fd, ISOLATION, zygote=zygote),
        Worker("cpu", memory.fd, ISOLATION, zygote=zygote) as second,
    ):
        second.wait_until_ready()
        files = [os.readlink(f"/proc/{second.pid}/fd/{n}") for n in os.listdir(f"/proc/{second.pid}/fd")]
        # Its socket, its bell and its testimony; neither the zygote's, nor those of the worker before it.
        assert sum(name.startswith("socket:") for name in files) == 2
        assert sum(name.startswith("pipe:") for name in files) == 1


def test_workers_of_one_zygote_draw_different_numbers(zygote, tmp_path):
    source = """
import json, random
import numpy, torch
raise RuntimeError(json.dumps({"torch": torch.initial_seed(), "numpy": numpy.random.rand(), "python": random.random()}))
"""
    first, second = (said(source, zygote, tmp_path) for _ in range(2))
    assert not set(first.values()) & set(second.values())


@pytest.mark.parametrize(
    "code, as_a_shell, reason, text",
    [
        (None, False, "exited", "closed its connection"),
        (3, False, "exited", "exited with code 3 before answering"),
        (137, False, "exited", "exited with code 137"),
        (128, True, "exited", "exited with code 128"),
        (137, True, "crashed", "ended by SIGKILL"),
        (-signal.SIGSEGV, False, "crashed", "ended by SIGSEGV"),
        (-33, False, "crashed", "ended by signal 33"),
    ],
)
def test_an_exit_code_says_why_a_worker_is_gone(code, as_a_shell, reason, text):
    error = death(code, as_a_shell=as_a_shell, tail=" It last printed: x")
    assert error.reason == reason
    assert text in error.message and error.message.endswith(" It last printed: x")


class Sleeping:
    """A process that sleeps, in a group of its own, as a worker is."""

    def __init__(self):
        self.process = subprocess.Popen(["sleep", "100"], start_new_session=True)
        self.family = Family(self.process, living=list)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.family.end()


def test_a_family_is_ended_with_what_it_started():
    processes.adopt_orphans()
    process = subprocess.Popen(["sh", "-c", "sleep 100 & exec sleep 100"], start_new_session=True)
    family = Family(process, living=list)
    deadline = time.monotonic() + 10
    while len(family.members()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    members = family.members()
    family.end()
    assert len(members) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in members)


def test_a_hold_finds_out_who_ran_meanwhile():
    with Sleeping() as sleeping:
        hold = Hold(sleeping.family, own_processes=1)
        for _ in range(2):
            hold.pause()
            assert processes.all_stopped([sleeping.process.pid])
            hold.resume()
        hold.pause()
        hold._processor_s = {sleeping.process.pid: -1.0}  # as if it had used a second since
        with pytest.raises(SubmissionError, match="of the processors meanwhile"):
            hold.resume()


def test_a_hold_allows_no_processes_but_a_worker_s_own():
    with Sleeping() as sleeping, pytest.raises(SubmissionError, match="1 processes that it started"):
        Hold(sleeping.family, own_processes=0).pause()


@pytest.mark.parametrize("still_known", [True, False])
def test_what_another_worker_leaves_as_it_ends_is_no_process_of_this_one(still_known):
    """A worker that builds ends by itself, and for a moment the judge has what was below it. Once nobody knows the
    worker any more, it may be anybody's."""
    processes.adopt_orphans()
    other = subprocess.Popen(["sh", "-c", "sleep 100 & echo $!"], start_new_session=True, stdout=subprocess.PIPE)
    orphan = int(other.stdout.readline())
    other.stdout.close()
    others = [Family(other, living=list)] if still_known else []
    with Sleeping() as sleeping:
        sleeping.family._living = lambda: others
        try:
            deadline = time.monotonic() + 10
            while orphan not in processes.adopted(keep=[]) and time.monotonic() < deadline:
                time.sleep(0.01)
            hold = Hold(sleeping.family, own_processes=1)
            if still_known:
                hold.require_alone()
                hold.pause()
                hold.resume()
            else:
                with pytest.raises(SubmissionError, match="1 processes that it started"):
                    hold.require_alone()
        finally:
            os.kill(orphan, signal.SIGKILL)
            other.wait()


def test_a_hold_sees_a_process_that_was_started_since_the_last_one():
    process = subprocess.Popen(["sh", "-c", "read line; sleep 100 & exec sleep 100"], stdin=subprocess.PIPE,
                               start_new_session=True)  # fmt: skip
    family = Family(process, living=list)
    try:
        hold = Hold(family, own_processes=1)
        hold.pause()
        hold.resume()
        hold.require_alone()
        process.stdin.write(b"\n")
        process.stdin.close()
        deadline = time.monotonic() + 10
        while len(family.members()) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        for look in (hold.require_alone, hold.pause):
            with pytest.raises(SubmissionError, match="1 processes that it started"):
                look()
    finally:
        family.end()


class Many:
    def members(self, at_most):
        return list(range(at_most + 1))


def test_holdings_are_limited(monkeypatch):
    home = Home()
    holdings = Holdings(home)
    with Sleeping() as sleeping:
        holdings.check(sleeping.family)
        with pytest.raises(SubmissionError, match=f"more than {MAX_PROCESSES} processes"):
            holdings.check(Many())
        monkeypatch.setenv("KERNELGATE_MEMORY_GIB", "0")
        with pytest.raises(SubmissionError, match="GiB of memory"):
            holdings.check(sleeping.family)
    home.remove()
    assert not home.path.exists()


MAKES_HOMES = """
import sys
from harness.isolation.home import Home
homes = [Home(), Home()]
print(*(home.path.name for home in homes), flush=True)
sys.stdin.read()
"""


def test_folders_of_a_judge_that_was_killed_are_removed_and_those_of_one_that_lives_are_not(tmp_path, monkeypatch):
    """After an hour, since a folder that nobody holds yet may have been made in this moment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    judges = [
        subprocess.Popen(
            [sys.executable, "-c", MAKES_HOMES], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    killed, living = ([tmp_path / name for name in judge.stdout.readline().split()] for judge in judges)
    judges[0].kill()
    judges[0].wait()
    for path in (killed[0], *living):
        os.utime(path, (0, 0))
    home = Home()
    assert {*tmp_path.iterdir()} == {killed[1], *living, home.path}
    home.remove()
    judges[1].communicate("")


def test_what_a_worker_printed_last_is_the_error_and_not_torchs_advice():
    home = Home()
    os.write(
        home.log,
        b"""torch.AcceleratorError: CUDA error: out of memory
Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/cuda for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

""",
    )
    assert home.output_tail(lines=1) == " It last printed: torch.AcceleratorError: CUDA error: out of memory"
    home.remove()


def test_a_worker_may_hold_three_quarters_of_the_memory_or_what_a_person_says(monkeypatch):
    assert worker_limit(8 << 30) == 6 << 30
    monkeypatch.setenv("KERNELGATE_MEMORY_GIB", "3")
    assert worker_limit(8 << 30) == 3 << 30
    assert worker_limit(2 << 30) == 3 << 29


def test_how_a_forked_worker_ended_is_known(zygote):
    for number in (signal.SIGKILL, signal.SIGSEGV):
        with Worker("cpu", MemoryFile().fd, ISOLATION, zygote=zygote) as worker:
            worker.wait_until_ready()
            os.kill(worker.pid, number)
            assert worker._started.process.wait(timeout=10) == -number


def test_a_worker_can_be_ended_whose_exit_code_is_lost(zygote):
    with Worker("cpu", MemoryFile().fd, ISOLATION, zygote=zygote) as worker:
        worker.wait_until_ready()
        os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)
    assert worker._started.process.poll() == 0
    assert not worker.home.path.exists()


def test_it_is_known_too_where_whoever_started_the_judge_ignores_how_children_end():
    path = corpus.FOLDER / "process" / "aborts.py"
    command = [sys.executable, "eval.py", path, "--problem", corpus.PROBLEM, "-k", "large eps", "--device", "cpu",
               "--no-timing", "--isolation", ISOLATION.level, "--json", "-"]  # fmt: skip
    ignored = dict(preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    run = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, **ignored)
    assert [e["reason"] for e in json.loads(run.stdout)["evaluations"]] == ["crashed"], run.stderr


def test_a_zygote_that_cannot_load_is_said_with_its_last_words(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('no such torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    starter = Starter("cpu", MemoryFile().fd, ISOLATION)
    with pytest.raises(HarnessError, match=r"could not be started.*no such torch"):
        starter.take().wait_until_ready()
    starter.end()


def test_a_zygote_that_cannot_be_started_is_said(monkeypatch):
    def refused(*_arguments, **_options):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(HarnessError, match="could not be started: Resource temporarily"):
        Starter("cpu", MemoryFile().fd, ISOLATION).take()


SPOILED = {
    "killed": lambda pid: os.kill(pid, signal.SIGKILL),
    "stopped": lambda pid: os.kill(pid, signal.SIGSTOP),
    "limited": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100)),
    "slowed": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_zygote_that_was_spoiled_is_replaced(how):
    starter = Starter("cpu", MemoryFile().fd, ISOLATION)
    starter.take().wait_until_ready()
    zygote = starter._zygote._process
    SPOILED[how](zygote.pid)
    if how in ("killed", "stopped"):
        os.waitid(os.P_PID, zygote.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    worker = starter.take()
    worker.wait_until_ready()
    assert resource.prlimit(worker.pid, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    starter.end()
    assert not os.path.exists(f"/proc/{worker.pid}")
    assert zygote.poll() is not None


def test_a_worker_whose_zygote_was_killed_before_it_was_forked_is_started_again():
    memory = MemoryFile()
    starter = Starter("cpu", memory.fd, ISOLATION)
    starter.take().wait_until_ready()
    zygote = starter._zygote
    os.kill(zygote._process.pid, signal.SIGSTOP)
    starter._waiting[False].append(Worker("cpu", memory.fd, ISOLATION, zygote=zygote))  # asked for, and never forked
    zygote._process.end()
    starter.take().wait_until_ready()
    starter.end()


def test_a_zygote_is_kept_for_all_workers_of_a_run():
    starter = Starter("cpu", MemoryFile().fd, ISOLATION)
    starter.take().wait_until_ready()
    first = starter._zygote
    starter.take().wait_until_ready()
    assert starter._zygote is first
    starter.end()


def test_problems_of_a_run_have_one_zygote_which_ends_with_the_run():
    with kept_zygotes():
        zygotes = []
        for _problem in range(2):
            starter = Starter("cpu", MemoryFile().fd, ISOLATION)
            starter.take().wait_until_ready()
            zygotes.append(starter._zygote)
            starter.end()
        assert zygotes[0] is zygotes[1]
        assert zygotes[0]._process.poll() is None
    assert zygotes[0]._process.poll() is not None


def test_a_run_leaves_zygotes_to_who_keeps_them_for_longer():
    with kept_zygotes():
        with kept_zygotes():
            starter = Starter("cpu", MemoryFile().fd, ISOLATION)
            starter.take().wait_until_ready()
            zygote = starter._zygote
            starter.end()
        assert zygote._process.poll() is None
    assert zygote._process.poll() is not None


@pytest.mark.parametrize("level", ["landlock", "basic"])
def test_a_submission_takes_nothing_from_those_after_it(level):
    """Neither from what the next are forked from, nor from workers: there are none before they are used."""
    if level == "landlock" and ISOLATION.level != "landlock":
        pytest.skip("NOT TESTED HERE: this kernel has no Landlock")
    hostile = corpus.FOLDER / "judge" / "lowers_limits_of_others.py"
    controls = [
        corpus.FOLDER / "process" / "control_starts_a_compiler.py",
        corpus.FOLDER / "judge" / "control_imports_much.py",
    ]
    run = run_eval(hostile, *controls, "--problem", corpus.PROBLEM, "-k", "large eps", "--device", "cpu",
                   "--isolation", level)  # fmt: skip
    assert [e["status"] for e in run.results["evaluations"]] == ["rejected", "accepted", "accepted"], run.results


def test_who_is_interrupted_waiting_for_a_worker_can_end_it(zygote, monkeypatch):
    def interrupted(*_arguments):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Worker("cpu", MemoryFile().fd, ISOLATION, zygote=zygote) as worker:
        monkeypatch.setattr(select, "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.wait_until_ready()
    assert worker._started.process.poll() == -signal.SIGKILL


def test_nobody_waits_for_workers_that_are_yet_to_be_forked():
    starter = Starter("cpu", MemoryFile().fd, ISOLATION)
    starter.start_ahead(workers=3, compilers=0)
    starter.end()
    assert Worker._alive == set()


def test_an_unprivileged_judge_keeps_workers_out_of_what_they_are_forked_from():
    """Where the judge is root, a worker without privileges is kept out anyway."""
    path = corpus.FOLDER / "judge" / "reaches_what_forks_workers.py"
    dropped = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [sys.executable, "eval.py", path, "--problem", corpus.PROBLEM, "-k", "large eps", "--device", "cpu",
               "--no-timing", "--isolation", "basic", "--json", "-"]  # fmt: skip
    run = subprocess.run([*dropped, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert [e["reason"] for e in json.loads(run.stdout)["evaluations"]] == ["wrong_output"], run.stderr


def test_bubblewrap_isolates_programs():
    starter = Starter("cpu", MemoryFile().fd, Isolation("namespaces", unshared=("net",)))
    assert starter._sound_zygote() is None


WATCHED = """
import os
import torch.nn as nn

SEEN = []

class Model(nn.Module):
    def forward(self, x):
        count = len(os.sched_getaffinity(0))
        if SEEN[-1:] != [count]:
            SEEN.append(count)
            open(f"FOLDER/{os.getpid()}", "w").write(" ".join(map(str, SEEN)))
        return nn.functional.silu(x)

CASES = [dict(name="only", init=[], shapes=[(64, 1024)], timed=True)]
"""

CONFINES = """
import os
from pathlib import Path
import torch, torch.nn as nn

def confine():
    confined = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getppid() and int(folder.name) != os.getpid():
                for thread in (folder / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), {min(os.sched_getaffinity(0))})
                    confined += 1
        except OSError:
            pass
    return confined

class ModelNew(nn.Module):
    def forward(self, x):
        assert confine() > 0
        return x * torch.sigmoid(x)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="NOT TESTED HERE: there is one processor only")
def test_what_is_timed_beside_a_submission_runs_on_all_processors(tmp_path):
    """Below namespaces a submission can confine a baseline, which is of its user, to one of them."""
    problem, submission, seen = (tmp_path / name for name in ("problem.py", "submission.py", "seen"))
    seen.mkdir()
    problem.write_text(WATCHED.replace("FOLDER", str(seen)))
    submission.write_text(CONFINES)
    run = run_eval(submission, "--problem", problem, "--device", "cpu", "--isolation", "basic", "--against", "eager",
                   "--quick", alone=False)  # fmt: skip
    assert [e["message"] for e in run.results["evaluations"] if e["status"] == "rejected"] == [], run.stderr
    counts = {int(count) for path in seen.iterdir() for count in path.read_text().split()}
    assert counts == {len(os.sched_getaffinity(0))}


@pytest.mark.parametrize("late_s", [0.0, 0.01])
def test_what_a_stopped_process_used_may_be_added_late_where_the_system_does_not_say_when(monkeypatch, late_s):
    with Sleeping() as sleeping:
        hold = Hold(sleeping.family, own_processes=1)
        added_s = time.monotonic() + late_s
        monkeypatch.setattr(processes, "have_left_processors", lambda pids: False)
        monkeypatch.setattr(
            processes, "processor_s", lambda pids: dict.fromkeys(pids, 0.004 * (time.monotonic() >= added_s))
        )
        hold.pause()
        assert hold._processor_s == {sleeping.process.pid: 0.004}
        hold.resume()


def test_threads_that_are_stopped_leave_their_processors_and_one_that_runs_does_not():
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        assert not processes.have_left_processors([busy.pid])
        busy.send_signal(signal.SIGSTOP)
        while not processes.all_stopped([busy.pid]):
            pass
        assert processes.have_left_processors([busy.pid])
        before = processes.processor_s([busy.pid])
        time.sleep(0.05)
        assert processes.processor_s([busy.pid]) == before
    finally:
        busy.kill()
        busy.wait()
    assert processes.have_left_processors([busy.pid]), "it is gone"


def test_a_worker_that_ends_takes_no_compiler_of_the_judge_with_it(tmp_path):
    """The judge compiles what later submissions need while it judges, and ends what a worker has left behind."""
    compilers, begun = Compilers(), tmp_path / "begun"
    compilers.begin()
    command = ["sh", "-c", f"touch {begun}; (sleep 3; echo whole)"]
    with ThreadPoolExecutor(1) as pool:
        output = pool.submit(compilers.run, command, tmp_path)
        while not begun.exists():
            time.sleep(0.01)
        with Worker("cpu", MemoryFile().fd, ISOLATION) as worker:
            worker.wait_until_ready()
        assert output.result() == (0, "whole\n", "")
