#!/usr/bin/env python3
"""The emulator's corpus on the emulator, in both modes, in the form that the table of agreement reads.

python benchmarks/agreement/corpus_on_emulator.py --json results/cpu/emulator_corpus.json
"""

from __future__ import annotations

import argparse
import base64
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import ROOT, save

from harness.paths import emulator_cache
from tests.emulator import corpus_sources

TESTS = ROOT / "tests" / "emulator"


def run(*options: str) -> dict[str, Any]:
    """The driver's result for the corpus."""
    command = [sys.executable, str(TESTS / "driver.py"), str(TESTS / "corpus.py"), str(emulator_cache())]
    done = subprocess.run([*command, "--timeout", "1.5", *options], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"The corpus did not run: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])["result"]


def short(case: dict[str, Any]) -> dict[str, Any]:
    """The first finding, and y where the kernel ran."""
    if case["found"]:
        kind, line, *_ = case["found"][0]
        return {"found": kind, "line": line}
    return {"found": "", "raised": case["message"], "y": packed(case["y"])}


def packed(values: list[float]) -> str:
    """base64 of zlib of float32, as corpus_process.py writes y."""
    return base64.b64encode(zlib.compress(struct.pack(f"<{len(values)}f", *values), 9)).decode()


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    return parser


def main() -> None:
    options = parser().parse_args()
    modes = {"check": run("--check"), "fast": run()}
    expected = {file.stem: corpus_sources.header(file, "Expected") for file in corpus_sources.cases()}
    cases: dict[str, dict[str, Any]] = {
        name: {"expected": expected[name], **{mode: short(modes[mode][name]) for mode in modes}}
        for name in modes["check"]
    }
    save(options.json, {"cases": cases})
    print(f"{len(cases)} kernels; findings in {sum(bool(c['check']['found']) for c in cases.values())} of them")


if __name__ == "__main__":
    main()
