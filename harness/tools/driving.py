"""Preparing what `harness.worker.drive` runs, and running it, by itself or under a tool."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec
import torch

from harness.errors import SubmissionError
from harness.judging.runner import model_dtype
from harness.layouts import elements_before, strides
from harness.paths import ROOT, build_cache
from harness.problem import Case, Problem
from harness.protocol.arguments import arguments
from harness.protocol.drive import Drive, DriveCase, Driven
from harness.protocol.values import encode_value
from harness.reasons import Reason
from harness.settings import sub_seed
from harness.submission import Submission

# The exit code of the driver when the submission failed, and not the driver or the tool.
EXIT_SUBMISSION_FAILED = 4


class Driver:
    """A folder with the data of some cases of a submission, and the command that runs it on them.

    Use as a context manager; the folder goes at its end."""

    def __init__(self, submission: Submission, problem: Problem, cases: Sequence[Case], device: str, seed: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kernelgate-drive-")
        self.folder = Path(self._folder.name)
        self._submission = submission
        self._device = device
        self._cases = [self._lay_out(problem, case, seed, i) for i, case in enumerate(cases)]

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._folder.cleanup()

    def _lay_out(self, problem: Problem, case: Case, seed: int, number: int) -> DriveCase:
        cpu = torch.device("cpu")
        model = problem.build_model(case, sub_seed(seed, case.name, "weights"), cpu)
        inputs = problem.draw_inputs(case, sub_seed(seed, case.name, "inputs"), cpu)
        state = {name: tensor.detach() for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        path = self.folder / f"case{number}.pt"
        given = arguments([_in_layout(t, case.layout) for t in inputs], case.constants)
        torch.save({"state": state, "inputs": given}, path)
        return DriveCase(
            name=case.name,
            init=encode_value(tuple(problem.init_args(case, sub_seed(seed, case.name, "weights")))),
            dtype=model_dtype(case),
            tensors=str(path),
            backward=problem.gradients is not None,
        )

    def command(self, warm_ups: int = 0, traced: bool = False) -> list[str]:
        """What runs all cases in a process of its own."""
        drive = Drive(
            submission=str(self._submission.path),
            build_cache=str(build_cache(self._submission.sha256)),
            device=self._device,
            result=str(self.folder / "driven.json"),
            cases=self._cases,
            warm_ups=warm_ups,
            traced=traced,
        )
        request = self.folder / "request.json"
        request.write_bytes(msgspec.json.encode(drive))
        return [sys.executable, "-m", "harness.worker.drive", str(request)]

    def run(self, tool: Sequence[str] = (), *, timeout_s: float, environment: Mapping[str, str] | None = None,
            warm_ups: int = 0, traced: bool = False) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run the cases, behind the words of a tool's command line. Raises SubmissionError when it takes too long."""
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        try:
            return subprocess.run(
                [*tool, *self.command(warm_ups, traced)],
                env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            name = Path(tool[0]).name if tool else "It"
            raise SubmissionError(Reason.TIMED_OUT, f"{name} did not end within {timeout_s:g} s.") from None

    def driven(self) -> Driven:
        """What the last run left."""
        return msgspec.json.decode((self.folder / "driven.json").read_bytes(), type=Driven)


def last_line(process: subprocess.CompletedProcess[str]) -> str:
    """The last thing that a process said, on stderr if it said anything there."""
    lines = (process.stderr.strip() or process.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"


def _in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """`tensor` as the case wants it to lie, in storage of its own; torch.save keeps strides and offset."""
    before = elements_before(layout)
    storage = torch.empty(before + tensor.numel(), dtype=tensor.dtype)
    placed = storage.as_strided(tensor.shape, strides(tuple(tensor.shape), layout), before)
    return placed.copy_(tensor)
