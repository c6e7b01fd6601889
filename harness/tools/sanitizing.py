"""`--sanitize`: compute-sanitizer's four tools over a submission's cases, as a verdict.

The cases are the small ones that a CPU would run, and PyTorch's caching allocator is off: it hands out pieces of
large blocks, and an overrun into a neighbour's piece is no error to the hardware.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import HarnessError, SubmissionError, name_of
from harness.events import OnEvent, Sanitizing
from harness.notes import Note, SanitizerFailed, SanitizerFound, SanitizerSilent
from harness.problem import Case, Problem
from harness.reasons import Reason
from harness.submission import Submission
from harness.tools.driving import EXIT_SUBMISSION_FAILED, Driver, last_line
from harness.verdict import Accepted, Errored, Evaluation, Rejected

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

# A kernel runs some ten to a hundred times slower.
TIMEOUT_S = 3600.0

# Objects of cuda::barrier (mbarriers) that synccheck follows in a block. By itself it counts those that it sees in the
# code, which is too few where barriers are chosen at run time; it then says so and breaks the kernel. 1,024 of them are
# 8 KB of shared memory. Compute Sanitizer User Manual, "Command Line Options".
CUDA_BARRIERS = 1024

# The tool says that its own limit makes what it reports, or does not report, worthless.
_OUT_OF_ROOM = re.compile(r"Detected overflow of tracked .*")

# The tool's words -> the machine's word for the defect, the same as the emulator's.
_REASONS = (
    (re.compile(r"Invalid __(?:global|shared|local)__ (?:read|write|atomic)|out of bounds"), Reason.OUT_OF_BOUNDS),
    (re.compile(r"[Mm]isaligned"), Reason.MISALIGNED_ACCESS),
    (re.compile(r"Race reported|[Hh]azard"), Reason.DATA_RACE),
    (re.compile(r"Uninitialized"), Reason.UNINITIALISED_READ),
    (re.compile(r"Barrier error"), Reason.DIVERGENT_BARRIER),
)
_OTHER = Reason.SANITIZER_FINDING

# Kernels of PyTorch's own in a submission's calls: what they do is not judged.
_PYTORCHS = re.compile(r"\bat::(?:native|cuda)::")

_PREFIX = "========= "


@dataclass(frozen=True)
class SanitizerFinding:
    """One defect: the tool that saw it, its reason, and what was seen where, on one line."""

    tool: str
    reason: Reason
    message: str


def require_tool() -> None:
    """Raises HarnessError without compute-sanitizer."""
    if not shutil.which("compute-sanitizer"):
        raise HarnessError(
            "--sanitize needs compute-sanitizer, which comes with the CUDA toolkit and is not on the path here. "
            "Where there is no GPU, --device emulator --check looks for the same defects."
        )


def command(tool: str, log: Path) -> list[str]:
    return [
        "compute-sanitizer", "--tool", tool, "--target-processes", "all", "--print-limit", "20",
        "--log-file", str(log), *(["--num-cuda-barriers", str(CUDA_BARRIERS)] if tool == "synccheck" else []),
    ]  # fmt: skip


@dataclass(frozen=True)
class _Watched:
    """What one tool found, and in what words it failed itself, if it did."""

    findings: Sequence[SanitizerFinding] = ()
    failure: str = ""
    ended: bool = False
    """What was found ended the process, and would under the other tools."""


def sanitized(evaluation: Accepted, submission: Submission, problem: Problem, cases: Sequence[Case], device: str,
              on_event: OnEvent) -> Evaluation:  # fmt: skip
    """`evaluation`, or a rejection with the first of what the tools found. An error where they found nothing and one of
    them could not finish: its silence says nothing, and its failure is none of the submission's."""
    watched: dict[str, _Watched] = {}
    with Driver(submission, problem, [case.on("cpu") for case in cases], device, evaluation.seed) as driver:
        for tool in TOOLS:
            on_event(Sanitizing(submission.name, name_of(problem.path), tool))
            watched[tool] = _watch(tool, driver)
            if watched[tool].ended:
                break
    findings = [finding for seen in watched.values() for finding in seen.findings]
    failures = [SanitizerFailed(tool=tool, why=seen.failure) for tool, seen in watched.items() if seen.failure]
    if findings:
        first, *others = findings
        notes: list[Note] = [
            *(SanitizerFound(tool=finding.tool, message=finding.message) for finding in others),
            *failures,
        ]
        return _instead(Rejected, evaluation, first.reason, f"{first.tool}: {first.message}", notes)
    finished = [tool for tool, seen in watched.items() if not seen.failure]
    if failures:
        failed = "; ".join(f"{failure.tool} could not finish: {failure.why}" for failure in failures)
        message = f"compute-sanitizer's {failed}. Nothing was found by: {', '.join(finished) or 'none'}."
        return _instead(Errored, evaluation, Reason.SANITIZER_FAILED, message, [])
    return msgspec.structs.replace(evaluation, notes=[*evaluation.notes, SanitizerSilent(tools=finished)])


def _watch(tool: str, driver: Driver) -> _Watched:
    log = driver.folder / f"{tool}.log"
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        process = driver.run(command(tool, log), timeout_s=TIMEOUT_S, environment=environment)
    except SubmissionError as error:
        return _Watched([SanitizerFinding(tool, error.reason, error.message)], ended=True)
    text = log.read_text() if log.exists() else ""
    if out_of_room := _OUT_OF_ROOM.search(text):
        return _Watched(failure=out_of_room[0])
    if (found := findings_in(tool, text)) or not process.returncode:
        return _Watched(found, ended=process.returncode != 0)
    if process.returncode == EXIT_SUBMISSION_FAILED:
        return _Watched([SanitizerFinding(tool, Reason.RAISED, last_line(process))], ended=True)
    return _Watched(failure=f"it ended with {process.returncode}: {_said(process)}")


def _said(process: subprocess.CompletedProcess[str]) -> str:
    """What a process that died said of it: the last line that speaks of an error, else the last line."""
    of_errors = [line.strip() for line in process.stderr.splitlines() if re.search(r"\berror\b", line, re.IGNORECASE)]
    return of_errors[-1][:300] if of_errors else last_line(process)


def _instead(kind: type[Rejected] | type[Errored], evaluation: Accepted, reason: Reason, message: str,
             notes: Sequence[Note]) -> Rejected | Errored:  # fmt: skip
    return kind(
        problem=evaluation.problem,
        submission=evaluation.submission,
        source_sha256=evaluation.source_sha256,
        device=evaluation.device,
        seed=evaluation.seed,
        cases=evaluation.cases,
        build=evaluation.build,
        notes=[*evaluation.notes, *notes],
        reason=reason,
        message=message,
    )


def findings_in(tool: str, log: str) -> list[SanitizerFinding]:
    """The defects in a log, each once, without those of PyTorch's own kernels.

    A defect is a line behind the prefix and the lines below it that are indented or go on with 'and'."""
    findings: dict[SanitizerFinding, None] = {}
    for block in _blocks(log):
        reason = next((reason for pattern, reason in _REASONS if pattern.search(block[0])), _OTHER)
        text = "; ".join(line for line in block if not line.startswith(("Saved host backtrace", "Host Frame")))
        if not _PYTORCHS.search(text):
            findings.setdefault(SanitizerFinding(tool, reason, re.sub(r"by thread \S+ in block \S+; ", "", text)[:600]))
    return list(findings)


# Lines at the margin that report no defect.
_NO_DEFECT = re.compile(
    r"COMPUTE-SANITIZER|.*SUMMARY|Target application|Program hit|This tool|Error: No attachable|No |Use |LEAK|"
    r"Error: process didn't terminate successfully|Warning: Detected overflow of tracked"
)


def _blocks(log: str) -> list[list[str]]:
    blocks: list[list[str]] = []
    inside = False
    for line in log.splitlines():
        text = line.removeprefix(_PREFIX) if line.startswith(_PREFIX) else ""
        if not text.strip():
            inside = False
        elif text.startswith((" ", "and ")):
            if inside:
                blocks[-1].append(text.strip())
        else:
            inside = not _NO_DEFECT.match(text)
            if inside:
                blocks.append([text.strip()])
    return blocks
