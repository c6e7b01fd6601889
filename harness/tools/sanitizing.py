"""`--sanitize`: compute-sanitizer's four tools over a submission's cases, as a verdict.

The cases are the small ones that a CPU would run, and PyTorch's caching allocator is off: it hands out pieces of
large blocks, and an overrun into a neighbour's piece is no error to the hardware.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import HarnessError, SubmissionError
from harness.problem import Case, Problem
from harness.submission import Submission
from harness.tools.driving import EXIT_SUBMISSION_FAILED, Driver, last_line
from harness.verdict import Accepted, Evaluation, Rejected

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

# A kernel runs some ten to a hundred times slower.
TIMEOUT_S = 3600.0

# The tool's words -> the machine's word for the defect, the same as the emulator's.
_REASONS = (
    (re.compile(r"Invalid __(?:global|shared|local)__ (?:read|write|atomic)|out of bounds"), "out_of_bounds"),
    (re.compile(r"[Mm]isaligned"), "misaligned_access"),
    (re.compile(r"Race reported|[Hh]azard"), "data_race"),
    (re.compile(r"Uninitialized"), "uninitialised_read"),
    (re.compile(r"Barrier error"), "divergent_barrier"),
)
_OTHER = "sanitizer_finding"

# Kernels of PyTorch's own in a submission's calls: what they do is not judged.
_PYTORCHS = re.compile(r"\bat::(?:native|cuda)::")

_PREFIX = "========= "


@dataclass(frozen=True)
class SanitizerFinding:
    """One defect: the tool that saw it, its reason, and what was seen where, on one line."""

    tool: str
    reason: str
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
        "--log-file", str(log),
    ]  # fmt: skip


def sanitized(evaluation: Accepted, submission: Submission, problem: Problem, cases: Sequence[Case], device: str,
              progress: Callable[[str], None]) -> Evaluation:  # fmt: skip
    """`evaluation`, or a rejection with the first of what the tools found.

    Raises HarnessError when a tool itself fails."""
    findings: list[SanitizerFinding] = []
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with Driver(submission, problem, [case.on_cpu() for case in cases], device, evaluation.seed) as driver:
        for tool in TOOLS:
            progress(f"{submission.name}: {tool}")
            log = driver.folder / f"{tool}.log"
            try:
                process = driver.run(command(tool, log), timeout_s=TIMEOUT_S, environment=environment)
            except SubmissionError as error:
                return _rejected(evaluation, error.reason, error.message, [])
            found = findings_in(tool, log.read_text()) if log.exists() else []
            findings += found
            if found and process.returncode:
                break  # a defect that ends the kernel ends the process with it, and would under the other tools
            if process.returncode not in (0, EXIT_SUBMISSION_FAILED):
                raise HarnessError(f"compute-sanitizer's {tool} ended with {process.returncode}: {_said(process)}")
            if process.returncode and not found:
                return _rejected(evaluation, "raised", f"Under {tool}: {last_line(process)}", [])
    if not findings:
        return msgspec.structs.replace(
            evaluation, notes=[*evaluation.notes, f"compute-sanitizer found nothing: {', '.join(TOOLS)}."]
        )
    first = findings[0]
    return _rejected(evaluation, first.reason, f"{first.tool}: {first.message}", findings[1:])


def _said(process: subprocess.CompletedProcess[str]) -> str:
    """What a process that died said of it: the last line that speaks of an error, else the last line."""
    of_errors = [line.strip() for line in process.stderr.splitlines() if re.search(r"\berror\b", line, re.IGNORECASE)]
    return of_errors[-1][:300] if of_errors else last_line(process)


def _rejected(evaluation: Accepted, reason: str, message: str, others: Sequence[SanitizerFinding]) -> Rejected:
    return Rejected(
        problem=evaluation.problem,
        submission=evaluation.submission,
        source_sha256=evaluation.source_sha256,
        device=evaluation.device,
        seed=evaluation.seed,
        cases=evaluation.cases,
        build=evaluation.build,
        notes=[*evaluation.notes, *(f"{finding.tool}: {finding.message}" for finding in others)],
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
    r"COMPUTE-SANITIZER|.*SUMMARY|Target application|Program hit|This tool|Error: No attachable|No |Use |LEAK"
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
