#!/usr/bin/env python3
"""The verdict on every shipped CUDA submission and every faulty one, on this machine's device.

    python benchmarks/agreement/verdicts.py --device cuda --json results/h200/verdicts.json
    python benchmarks/agreement/verdicts.py --device emulator --json results/cpu/verdicts_emulator.json
    python benchmarks/agreement/verdicts.py --device cuda --sanitize --json results/h200/sanitized.json [FILE…]

Runs eval.py without timing, one process for each submission, with one seed so that both devices see the same
cases. With FILEs only those are judged, anew, and what --json's file says of others stays. With --sanitize
compute-sanitizer's tools run over the cases of those that are accepted; then the shipped ones are all. On 16 cores
`--jobs 8` takes some four minutes where nothing has been built yet.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import INCOMPLETE, ROOT, save

FAULTY = ROOT / "tests" / "hostile"
SEED = 20


def submissions(sanitize: bool) -> list[Path]:
    """Each file with CUDA in it: what is shipped, and unless it is for a sanitizer the faulty ones."""
    return _with_cuda(ROOT / "submissions") + ([] if sanitize else _with_cuda(FAULTY))


def _with_cuda(folder: Path) -> list[Path]:
    return [f for f in sorted(folder.rglob("*.py")) if "cuda_sources" in f.read_text()]


def judge(file: Path, device: str, more: list[str], deadline: float) -> dict[str, Any]:
    """Status, reason and notes, and how many cases passed."""
    command = [sys.executable, str(ROOT / "eval.py"), str(file), "--device", device, "--no-timing", "--no-store", *more]
    if file.is_relative_to(FAULTY):  # eval.py cannot guess the problem from its folder
        command += ["--problem", str(ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py")]
    command += ["--seed", str(SEED), "--json", "-"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, deadline - time.monotonic()))
        evaluations = json.loads(done.stdout)["evaluations"]
    except subprocess.TimeoutExpired:
        return {"status": "not run", "message": "out of time"}
    except (ValueError, KeyError):
        return {"status": "not run", "message": done.stderr[-500:]}
    # A file may be for several problems: what one of them says against it is said.
    evaluation = next((e for e in evaluations if e["status"] != "accepted"), evaluations[0])
    passed = sum(case["status"] == "passed" for e in evaluations for case in e.get("cases", []))
    kept = {key: evaluation.get(key, "") for key in ("status", "reason", "message", "notes")}
    return {**kept, "problem": evaluation["problem"], "passed": passed}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="only these, beside what is there")
    parser.add_argument("--device", choices=("cuda", "emulator"), required=True)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--sanitize", action="store_true", help="run compute-sanitizer over those that are accepted")
    parser.add_argument("-k", dest="select", default="", metavar="CASE", help="only cases whose name has this")
    parser.add_argument("--jobs", type=int, default=8, help="evaluations at a time")
    parser.add_argument("--limit-s", type=float, default=540, help="what is not done by then is 'not run'")
    return parser


def main() -> None:
    options = parser().parse_args()
    deadline = time.monotonic() + options.limit_s
    more = [*(["--sanitize"] if options.sanitize else []), *(["-k", options.select] if options.select else [])]
    again = bool(options.files) and options.json.exists()
    results: dict[str, dict[str, Any]] = json.loads(options.json.read_text())["verdicts"] if again else {}
    with ThreadPoolExecutor(options.jobs) as pool:
        files = [file.resolve() for file in options.files] or submissions(options.sanitize)
        running = {pool.submit(judge, file, options.device, more, deadline): file for file in files}
        for done in as_completed(running):
            name = str(running[done].relative_to(ROOT))
            results[name] = done.result()
            content = {"device": options.device, "seed": SEED, "verdicts": dict(sorted(results.items()))}
            save(options.json, content)
            print(name, results[name]["status"], results[name].get("reason") or "", flush=True)
    if time.monotonic() > deadline:
        sys.exit(INCOMPLETE)
    if all(entry["status"] == "not run" for entry in results.values()):
        sys.exit(f"Nothing was judged: {next(iter(results.values()), {}).get('message', 'no submission')}")


if __name__ == "__main__":
    main()
