"""Runs that are ended from outside: what was measured is kept, and nothing goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from harness.events import Finished, Timing
from harness.isolation.launch import Program
from harness.plan import Arguments, make_plan
from harness.report.formats import terminal
from harness.report.view import View
from harness.run import RunStopped, run
from harness.store.keeping import Keeper
from tests import machine
from tests.helpers import PATIENCE, ROOT, is_alive, is_compiler

CONTROL = ROOT / "tests" / "hostile" / "form" / "control.py"
SMALL = ("--problem", ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py")


def test_of_several_each_is_said_when_it_is_judged_and_kept_when_the_rest_is_stopped(tmp_path):
    never = tmp_path / "never.py"
    never.write_text("import time\ntime.sleep(60)\n")
    files = dict(json=tmp_path / "results.json", markdown=tmp_path / "results.md")
    reports = [f"--report={name}={file}" for name, file in files.items()]
    command = [sys.executable, ROOT / "eval.py", CONTROL, never, *SMALL, "--no-timing", *reports]
    heard = dict(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a background job's would be ignored
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(command, cwd=ROOT, **pipes, **heard) as process:
        while not (first := process.stderr.readline()).startswith("1 of 2"):  # it may say whose turn it waits for
            assert first
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert first.startswith("1 of 2: ACCEPTED  control  2 cases correct")
    assert "Stopped by the keyboard" in stderr
    assert "never" not in stdout + stderr
    assert stdout.count("ACCEPTED  control") == 1
    assert "\nStopped before its end: 1 of 2 were not judged.\n" in stdout
    assert json.loads(files["json"].read_text())["unfinished"] == 1
    assert files["markdown"].read_text().startswith("**Stopped before its end**: 1 of 2 were not judged.")


def test_who_is_stopped_while_it_is_timed_has_its_verdict_and_the_times_that_are_known(tmp_path):
    source = (ROOT / "tests" / "fixtures" / "problems" / "corpus_layernorm.py").read_text()
    cases = [dict(name=f"of {size}", init=[(size,)], shapes=[(64, size)], timed=True) for size in (256, 512)]
    problem = tmp_path / "two_timed.py"
    problem.write_text(source[: source.index("CASES = ")] + f"CASES = {cases}\n")
    plan = make_plan(Arguments(paths=(CONTROL,), problem=str(problem), device="cpu", against="eager"))
    told = []

    def interrupted_at_the_second(event):
        told.append(event)
        if isinstance(event, Timing) and event.case == "of 512":
            raise KeyboardInterrupt

    with machine.alone(), pytest.raises(RunStopped, match="Stopped by the keyboard") as stopped:
        for number in range(PATIENCE):  # on a machine that is too busy no second case is timed
            told.clear()
            database = tmp_path / f"results {number}.db"
            run(plan, Keeper(database, plan, interrupted_at_the_second))
    (evaluation,) = stopped.value.results.evaluations
    assert [(case.name, case.timing is not None) for case in evaluation.cases] == [("of 256", True), ("of 512", False)]
    assert [event.evaluation for event in told if isinstance(event, Finished)] == [evaluation]
    text = terminal.render(stopped.value.results, View())
    assert "ACCEPTED  control  2 cases correct; the run was stopped before all cases were timed" in text
    assert not database.exists()  # it is judged anew, and has no place on a board


def test_who_is_stopped_while_it_imports_says_so(tmp_path):
    (tmp_path / "click.py").write_text("import time\nprint('imported', flush=True)\ntime.sleep(60)\n")
    heard = dict(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([sys.executable, ROOT / "eval.py", "list"], env=environment, **pipes, **heard) as process:
        assert process.stdout.readline() == "imported\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert stderr == "eval.py: Stopped by the keyboard or by SIGTERM; what had not finished says nothing.\n"


def test_a_gate_that_is_stopped_goes_on_with_no_other_problem(tmp_path):
    for name in ("first", "second"):
        for folder in (tmp_path / "problems", tmp_path / "submissions" / name):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(SMALL[1], tmp_path / "problems" / f"{name}.py")
        shutil.copy(CONTROL, tmp_path / "submissions" / name)
    (tmp_path / "submissions" / "first" / "never.py").write_text("import time\ntime.sleep(60)\n")
    command = [sys.executable, ROOT / "eval.py", "gate", "--no-store"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (line := process.stderr.readline()).startswith("1 of 2"):
            assert line
        process.terminate()
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert stderr.endswith("eval.py: Stopped by the keyboard or by SIGTERM; what had not finished says nothing.\n")
    assert "gate:" not in stdout


@pytest.mark.parametrize(
    ("end", "number"), [(os.kill, signal.SIGTERM), (os.kill, signal.SIGINT), (os.killpg, signal.SIGINT)]
)
def test_who_is_ended_ends_the_compilers_that_build_the_emulator(end, number, tmp_path):
    """A terminal's Ctrl-C reaches the compilers as well."""
    command = [sys.executable, ROOT / "eval.py", CONTROL, *SMALL, "--device", "emulator", "--no-timing"]
    heard = dict(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), process_group=0)
    environment = {**os.environ, "KERNELGATE_CACHE": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, **heard) as process:
        assert "The emulator is built" in process.stderr.readline()
        compilers = wait_for(lambda: [c for c in psutil.Process(process.pid).children(True) if is_compiler(c)])
        end(process.pid, number)
        _, stderr = process.communicate(timeout=120)
    assert [*tmp_path.glob("emulator-*")] == []  # it was not built first
    assert process.returncode == 3
    assert stderr == "eval.py: Stopped by the keyboard or by SIGTERM; what had not finished says nothing.\n"
    assert [c for c in compilers if is_alive(c)] == []


def wait_for(found, limit_s=30.0):
    """What `found` gives as soon as that is something."""
    ends_s = time.monotonic() + limit_s
    while not (result := found()):
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    return result


@pytest.mark.parametrize("seen", [False, True], ids=["at work", "seen to have ended"])
def test_a_program_ends_though_ctrl_c_came_while_its_end_was_looked_for(seen):
    """Then Popen's lock stays taken, and Popen.wait does not return."""
    with subprocess.Popen(["sleep", "60"]) as process:
        program = Program(process)
        if seen:
            process.kill()
            assert program.wait() == -signal.SIGKILL
        process._waitpid_lock.acquire()
        program.end()
        assert program.poll() == process.returncode == -signal.SIGKILL and not psutil.pid_exists(process.pid)
