#!/usr/bin/env python3
"""Counts of the ladder's kernels: Nsight Compute's on a GPU, the emulator's on a CPU.

    python benchmarks/agreement/counters.py --device cuda --json results/h200/counters.json
    python benchmarks/agreement/counters.py --device emulator --json results/cpu/counters_emulator.json

One call of each submission on each shape. On a GPU builds come first, side by side, and then ncu one process at a
time: about four minutes on 16 cores.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

CALL = Path(__file__).with_name("counted_call.py")
SHAPES = ((256, 4096), (4, 262144))
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


def environment(submission: Path, rows: int, columns: int) -> dict[str, str]:
    """What counted_call.py reads; the architecture keeps builds short."""
    more = {"SUBMISSION": str(submission), "ROWS": str(rows), "COLUMNS": str(columns)}
    return {"TORCH_CUDA_ARCH_LIST": "9.0", **os.environ, **more}


def known_metrics() -> list[str]:
    """Those of METRICS that ncu has for this machine's GPU."""
    answer = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True)
    names = {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}
    found = [name for name in METRICS if name in names]
    if not found:
        sys.exit(f"ncu names none of the counters: {(answer.stderr or answer.stdout)[-500:]}")
    return found


def from_ncu(submission: Path, rows: int, columns: int, metrics: list[str]) -> dict[str, dict[str, float]]:
    """Counters by kernel, added up over its launches. Raises RuntimeError with ncu's own words."""
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function"]
    command += ["--clock-control", "none", "--profile-from-start", "off"]
    command += ["--metrics", ",".join(f"{name}.sum" for name in metrics), sys.executable, str(CALL)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment(submission, rows, columns)
    )
    table = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if len(table) < 3:
        raise RuntimeError(f"{done.stdout[-300:]} {done.stderr[-300:]}".strip())
    kernels: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(table):
        if not row["ID"]:
            continue  # the row of units
        counters = kernels.setdefault(row["Kernel Name"], {"launches": 0, **dict.fromkeys(metrics, 0.0)})
        counters["launches"] += 1
        for name in metrics:
            counters[name] += float(row[f"{name}.sum"].replace(",", ""))
    return kernels


def from_emulator(submission: Path, rows: int, columns: int) -> dict[str, dict[str, float]]:
    """The emulator's counts by kernel."""
    from harness.paths import emulator_cache

    driver = ROOT / "tests" / "emulator" / "driver.py"
    command = [sys.executable, str(driver), str(CALL), str(emulator_cache()), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(submission, rows, columns))
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer or answer["findings"]:
        raise RuntimeError(str(answer.get("error") or answer["findings"]))
    return {counts.pop("kernel"): counts for counts in answer["counts"]}


def build(submission: Path) -> None:
    """Build the extension, so that ncu does not wait for nvcc."""
    subprocess.run([sys.executable, str(CALL)], env=environment(submission, 8, 4096), capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "emulator"), required=True)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--limit-s", type=float, default=540, help="nothing is started after that")
    options = parser.parse_args()
    deadline = time.monotonic() + options.limit_s
    metrics: list[str] = []
    if options.device == "cuda":
        if not shutil.which("ncu"):
            sys.exit("ncu is not on the path; it comes with Nsight Compute.")
        metrics = known_metrics()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(build, submissions()))
    from harness.environment import describe

    content: dict[str, Any] = {"environment": describe(), "device": options.device, "metrics": metrics, "calls": []}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    for submission in submissions():
        for rows, columns in SHAPES:
            call: dict[str, Any] = {"submission": submission.stem, "rows": rows, "columns": columns}
            if time.monotonic() > deadline:
                call["error"] = "not run: out of time"
            else:
                try:
                    if options.device == "cuda":
                        call["kernels"] = from_ncu(submission, rows, columns, metrics)
                    else:
                        call["kernels"] = from_emulator(submission, rows, columns)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    call["error"] = str(error)
            content["calls"].append(call)
            options.json.write_text(json.dumps(content, indent=1) + "\n")
            print(submission.stem, f"{rows}×{columns}", call.get("error") or sorted(call["kernels"]), flush=True)


if __name__ == "__main__":
    main()
