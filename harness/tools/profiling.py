"""`eval.py profile`: where the time of one case goes, from Nsight Compute where it may look, else from torch."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.errors import SubmissionError
from harness.problem import Case, Problem
from harness.protocol.drive import Driven
from harness.reasons import Reason
from harness.submission import Submission
from harness.timing import roofline
from harness.tools import ncu
from harness.tools.driving import EXIT_SUBMISSION_FAILED, Driver, last_line
from harness.tools.ncu import KernelProfile

# Builds take minutes, and Nsight Compute runs a kernel some forty times.
TIMEOUT_S = 1800.0
WARM_UPS = 3


@dataclass(frozen=True)
class Profile:
    """What was found out about one case. `launches` is empty where Nsight Compute could not look, and `why_not` says
    why; `driven` has the compiler's report and torch.profiler's times either way."""

    submission: str
    case: str
    shape: str
    bytes_min: int
    driven: Driven
    launches: list[KernelProfile]
    report: Path | None
    why_not: str


def profile(submission: Submission, problem: Problem, case: Case, device: str, seed: int, report: Path) -> Profile:
    """Run one case of a submission under torch.profiler, then under Nsight Compute, whose report goes to `report`.

    Raises SubmissionError when the submission does not run."""
    with Driver(submission, problem, [case], device, seed) as driver:
        plain = driver.run(timeout_s=TIMEOUT_S, warm_ups=WARM_UPS, traced=True)
        require_success(plain)
        driven = driver.driven()
        launches, why_not = _under_ncu(driver, report)
    return Profile(
        submission=submission.name,
        case=case.name,
        shape=case.shape_text,
        bytes_min=_bytes_min(problem, case, seed),
        driven=driven,
        launches=launches,
        report=report if launches else None,
        why_not=why_not,
    )


def require_success(process: subprocess.CompletedProcess[str]) -> None:
    """Raises SubmissionError when a driver failed."""
    if process.returncode == EXIT_SUBMISSION_FAILED:
        raise SubmissionError(Reason.RAISED, last_line(process))
    if process.returncode:
        raise SubmissionError(Reason.EXITED, f"The driver ended with code {process.returncode}: {last_line(process)}")


def _under_ncu(driver: Driver, report: Path) -> tuple[list[KernelProfile], str]:
    """The launches that Nsight Compute recorded, or none and why."""
    if not shutil.which("ncu"):
        return [], "Nsight Compute (ncu) is not on the path; it comes with the CUDA toolkit."
    recorded = driver.run(ncu.record_command(report), timeout_s=TIMEOUT_S, warm_ups=WARM_UPS)
    if ncu.missing_counters([recorded.stdout, recorded.stderr]):
        return [], (
            "This user may not read the GPU's counters (ERR_NVGPUCTRPERM). An administrator can allow it with the "
            "module option NVreg_RestrictProfilingToAdminUsers=0, or in a container with the capability SYS_ADMIN."
        )
    if recorded.returncode:
        return [], f"ncu ended with code {recorded.returncode}: {last_line(recorded)}"
    read = subprocess.run(ncu.read_command(report), capture_output=True, text=True, timeout=TIMEOUT_S)
    launches = ncu.parse_raw_page(read.stdout)
    return launches, "" if launches else f"ncu recorded no kernel: {last_line(recorded)}"


def _bytes_min(problem: Problem, case: Case, seed: int) -> int:
    """Bytes of inputs, parameters and outputs, each once, from shapes alone; 0 where they are not known. A backward's
    are not known that way, nor are those of a model that looks at values."""
    import torch

    meta = torch.device("meta")
    model = problem.build_model(case, seed, torch.device("cpu")).to(meta)
    dtypes = case.dtypes or (case.dtype,) * len(case.shapes)
    inputs = [torch.empty(shape, dtype=dtype, device=meta) for shape, dtype in zip(case.shapes, dtypes, strict=True)]
    try:
        with torch.no_grad():
            result = model(*inputs)
    except Exception:  # whatever the problem's own code raises without data
        return 0
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    return 0 if problem.gradients is not None else roofline.bytes_min(inputs, model.parameters(), outputs)
