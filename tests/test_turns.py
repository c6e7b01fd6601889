"""Runs of kernelgate on one machine: who times has the device alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.device.turns import Turns
from harness.errors import HarnessError
from tests.helpers import ROOT

OTHER = """
import sys, time
from pathlib import Path
from harness.device.turns import Turns

turns = Turns(sys.argv[3], Path(sys.argv[1]), needs=sys.argv[4])
with getattr(turns, sys.argv[2])(lambda process: print("waits for", process, flush=True)):
    print("has it", flush=True)
    sys.stdin.readline()
print("gave it up", flush=True)
"""


@pytest.fixture
def other(tmp_path):
    """Starts another run that has the device `how` until it reads a line."""
    started = []

    def start(how, name="device", needs=""):
        command = [sys.executable, "-c", OTHER, tmp_path, how, name, needs]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _says(process, line):
    assert process.stdout.readline() == f"{line}\n"


def _give_up(process):
    process.stdin.write("\n")
    process.stdin.flush()
    _says(process, "gave it up")


def test_those_that_judge_share_it(other):
    for process in (other("shared"), other("shared")):
        _says(process, "has it")


@pytest.mark.parametrize(("first", "second"), [("shared", "alone"), ("alone", "shared"), ("alone", "alone")])
def test_who_times_waits_and_is_waited_for(other, first, second):
    holder = other(first)
    _says(holder, "has it")
    waiter = other(second)
    _says(waiter, f"waits for {holder.pid}")
    _give_up(holder)
    _says(waiter, "has it")


def test_who_waits_to_be_alone_is_not_overtaken(other):
    holder = other("shared")
    _says(holder, "has it")
    times = other("alone")
    _says(times, f"waits for {holder.pid}")
    late = other("shared")
    _says(late, f"waits for {holder.pid}")
    _give_up(holder)
    _says(times, "has it")
    _give_up(times)
    _says(late, "has it")


@pytest.mark.parametrize(
    ("first", "second"), [(("gpu", "processors"), ("processors", "")), (("processors", ""), ("gpu", "processors"))]
)
def test_nobody_times_on_the_processors_while_a_gpu_is_timed(other, first, second):
    holder = other("alone", *first)
    _says(holder, "has it")
    waiter = other("alone", *second)
    _says(waiter, f"waits for {holder.pid}")
    _give_up(holder)
    _says(waiter, "has it")


def test_gpus_are_timed_side_by_side_and_beside_verdicts(other):
    for how, name in (("alone", "gpu 0"), ("alone", "gpu 1"), ("shared", "processors")):
        _says(other(how, name, "processors" if "gpu" in name else ""), "has it")


def test_who_is_killed_holds_nothing(other):
    holder = other("alone")
    _says(holder, "has it")
    waiter = other("alone")
    _says(waiter, f"waits for {holder.pid}")
    holder.send_signal(signal.SIGKILL)
    _says(waiter, "has it")


def test_a_process_may_have_it_again_and_again(tmp_path):
    turns, waited = Turns("device", tmp_path), []
    for _ in range(2):
        with turns.shared(waited.append):
            pass
        with turns.alone(waited.append):
            pass
    turns.close()
    assert waited == []


def test_a_lock_that_cannot_be_opened_is_said(tmp_path):
    (tmp_path / "device.lock").mkdir()
    with pytest.raises(HarnessError, match=r"device\.lock: Is a directory\. .*remove the file"):
        Turns("device", Path(tmp_path))
