"""What submissions are compared with: eager, torch.compile, peers and other submissions, a worker each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness import against, peers
from harness.device.base import Device
from harness.errors import Stopped, SubmissionError
from harness.judging.correctness import check_case
from harness.judging.runner import Runner, precompilation
from harness.notes import BaselineLeftOut
from harness.oracle.draw import Drawn
from harness.problem import Case, Problem
from harness.reasons import ENDS_THE_WORKER
from harness.settings import Settings, sub_seed
from harness.submission import read_submission

Start = Callable[[str, Path, str, bool], Runner]


class Baselines:
    """The baselines of one problem on one device, loaded once for all of its submissions.

    They load while submissions are being checked; one that cannot be loaded, or that is wrong on a case, is left
    out with a note.
    """

    def __init__(self, names: Sequence[str], start: Start, problem: Problem, device: Device,
                 settings: Settings) -> None:  # fmt: skip
        """`names` are what harness.against read; `start` gives a Runner for a kind of implementation, its file, the
        file's hash, and whether it is rehearsed."""
        self._problem = problem
        self._device = device
        self._settings = settings
        self._runners: dict[str, Runner] = {}
        self._refusals: dict[tuple[str, str], str] = {}
        self.notes: list[BaselineLeftOut] = []
        for name in names:
            if device.name == "cpu" and name in peers.NEED_GPU:
                self.notes.append(BaselineLeftOut(baseline=name, why="it runs on a GPU alone."))
            elif against.is_file(name):
                other = read_submission(Path(name))
                self._runners[other.name] = start("submission", other.path, other.sha256, bool(other.gpu_language))
            else:
                self._runners[name] = start(name, problem.path, "", False)

    def precompile(self, cases: Sequence[Case]) -> None:
        """Let torch.compile work ahead on `cases`, which will be timed."""
        shown = [case.on(self._device.name) for case in cases]
        for name in against.COMPILED:
            if name in self._runners:
                self._runners[name].start_precompiling([precompilation(self._problem, case) for case in shown])

    def finish_loading(self) -> None:
        """Wait until all of them are loaded; what cannot be loaded goes, with a note."""
        for name, runner in list(self._runners.items()):
            try:
                runner.finish_loading()
                if name in against.COMPILED:
                    runner.finish_precompiling()
            except Stopped as error:
                self._leave_out(name, error.message)

    def right_on(self, case: str, draw: Callable[[], Drawn]) -> tuple[dict[str, Runner], list[BaselineLeftOut]]:
        """The baselines that are right on a case, by the rules that submissions are judged by, and a note for each
        that is not. A call compiles what its implementation compiles late, so that this is not timed. `draw` gives the
        case with its data, where there is something to check."""
        unknown = [n for n in self._runners if n not in against.OF_THE_REFERENCE and (n, case) not in self._refusals]
        drawn = draw() if unknown else None
        for name in unknown:
            assert drawn is not None
            self._refusals[name, case] = self._check(name, self._runners[name], drawn, case)
        wrong = {name: text for (name, of), text in self._refusals.items() if of == case and text}
        right = {name: runner for name, runner in self._runners.items() if name not in wrong}
        return right, [BaselineLeftOut(baseline=name, why=text, case=case) for name, text in wrong.items()]

    def _check(self, name: str, runner: Runner, drawn: Drawn, case: str) -> str:
        """What is wrong with a baseline on a case; empty for nothing, and for one that goes altogether."""
        try:
            comparisons, _ran = check_case(runner, self._problem, drawn, sub_seed(self._settings.seed, case, name))
            runner.release()
        except SubmissionError as error:
            if error.reason in ENDS_THE_WORKER:
                self._leave_out(name, error.message)  # of all cases, which is said once
                return ""
            runner.release()
            return error.message
        return next((c.message for c in comparisons if not c.ok), "")

    def _leave_out(self, name: str, why: str) -> None:
        self.notes.append(BaselineLeftOut(baseline=name, why=why))
        self._runners.pop(name).end()

    def end(self) -> None:
        for runner in self._runners.values():
            runner.worker.kill()  # together: a process with a CUDA context takes a while to go
        for runner in self._runners.values():
            runner.end()
