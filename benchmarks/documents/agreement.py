"""Who finds what, the emulator or a GPU: tables of what benchmarks/agreement leaves in results/.

Each function takes the folder of a GPU's results, beside which lies `cpu` with the emulator's, and gives Markdown.
Raises NotMeasured where a file is missing.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from documents.age import KERNELS, older
from documents.measurements import NotMeasured, machine, measured

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def _both(folder: Path, gpu: str, cpu: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The emulator's results and the GPU's. Raises NotMeasured."""
    here = measured(folder.parent / "cpu" / f"{cpu}.json", cpu)
    return here, measured(folder / f"{gpu}.json", gpu)


def _machines(on_gpu: dict[str, Any], emulated: dict[str, Any]) -> str:
    return f"{machine(on_gpu['environment'])}; emulator: {machine(emulated['environment'])}"


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


def corpus(folder: Path) -> str:
    """Each kernel: what the GPU alone said, each tool of compute-sanitizer, and each mode of the emulator. Below the
    table the emulator's score over all of them, and who finds what of those that a GPU has run."""
    emulated, on_gpus = _both(folder, "emulator_agreement", "emulator_corpus")
    lines = [
        f"{_machines(on_gpus, emulated)}.",
        "",
        f"| kernel | GPU alone | {' | '.join(TOOLS)} | emulator, fast | emulator, `--check` | verdicts agree |",
        "|" + "---|" * (len(TOOLS) + 5),
    ]
    totals = dict.fromkeys(("faulty", "check", "fast", "alone", "tools", "sound", "false", "false_here"), 0)
    for name, here in emulated["cases"].items():
        expected, on_gpu = here["expected"], on_gpus["cases"].get(name)
        modes = [here["fast"]["found"], here["check"]["found"]]
        if not on_gpu:
            unknown = " not measured yet |" * (len(TOOLS) + 1)
            lines.append(f"| `{name}` |{unknown} {' | '.join(modes)} | not measured yet |")
            continue
        reported = [_reported(on_gpu[tool]) for tool in TOOLS]
        agree = _verdicts_agree(expected, on_gpu["plain"], here["check"])
        lines.append(
            f"| `{name}` | {_alone(on_gpu['plain'])} | {' | '.join(reported)} | {' | '.join(modes)} | {agree} |"
        )
        if expected == "silent":
            totals["sound"] += 1
            totals["false"] += "found" in reported
            totals["false_here"] += bool(modes[1])
            continue
        totals["faulty"] += 1
        totals["check"] += modes[1] == expected
        totals["fast"] += bool(modes[0])
        totals["alone"] += on_gpu["plain"]["outcome"] in ("raised", "timed out", "died")
        totals["tools"] += "found" in reported
    summary = (
        f"{_score(emulated['cases'].values())}\n\nOf {totals['faulty']} faulty kernels that a GPU has run "
        f"the emulator names {totals['check']} with `--check` and "
        f"{totals['fast']} in fast mode; the GPU alone stops {totals['alone']}, and one or more of compute-sanitizer's "
        f"tools report {totals['tools']}. Of {totals['sound']} sound kernels, "
        f"compute-sanitizer reports {totals['false']} and the emulator {totals['false_here']}."
    )
    return "\n".join([*lines, "", summary]) + "\n"


def _score(cases: Iterable[dict[str, Any]]) -> str:
    """How many of the corpus the emulator names with all detectors, misses, accuses falsely and cannot execute."""
    pairs = [(case["expected"], case["check"]["found"]) for case in cases]
    faulty = [found for expected, found in pairs if expected != "silent"]
    sound = [found for expected, found in pairs if expected == "silent"]
    named = sum(found == expected for expected, found in pairs if expected != "silent")
    missed = faulty.count("")
    unsupported = sum(found == "unsupported_by_emulator" for _, found in pairs)
    accused = sum(found not in ("", "unsupported_by_emulator") for found in sound)
    return (
        f"With `--check` the emulator names {named} of {len(faulty)} faulty kernels for what is wrong with them "
        f"and misses {missed}; it accuses {accused} of {len(sound)} sound ones, and cannot execute {unsupported}."
    )


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


def verdicts(folder: Path) -> str:
    """Each submission: the verdict on a GPU and on the emulator."""
    here, there = _both(folder, "verdicts", "verdicts_emulator")
    lines = [
        f"{_machines(there, here)}; seed {there['seed']}.",
        "",
        "| submission | GPU | emulator | agree |",
        "|---|---|---|---|",
    ]
    answers = []
    for name in sorted(here["verdicts"].keys() | there["verdicts"].keys()):
        left, right = there["verdicts"].get(name), here["verdicts"].get(name)
        answers.append(_agreement(left, right))
        lines.append(f"| `{name}` | {_verdict(left)} | {_verdict(right)} | {answers[-1]} |")
    compared = [answer for answer in answers if answer]
    agree = sum(answer.startswith("yes") for answer in compared)
    return "\n".join([*lines, "", f"{agree} of {len(compared)} verdicts agree."]) + "\n"


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


def counters(folder: Path) -> str:
    """Each kernel of the ladder: the emulator's count, Nsight Compute's, and their ratio."""
    here, there = _both(folder, "counters", "counters_emulator")
    lines = [
        f"{_machines(there, here)}; emulator / Nsight Compute (ratio).{older(there['environment'], KERNELS)}",
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


# ------------------------------------------------ forms of public submissions


def forms(folder: Path) -> str:
    """Each form of tests/fixtures/public_forms: the verdict that it must get, those that it got, and how much of the
    tolerance its largest error has. A GPU's columns are empty until it has judged them."""
    here = measured(folder.parent / "cpu" / "forms_emulator.json", "forms_emulator")
    there = _if_measured(folder / "forms.json")
    found = {"emulator": here["forms"], "GPU": there["forms"] if there else {}}
    lines = [
        f"{_machines(there, here) if there else 'Emulator: ' + machine(here['environment'])}; seed {here['seed']}.",
        "",
        f"| form | must be | {' | '.join(f'{device} | of the tolerance' for device in found)} |",
        "|" + "---|" * (2 + 2 * len(found)),
    ]
    entries = {name: entry for of_device in found.values() for name, entry in of_device.items()}
    groups = dict.fromkeys(entry["group"] for entry in entries.values())
    for group in groups:
        for name, entry in sorted(entries.items()):
            if entry["group"] == group:
                cells = [cell for of_device in found.values() for cell in _form(of_device.get(name))]
                lines.append(f"| `{name}`: {entry['what']} | {' or '.join(entry['wanted'])} | {' | '.join(cells)} |")
    scores = [
        f"{sum(entry['as_wanted'] for entry in of_device.values())} of {len(of_device)} as wanted on the {device}"
        for device, of_device in found.items()
        if of_device
    ]
    return "\n".join([*lines, "", f"{'; '.join(scores)}."]) + "\n"


def _if_measured(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None


def _form(entry: dict[str, Any] | None) -> tuple[str, str]:
    """The verdict, and the largest error in tolerances."""
    if entry is None:
        return "not measured yet", ""
    share = entry.get("share_of_tolerance")
    shown = "" if share is None else f"{share:.2f}" if share < 10 else f"{share:,.0f}"
    return entry["verdict"] if entry["as_wanted"] else f"**{entry['verdict']}**", shown


TABLES: dict[str, Callable[[Path], str]] = {
    "corpus": corpus,
    "verdicts": verdicts,
    "counters": counters,
    "forms": forms,
}


def table(name: str, folder: Path) -> str:
    """The table of that name, or how to measure what is missing."""
    try:
        return TABLES[name](folder)
    except NotMeasured as reason:
        return f"{reason}\n"
