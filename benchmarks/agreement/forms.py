#!/usr/bin/env python3
"""What public submissions look like, in files of our own, and the verdict that each must get on this machine's device.

    python benchmarks/agreement/forms.py --device cuda --json results/h200/forms.json
    python benchmarks/agreement/forms.py --device emulator --json results/cpu/forms_emulator.json [FILE…]

A submission's first lines say what it is, its group and the verdicts that are right. Runs eval.py without timing, one
process for each, with one seed so that both devices see the same data. With FILEs only those are judged, anew, and what
--json's file says of others stays. Exits with 1 where a verdict is not the wanted one.
"""

from __future__ import annotations

import argparse
import ast
import json
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import INCOMPLETE, ROOT, save

FOLDER = ROOT / "tests" / "fixtures" / "public_forms"
SEED = 20


@dataclass(frozen=True)
class Form:
    """A submission and what its first lines say of it."""

    path: Path
    what: str
    group: str
    wanted: tuple[str, ...]
    """Verdicts that are right: 'accepted', 'rejected wrong_output', …"""
    may_call: str = ""
    """What the report's note must say that submissions may call."""
    options: tuple[str, ...] = ()
    """Of eval.py."""

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def problem(self) -> Path:
        return self.path.parent.with_suffix(".py")


def read_form(path: Path) -> Form:
    """Raises KeyError where the first lines lack a group or a verdict."""
    first, *lines = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    status, *reasons = said["expect"].split(" ", 1)
    wanted = tuple(f"{status} {reason}" for reason in reasons[0].split("|")) if reasons else (status,)
    options = tuple(shlex.split(said.get("options", "")))
    return Form(path, first, said["group"], wanted, said.get("may call", ""), options)


def forms() -> list[Form]:
    """All that there are, in the order of their names."""
    return [read_form(path) for path in sorted(FOLDER.glob("*/*.py"))]


def judge(form: Form, device: str, deadline: float) -> dict[str, Any]:
    """What the form is and got: its verdict, the share of the tolerance that its largest error has, and whether all of
    it is as wanted."""
    command = [sys.executable, str(ROOT / "eval.py"), str(form.path), "--problem", str(form.problem), "--no-store"]
    command += ["--device", device, "--no-timing", "--seed", str(SEED), *form.options, "--json", "-"]
    began = time.monotonic()
    about = {"what": form.what, "group": form.group, "wanted": list(form.wanted)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, deadline - time.monotonic()))
        (evaluation,) = json.loads(done.stdout)["evaluations"]
    except subprocess.TimeoutExpired:
        return {**about, "verdict": "not run", "as_wanted": False, "message": "out of time"}
    except (ValueError, KeyError):
        return {**about, "verdict": "not run", "as_wanted": False, "message": done.stderr[-500:]}
    verdict = " ".join(filter(None, (evaluation["status"], evaluation["reason"])))
    cases, notes = evaluation["cases"], evaluation["notes"]
    return {
        **about,
        "verdict": verdict,
        "as_wanted": verdict in form.wanted and (not form.may_call or any(form.may_call in note for note in notes)),
        "share_of_tolerance": _share(cases),
        "cases": {case["name"]: case["status"] for case in cases},
        "message": evaluation["message"],
        "notes": notes,
        "seconds": round(time.monotonic() - began, 1),
    }


def _share(cases: list[dict[str, Any]]) -> float | None:
    """The largest error of any case in tolerances; None where no values were compared."""
    compared = [case for case in cases if case.get("tolerance") and case.get("error") is not None]
    shares = [case["error"] / case["tolerance"] for case in compared]
    return float(f"{max(shares):.3g}") if shares else None


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="only these, beside what is there")
    parser.add_argument("--device", choices=("cuda", "emulator"), required=True)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--jobs", type=int, default=8, help="evaluations at a time")
    parser.add_argument("--limit-s", type=float, default=540, help="what is not done by then is 'not run'")
    return parser


def main() -> None:
    options = parser().parse_args()
    deadline = time.monotonic() + options.limit_s
    again = bool(options.files) and options.json.exists()
    results: dict[str, dict[str, Any]] = json.loads(options.json.read_text())["forms"] if again else {}
    with ThreadPoolExecutor(options.jobs) as pool:
        asked = [read_form(file.resolve()) for file in options.files] or forms()
        running = {pool.submit(judge, form, options.device, deadline): form for form in asked}
        for done in as_completed(running):
            name = running[done].name
            results[name] = done.result()
            save(options.json, {"device": options.device, "seed": SEED, "forms": dict(sorted(results.items()))})
            print("ok   " if results[name]["as_wanted"] else "WRONG", name, results[name]["verdict"], flush=True)
    wrong = [f"{name}: {entry['message']}" for name, entry in results.items() if not entry["as_wanted"]]
    print(f"{len(results) - len(wrong)} of {len(results)} as wanted", *wrong, sep="\n")
    if time.monotonic() > deadline:
        sys.exit(INCOMPLETE)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
