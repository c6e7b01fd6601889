"""What a terminal shows while a run lasts, and what a log says of a run that waits."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness.events import Building, DeviceTaken, Finished, Judging, Queued, Timing
from harness.report.progress import listening
from harness.report.so_far import SoFar
from harness.report.view import View


class Run:
    """Events of a run, with the time that passes between them, and what is shown."""

    def __init__(self, names, device="cpu", gpus=0):
        self.shown = []
        self.now_s = 1000.0
        self.so_far = SoFar(self.shown.append, gpus, lambda: self.now_s)
        for name in names:
            self.so_far.count(Queued(name, "layernorm", device))

    def after(self, seconds, *events):
        self.now_s += seconds
        for event in events:
            self.so_far.count(event)

    def line(self, step="step"):
        self.so_far.show(step)
        return self.shown[-1]


def finished(name):
    return Finished(SimpleNamespace(submission=name, problem="layernorm"), 1, 6)


def test_of_one_submission_the_step_alone_is_shown():
    run = Run(["mine"], "cuda", gpus=1)
    run.after(1.0, Judging("mine", "layernorm", "a", 1, 2))
    run.after(1.0)
    assert run.line("mine: case 1/2, a") == "mine: case 1/2, a"


def test_of_several_it_is_shown_how_many_are_judged_and_how_long_the_rest_takes():
    run = Run("abcdef")
    shown = []
    for name in "abc":
        run.after(0.0, Building(name, "layernorm"))
        shown.append(run.line(f"{name}: building"))
        run.after(30.0, finished(name))
    run.after(90.0, Building("d", "layernorm"))
    assert [*shown, run.line("d: building")] == [
        "0 of 6 judged · a: building",
        "1 of 6 judged, about 2 min left · b: building",
        "2 of 6 judged, about 2 min left · c: building",
        "3 of 6 judged, about 3 min left · d: building",
    ]


def test_of_those_that_are_under_way_side_by_side_it_is_shown_what_is_done_with_them():
    run = Run("abcdef")
    run.after(
        0.0,
        Building("a", "layernorm"),
        Building("b", "layernorm"),
        Judging("c", "layernorm", "x", 1, 2),
        DeviceTaken("d", "layernorm", "cpu"),
        Timing("e", "layernorm", "x"),
    )
    assert run.line() == "0 of 6 judged · 2 building, 1 waiting, 1 judging, 1 timing · step"
    run.after(10.0, Judging("a", "layernorm", "x", 1, 2), finished("c"), finished("d"), Timing("e", "layernorm", "y"))
    assert run.line() == "2 of 6 judged, about 20 s left · 1 building, 1 judging, 1 timing · step"
    run.after(0.0, finished("b"), finished("e"))
    assert run.line() == "4 of 6 judged, about 5 s left · step"


@pytest.mark.parametrize(("gpus", "said"), [(1, "GPU unused 40%"), (2, "2 GPUs unused 67%")])
def test_time_in_which_nothing_is_judged_or_timed_on_a_gpu_is_shown(gpus, said):
    run = Run("abc", "cuda", gpus)
    run.after(0.0, Building("a", "layernorm"), Building("b", "layernorm"))
    run.after(10.0)
    assert run.line() == "0 of 3 judged · 2 building · step"
    run.after(10.0, Judging("a", "layernorm", "x", 1, 2), DeviceTaken("b", "layernorm", "cuda"))
    run.after(20.0, Timing("a", "layernorm", "x"))
    run.after(7.0, Timing("b", "layernorm", "x"))
    run.after(3.0, finished("a"), finished("b"))
    assert run.line() == f"2 of 3 judged, about 25 s left · {said} · step"


def test_what_runs_elsewhere_uses_no_gpu():
    run = Run("ab", "cpu", gpus=1)
    run.after(1.0, Judging("a", "layernorm", "x", 1, 2))
    run.after(1.0, finished("a"))
    assert run.line() == "1 of 2 judged, about 2 s left · step"


def test_a_log_says_once_that_a_run_waits_for_its_turn():
    page = io.StringIO()
    with listening(Console(file=page), View()) as tell:
        for event in (
            Queued("mine", "layernorm", "cuda"),
            DeviceTaken("mine", "layernorm", "cuda", process=42),
            Timing("mine", "layernorm", "x"),
        ):
            tell(event)
        tell(DeviceTaken("mine", "layernorm", "cuda"))
    assert page.getvalue() == "mine: waiting for its turn on the GPU, which process 42 has.\n"
