#!/usr/bin/env python3
"""The emulator's corpus on a GPU, plain and under compute-sanitizer: who finds what.

    python benchmarks/agreement/corpus.py --json results/h200/emulator_agreement.json

Every kernel of tests/emulator/faults is built with nvcc into one extension and run alone, and under memcheck,
racecheck, initcheck and synccheck, with torch's caching allocator off so that it hides no overrun. Takes about
five minutes on 16 cores; the file is written anew after each process, so that what was seen is never lost. --continue
runs what is not in the file yet; delete the file when a kernel has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import INCOMPLETE, save

from tests.emulator import corpus_sources

TOOLS = ("plain", "memcheck", "racecheck", "initcheck", "synccheck")
PROCESS = Path(__file__).with_name("corpus_process.py")
# Kernels that end the process's use of the GPU run in processes of their own, so that no others wait for a restart.
ALONE = ("bounds_", "misaligned_", "endless_", "assertion", "host_pointer", "trap")
# A sanitizer makes the start of a process slow. No case needs more than a second by itself.
START_LIMIT_S, CASE_LIMIT_S = 120, 30
_MARK = re.compile(r"^@@ (start|done) (\S+) ?(.*)$")
_AT = re.compile(r" (?P<name>\w+)::\w+.* in (?:\S*/)?(?P<file>[\w.]+):(?P<line>\d+)")


def build(folder: Path) -> Path:
    """The extension of all cases, with lines for the sanitizer."""
    from torch.utils.cpp_extension import load_inline

    module = load_inline(
        name="faults_on_gpu",
        cpp_sources=[corpus_sources.declarations()],
        cuda_sources=["\n".join(piece.located for piece in corpus_sources.sources())],
        functions=corpus_sources.exported(),
        extra_cuda_cflags=["-lineinfo", "-std=c++20"],
        build_directory=str(folder),
    )
    return Path(module.__file__)


@dataclass
class Recorded:
    """What one case did under one tool."""

    outcome: str = "not run"
    raised: str = ""
    y: str = ""
    reports: list[str] = field(default_factory=list)


class Table:
    """All results, and the file they are kept in."""

    def __init__(self, path: Path, **environment: Any):
        self._path, self._environment, self._lock = path, environment, threading.Lock()
        self.cases = {f.stem: {tool: Recorded() for tool in TOOLS} for f in corpus_sources.cases()}

    def take_what_is_there(self) -> None:
        """What the file has of these cases."""
        known = json.loads(self._path.read_text())["cases"] if self._path.exists() else {}
        for name in self.cases.keys() & known.keys():
            self.cases[name] = {tool: Recorded(**known[name][tool]) for tool in TOOLS}

    def is_run(self, name: str, tool: str) -> bool:
        return self.cases[name][tool] != Recorded()

    def save(self) -> None:
        """Write the file, whole or not at all."""
        with self._lock:
            rows = {
                name: {tool: _without_empty(vars(recorded)) for tool, recorded in by_tool.items()}
                for name, by_tool in self.cases.items()
            }
            save(self._path, {"cases": rows}, **self._environment)


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def command(tool: str, extension: Path, names: list[str]) -> list[str]:
    """The command that runs `names` under `tool`."""
    program = [sys.executable, "-u", str(PROCESS), str(extension), *names]
    if tool == "plain":
        return program
    return ["compute-sanitizer", "--tool", tool, "--print-limit", "20", "--show-backtrace", "no", *program]


def run_some(tool: str, extension: Path, names: list[str], table: Table, deadline: float) -> list[str]:
    """Run cases in one process; returns those that it did not come to."""
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    process = subprocess.Popen(
        command(tool, extension, names), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    reader = Reader(tool, table)
    limit = time.monotonic() + START_LIMIT_S
    while True:
        try:
            line = lines.get(timeout=max(0.1, min(limit, deadline) - time.monotonic()))
        except queue.Empty:
            os.killpg(process.pid, signal.SIGKILL)
            reader.end("timed out")
            break
        if line is None:
            reader.end("died")
            break
        if reader.take(line.rstrip("\n")):
            limit = time.monotonic() + CASE_LIMIT_S
    process.wait()
    table.save()
    return [name for name in names if name not in reader.started]


class Reader:
    """Takes a process's output line by line and gives each report to the case it belongs to."""

    def __init__(self, tool: str, table: Table):
        self._tool, self._table = tool, table
        self.started: list[str] = []
        self._open = ""
        self._report: list[str] = []
        self._last_lines: list[str] = []

    def take(self, line: str) -> bool:
        """Whether the line is a sign of progress."""
        mark = _MARK.match(line)
        if line.startswith("========="):
            self._sanitizer(line.removeprefix("=========").rstrip())
            return False
        if not mark:
            self._last_lines = [*self._last_lines[-3:], line]
            return False
        kind, name, rest = mark.groups()
        recorded = self._table.cases[name][self._tool]
        if kind == "start":
            self.started.append(name)
            self._open = name
            return True
        self._open = ""
        answer = json.loads(rest)
        recorded.raised, recorded.y = answer["raised"], answer["y"] if self._tool == "plain" else ""
        recorded.outcome = "raised" if recorded.raised else "ran"
        return True

    def _sanitizer(self, line: str) -> None:
        """A report is a line without indentation and the indented lines behind it."""
        if line.startswith("  "):
            self._report.append(line.strip())
            return
        self._close_report()
        if line.strip() and not re.match(r" (COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK|Target|\d+)", line):
            self._report = [line.strip()]

    def _close_report(self) -> None:
        if not self._report:
            return
        text = " ".join(self._report)
        place = _AT.search(text)
        name = place["name"] if place and place["name"] in self._table.cases else (self.started or [""])[-1]
        if name:
            where = f" ({place['file']}:{place['line']})" if place else ""
            reports = self._table.cases[name][self._tool].reports
            first = f"{self._report[0]}{where}"
            if first not in reports and len(reports) < 6:
                reports.append(first)
        self._report = []

    def end(self, why: str) -> None:
        """The process is gone; a case that was open did not end by itself."""
        self._close_report()
        if not self.started:
            print(f"{self._tool}: the process {why} before its first case: {' '.join(self._last_lines)}", flush=True)
        if self._open:
            recorded = self._table.cases[self._open][self._tool]
            recorded.outcome, recorded.raised = why, " ".join(self._last_lines).strip()[-300:]


def shards(size: int) -> list[list[str]]:
    """Cases that share a process, the lonely ones first since they take longest."""
    names = [file.stem for file in corpus_sources.cases()]
    alone = [name for name in names if name.startswith(ALONE)]
    others = [name for name in names if name not in alone]
    return [[name] for name in alone] + [others[i : i + size] for i in range(0, len(others), size)]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--jobs", type=int, default=12, help="processes at a time")
    parser.add_argument("--shard", type=int, default=9, help="cases in one process")
    parser.add_argument("--limit-s", type=float, default=540, help="what is not done by then stays 'not run'")
    parser.add_argument("--continue", dest="continues", action="store_true", help="run what the file does not have")
    return parser


def main() -> None:
    options = parser().parse_args()
    deadline = time.monotonic() + options.limit_s
    import torch

    if not torch.cuda.is_available():
        sys.exit("This needs a GPU; tests/emulator/test_faults.py runs the same kernels on the emulator.")
    if not shutil.which("compute-sanitizer"):
        sys.exit("compute-sanitizer is not on the path; it comes with the CUDA toolkit.")
    versions = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True).stdout.split()
    table = Table(options.json, compute_sanitizer=versions[-1] if versions else "")
    if options.continues:
        table.take_what_is_there()
    with tempfile.TemporaryDirectory() as folder:
        extension = build(Path(folder))
        print(f"built, {deadline - time.monotonic():.0f} s left", flush=True)

        def work(job: tuple[str, list[str]]) -> None:
            tool, names = job[0], [name for name in job[1] if not table.is_run(name, job[0])]
            while names and time.monotonic() < deadline:
                rest = run_some(tool, extension, names, table, deadline)
                if rest == names:  # the process did not come to its first case
                    break
                names = rest

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(work, [(tool, names) for names in shards(options.shard) for tool in TOOLS]))
    table.save()
    left = [f"{n} {t}" for n, by_tool in table.cases.items() for t, r in by_tool.items() if r.outcome == "not run"]
    print(f"{len(table.cases)} kernels, {len(TOOLS)} ways each; not run: {', '.join(left) or 'none'}")
    if left and time.monotonic() > deadline:
        sys.exit(INCOMPLETE)


if __name__ == "__main__":
    main()
