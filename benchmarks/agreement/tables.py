#!/usr/bin/env python3
"""The tables of docs/emulator-agreement.md, made from committed results.

    python benchmarks/agreement/tables.py            # writes them
    python benchmarks/agreement/tables.py --check    # exits with 1 when one is out of date

A pair of comments, `<!-- table: NAME -->` and `<!-- end of table -->`, holds each. Where a file of results is not
there, the table says with which command it is made.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.emulator import corpus_sources  # noqa: E402

DOCUMENT = ROOT / "docs" / "emulator-agreement.md"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_BLOCK = re.compile(r"(<!-- table: (?P<name>\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


class NotMeasured(Exception):
    """A file of results that is not there; the text says how it is made."""


def results(path: str, command: str) -> dict[str, Any]:
    """The content of a file of results. Raises NotMeasured."""
    if not (ROOT / path).exists():
        raise NotMeasured(f"Not measured yet: `{command} --json {path}`.")
    return json.loads((ROOT / path).read_text())


def gpu(environment: dict[str, Any]) -> str:
    """Machine and versions in one line."""
    parts = [environment.get("gpu"), f"torch {environment.get('torch')}", environment.get("date")]
    if environment.get("compute_sanitizer"):
        parts.insert(2, f"compute-sanitizer {environment['compute_sanitizer']}")
    return ", ".join(str(part) for part in parts)


# ------------------------------------------------------------------ the corpus


def _values(packed: str) -> tuple[float, ...]:
    data = zlib.decompress(base64.b64decode(packed))
    return struct.unpack(f"<{len(data) // 4}f", data)


def _same(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    return len(left) == len(right) and all(
        abs(a - b) <= 1e-5 * max(1, abs(b)) for a, b in zip(left, right, strict=True)
    )


def _alone(plain: dict[str, Any]) -> str:
    if plain["outcome"] != "raised":
        return plain["outcome"]
    name = re.search(r"cudaError\w+|CUDA error: ([^(.]*)", plain["raised"])
    return (name[1] or name[0]).strip() if name else "raised"


def _reported(recorded: dict[str, Any]) -> str:
    if recorded["outcome"] in ("timed out", "not run"):
        return recorded["outcome"]
    found = [r for r in recorded.get("reports", []) if not r.startswith(("Program hit", "Internal", "Target"))]
    return "found" if found else ""


def _verdicts_agree(expected: str, plain: dict[str, Any], emulated: dict[str, Any]) -> str:
    """Only where the GPU's result is defined: a sound kernel, or one that the GPU itself stops."""
    if plain["outcome"] == "not run":
        return "not run"
    if expected == "silent":
        agree = (
            plain["outcome"] == "ran" and not emulated["found"] and _same(_values(plain["y"]), _values(emulated["y"]))
        )
        return "yes, and the same values" if agree else "**no**"
    if plain["outcome"] in ("raised", "timed out", "died"):
        return "yes, both reject" if emulated["found"] else "**no**"
    return "undefined on a GPU"


def corpus() -> str:
    """Each kernel: what the GPU alone said, each tool of compute-sanitizer, and each mode of the emulator."""
    emulated = results("results/cpu/emulator_corpus.json", "python benchmarks/agreement/corpus_on_emulator.py")
    measured = results("results/h200/emulator_agreement.json", "python benchmarks/agreement/corpus.py")
    lines = [
        f"{gpu(measured['environment'])}.",
        "",
        f"| kernel | GPU alone | {' | '.join(TOOLS)} | emulator, fast | emulator, `--check` | verdicts agree |",
        "|" + "---|" * (len(TOOLS) + 5),
    ]
    totals = {"faulty": 0, "check": 0, "fast": 0, "alone": 0, "tools": 0, "false": 0}
    for file in corpus_sources.cases():
        name, expected = file.stem, corpus_sources.header(file, "Expected")
        on_gpu, here = measured["cases"].get(name), emulated["cases"].get(name)
        if not on_gpu or not here:
            lines.append(f"| `{name}` |" + " not measured yet |" * (len(TOOLS) + 4))
            continue
        reported = [_reported(on_gpu[tool]) for tool in TOOLS]
        agree = _verdicts_agree(expected, on_gpu["plain"], here["check"])
        modes = [here["fast"]["found"], here["check"]["found"]]
        lines.append(
            f"| `{name}` | {_alone(on_gpu['plain'])} | {' | '.join(reported)} | {' | '.join(modes)} | {agree} |"
        )
        if expected == "silent":
            totals["false"] += "found" in reported
            continue
        totals["faulty"] += 1
        totals["check"] += modes[1] == expected
        totals["fast"] += bool(modes[0])
        totals["alone"] += on_gpu["plain"]["outcome"] in ("raised", "timed out", "died")
        totals["tools"] += "found" in reported
    summary = (
        f"Of {totals['faulty']} faulty kernels the emulator names {totals['check']} with `--check` and "
        f"{totals['fast']} in fast mode; the GPU alone stops {totals['alone']}, and one or more of compute-sanitizer's "
        f"tools report {totals['tools']}. Of {len(emulated['cases']) - totals['faulty']} sound kernels, "
        f"compute-sanitizer reports {totals['false']} and the emulator "
        f"{sum(bool(c['check']['found']) for n, c in emulated['cases'].items() if n.startswith('silent'))}."
    )
    return "\n".join([*lines, "", summary]) + "\n"


# ------------------------------------------------------------------ verdicts


def _verdict(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not measured yet"
    return f"{entry['status']}, {entry['reason']}" if entry.get("reason") else entry["status"]


def _agreement(left: dict[str, Any] | None, right: dict[str, Any] | None) -> str:
    if left is None or right is None or "not run" in (left["status"], right["status"]):
        return ""
    if left["status"] != right["status"]:
        return "**no**"
    return "yes" if (left.get("reason") or "") == (right.get("reason") or "") else "yes, for another reason"


def verdicts() -> str:
    """Each submission: the verdict on a GPU and on the emulator."""
    command = "python benchmarks/agreement/verdicts.py --device"
    here = results("results/cpu/verdicts_emulator.json", f"{command} emulator")
    there = results("results/h200/verdicts.json", f"{command} cuda")
    lines = [
        f"{gpu(there['environment'])}; seed {there['seed']}.",
        "",
        "| submission | GPU | emulator | agree |",
        "|---|---|---|---|",
    ]
    for name in sorted(here["verdicts"].keys() | there["verdicts"].keys()):
        left, right = there["verdicts"].get(name), here["verdicts"].get(name)
        lines.append(f"| `{name}` | {_verdict(left)} | {_verdict(right)} | {_agreement(left, right)} |")
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ counters

# Column, the emulator's fields, Nsight Compute's metrics: the sums are compared.
COLUMNS = (
    (
        "bytes that threads ask for",
        ("global_read_bytes", "global_write_bytes"),
        ("smsp__sass_data_bytes_mem_global_op_ld", "smsp__sass_data_bytes_mem_global_op_st"),
    ),
    (
        "sectors",
        ("sectors",),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld", "l1tex__t_sectors_pipe_lsu_mem_global_op_st"),
    ),
    (
        "bank conflicts",
        ("bank_conflicts",),
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st",
        ),
    ),
)


def _sum(values: dict[str, float], names: tuple[str, ...]) -> float | None:
    present = [values[name] for name in names if name in values]
    return sum(present) if len(present) == len(names) else None


def _pair(emulated: float | None, measured: float | None) -> str:
    if emulated is None or measured is None:
        return "not counted"
    ratio = f" ({emulated / measured:.2f})" if measured else ""
    return f"{emulated:,.0f} / {measured:,.0f}{ratio}"


def counters() -> str:
    """Each kernel of the ladder: the emulator's count, Nsight Compute's, and their ratio."""
    command = "python benchmarks/agreement/counters.py --device"
    here = results("results/cpu/counters_emulator.json", f"{command} emulator")
    there = results("results/h200/counters.json", f"{command} cuda")
    lines = [
        f"{gpu(there['environment'])}; emulator / Nsight Compute (ratio).",
        "",
        f"| kernel | rows × columns | {' | '.join(name for name, *_ in COLUMNS)} | DRAM bytes, measured |",
        "|" + "---|" * (len(COLUMNS) + 3),
    ]
    measured = {(c["submission"], c["rows"], c["columns"]): c for c in there["calls"]}
    for call in here["calls"]:
        other = measured.get((call["submission"], call["rows"], call["columns"]), {})
        for kernel, counts in call.get("kernels", {}).items():
            found = other.get("kernels", {}).get(kernel, {})
            pairs = [_pair(_sum(counts, own), _sum(found, theirs)) for _, own, theirs in COLUMNS]
            dram = _sum(found, ("dram__bytes_read", "dram__bytes_write"))
            lines.append(
                f"| `{call['submission']}`: `{kernel}` | {call['rows']:,} × {call['columns']:,} | {' | '.join(pairs)} "
                f"| {'not counted' if dram is None else f'{dram:,.0f}'} |"
            )
    return "\n".join(lines) + "\n"


TABLES: dict[str, Callable[[], str]] = {"corpus": corpus, "verdicts": verdicts, "counters": counters}


def refresh(text: str) -> str:
    """The document with every table made anew."""

    def replace(match: re.Match[str]) -> str:
        try:
            table = TABLES[match["name"]]()
        except NotMeasured as reason:
            table = f"{reason}\n"
        return match[1] + table + match[3]

    return _BLOCK.sub(replace, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when a table is out of date")
    options = parser.parse_args()
    text = DOCUMENT.read_text()
    fresh = refresh(text)
    if options.check and fresh != text:
        sys.exit(f"{DOCUMENT.name} is out of date: run python benchmarks/agreement/tables.py.")
    if not options.check:
        DOCUMENT.write_text(fresh)


if __name__ == "__main__":
    main()
