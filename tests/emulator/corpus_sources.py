"""The kernels of faults/ as one source: for the emulator's toolchain and for nvcc."""

from __future__ import annotations

import re
from pathlib import Path

from harness.protocol.extension import SourceText

FAULTS = Path(__file__).parent / "faults"
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)


def header(file: Path, word: str) -> str:
    """What a case says about itself, as `// Expected: data_race`; nothing when it says nothing."""
    match = re.search(rf"^// {word}: (\S+)$", file.read_text(), re.MULTILINE)
    return match[1] if match else ""


def cases() -> list[Path]:
    """All cases, each a file with a function `run(x, y)`: x holds 0, 1, ..., 1023 and y 1024 zeros on the device."""
    return sorted(FAULTS.glob("*.cu"))


def declarations() -> str:
    """C++ declarations of what `sources` exports."""
    return "".join(f"void {file.stem}_run(torch::Tensor x, torch::Tensor y);\n" for file in cases())


def exported() -> list[str]:
    """Names of the exported functions, one a case."""
    return [f"{file.stem}_run" for file in cases()]


def sources() -> list[SourceText]:
    """Each case in a namespace of its own; their includes come first, and leave an empty line."""
    includes, pieces = set(), []
    for file in cases():
        text = file.read_text()
        includes |= set(INCLUDE.findall(text))
        body = SourceText(INCLUDE.sub("", text), str(file), 1)
        pieces += [SourceText(f"namespace {file.stem} {{"), body, SourceText("}")]
    calls = "".join(
        f"void {file.stem}_run(torch::Tensor x, torch::Tensor y) {{ {file.stem}::run(x, y); }}\n" for file in cases()
    )
    return [SourceText("\n".join(sorted(includes))), *pieces, SourceText(calls)]
