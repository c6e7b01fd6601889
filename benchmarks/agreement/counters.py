#!/usr/bin/env python3
"""Counts of the ladder's kernels: Nsight Compute's on a GPU, the emulator's on a CPU.

    python benchmarks/agreement/counters.py --device cuda --json results/h200/counters.json
    python benchmarks/agreement/counters.py --device emulator --json results/cpu/counters_emulator.json

One call of each submission on each shape. On a GPU the builds come first, side by side, and then ncu, one process at a
time: about a minute and a half on 16 cores where everything is built.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import INCOMPLETE, ROOT, save

# By kernel: the launches and each counter.
Counts = dict[str, dict[str, float]]

CALL = Path(__file__).with_name("counted_call.py")
SHAPES = ((256, 4096), (4, 262144))
# The kernel that counted_call.py launches before each counted call.
MARK = "spin_kernel"
# Those that this ncu does not know are left out.
METRICS = (
    "smsp__sass_data_bytes_mem_global_op_ld",
    "smsp__sass_data_bytes_mem_global_op_st",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom",
    "dram__bytes_read",
    "dram__bytes_write",
)


def submissions() -> list[Path]:
    """The ladder and what follows it, as far as it is CUDA."""
    return [f for f in sorted((ROOT / "submissions" / "layernorm").glob("*.py")) if "cuda_sources" in f.read_text()]


def environment(submission: Path, shapes: Sequence[tuple[int, int]]) -> dict[str, str]:
    """What counted_call.py reads."""
    return {**os.environ, "SUBMISSION": str(submission), "SHAPES": " ".join(f"{r}x{c}" for r, c in shapes)}


def known_metrics() -> list[str]:
    """Those of METRICS that ncu has for this machine's GPU."""
    answer = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True)
    names = {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}
    found = [name for name in METRICS if name in names]
    if not found:
        sys.exit(f"ncu names none of the counters: {(answer.stderr or answer.stdout)[-500:]}")
    return found


def from_ncu(submission: Path, metrics: list[str]) -> list[Counts]:
    """Counters by kernel for each of SHAPES, added up over a call's launches. Raises RuntimeError with ncu's own
    words, and TimeoutExpired."""
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function"]
    command += ["--clock-control", "none", "--profile-from-start", "off"]
    command += ["--metrics", ",".join(f"{name}.sum" for name in metrics), sys.executable, str(CALL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(submission, SHAPES))
    counted = by_call([line for line in done.stdout.splitlines() if line.startswith('"')], metrics)
    if len(counted) != len(SHAPES):
        raise RuntimeError(f"{len(counted)} calls counted: {done.stdout[-300:]} {done.stderr[-300:]}".strip())
    return counted


def by_call(table: list[str], metrics: list[str]) -> list[Counts]:
    """ncu's table of launches, a call's behind each launch of MARK."""
    calls: list[Counts] = []
    for row in csv.DictReader(table):
        if not row["ID"]:
            continue  # the row of units
        if MARK in row["Kernel Name"]:
            calls.append({})
            continue
        counters = calls[-1].setdefault(row["Kernel Name"], {"launches": 0, **dict.fromkeys(metrics, 0.0)})
        counters["launches"] += 1
        for name in metrics:
            counters[name] += float(row[f"{name}.sum"].replace(",", ""))
    return calls


def from_emulator(submission: Path, shape: tuple[int, int]) -> Counts:
    """The emulator's counts by kernel. Raises RuntimeError."""
    from harness.paths import emulator_cache

    driver = ROOT / "tests" / "emulator" / "driver.py"
    command = [sys.executable, str(driver), str(CALL), str(emulator_cache()), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(submission, [shape]))
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer or answer["findings"]:
        raise RuntimeError(str(answer.get("error") or answer["findings"]))
    return {counts.pop("kernel"): counts for counts in answer["counts"]}


def counted(submission: Path, device: str, metrics: list[str]) -> list[dict[str, Any]]:
    """For each shape a call's counts, or why there are none."""
    calls: list[dict[str, Any]] = [{"submission": submission.stem, "rows": r, "columns": c} for r, c in SHAPES]
    try:
        if device == "cuda":
            kernels = from_ncu(submission, metrics)
        else:
            kernels = [from_emulator(submission, shape) for shape in SHAPES]
    except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return [call | {"error": f"{type(error).__name__}: {error}"} for call in calls]
    return [call | {"kernels": found} for call, found in zip(calls, kernels, strict=True)]


def build(submission: Path) -> None:
    """Build the extension, so that ncu does not wait for nvcc."""
    subprocess.run([sys.executable, str(CALL)], env=environment(submission, SHAPES[:1]), capture_output=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="only these submissions")
    parser.add_argument("--device", choices=("cuda", "emulator"), required=True)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--jobs", type=int, default=8, help="builds at a time")
    parser.add_argument("--limit-s", type=float, default=540, help="nothing is started after that")
    return parser


def main() -> None:
    options = parser().parse_args()
    deadline = time.monotonic() + options.limit_s
    files = options.files or submissions()
    metrics: list[str] = []
    if options.device == "cuda":
        if not shutil.which("ncu"):
            sys.exit("ncu is not on the path; it comes with Nsight Compute.")
        metrics = known_metrics()
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(build, files))
    content: dict[str, Any] = {"device": options.device, "metrics": metrics, "calls": []}
    for submission in files:
        if time.monotonic() > deadline:
            print(f"out of time before {submission.stem}")
            sys.exit(INCOMPLETE)
        content["calls"] += counted(submission.resolve(), options.device, metrics)
        save(options.json, content)
        print(submission.stem, [call.get("error") or sorted(call["kernels"]) for call in content["calls"]][-2:],
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
