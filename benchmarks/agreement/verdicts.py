#!/usr/bin/env python3
"""The verdict on every shipped CUDA submission and every faulty one, on this machine's device.

    python benchmarks/agreement/verdicts.py --device cuda --json results/h200/verdicts.json
    python benchmarks/agreement/verdicts.py --device emulator --json results/cpu/verdicts_emulator.json

Runs eval.py without timing, one process for each submission, with one seed so that both devices see the same
cases. On 16 cores `--jobs 8` takes about three minutes with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SEED = 20


def jobs() -> list[tuple[Path, list[str]]]:
    """Each file with CUDA in it, and the problem that eval.py cannot guess from its folder."""
    shipped = _with_cuda(ROOT / "submissions")
    faulty = _with_cuda(ROOT / "tests" / "hostile")
    problem = ["--problem", str(ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py")]
    return [(f, []) for f in shipped] + [(f, problem) for f in faulty]


def _with_cuda(folder: Path) -> list[Path]:
    return [f for f in sorted(folder.rglob("*.py")) if "cuda_sources" in f.read_text()]


def judge(file: Path, more: list[str], device: str, deadline: float) -> dict[str, Any]:
    """Status and reason, and the reason of each case that failed."""
    command = [sys.executable, str(ROOT / "eval.py"), str(file), *more, "--device", device, "--no-timing"]
    command += ["--seed", str(SEED), "--json", "-"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, deadline - time.monotonic()))
        (evaluation,) = json.loads(done.stdout)["evaluations"]
    except subprocess.TimeoutExpired:
        return {"status": "not run"}
    except (ValueError, KeyError):
        return {"status": "not run", "message": done.stderr[-500:]}
    cases = {c["name"]: c["status"] for c in evaluation.get("cases", [])}
    kept = {key: evaluation.get(key, "") for key in ("status", "reason", "message")}
    return {**kept, "problem": evaluation["problem"], "passed": sum(status == "passed" for status in cases.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "emulator"), required=True)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--jobs", type=int, default=8, help="evaluations at a time")
    parser.add_argument("--limit-s", type=float, default=540, help="what is not done by then is 'not run'")
    options = parser.parse_args()
    deadline = time.monotonic() + options.limit_s
    from harness.environment import describe

    results: dict[str, Any] = {}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(judge, *job, options.device, deadline): job[0] for job in jobs()}
        for done in as_completed(running):
            name = str(running[done].relative_to(ROOT))
            results[name] = done.result()
            ordered = dict(sorted(results.items()))
            content = {"environment": describe(), "device": options.device, "seed": SEED, "verdicts": ordered}
            options.json.write_text(json.dumps(content, indent=1) + "\n")
            print(name, results[name]["status"], results[name].get("reason") or "", flush=True)


if __name__ == "__main__":
    main()
