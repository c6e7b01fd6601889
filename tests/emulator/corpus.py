"""All kernels of faults/ in one extension, each called once: what the emulator found in each.

A case is a file with a function `run(x, y)`: x holds 0, 1, ..., 1023 and y 1024 zeros, both on the device.
"""

from __future__ import annotations

import re
from pathlib import Path

from torch.utils.cpp_extension import load_inline

from harness.build.extension import SourceText
from harness.device import emulator

FAULTS = Path(__file__).parent / "faults"
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)


def sources() -> tuple[list[SourceText], list[str]]:
    """Each case in a namespace of its own; their includes come first, and leave an empty line."""
    includes, pieces, names = set(), [], []
    for file in sorted(FAULTS.glob("*.cu")):
        text = file.read_text()
        includes |= set(INCLUDE.findall(text))
        body = SourceText(INCLUDE.sub("", text), str(file), 1)
        pieces += [SourceText(f"namespace {file.stem} {{"), body, SourceText("}")]
        names.append(file.stem)
    exported = "".join(f"void {n}_run(torch::Tensor x, torch::Tensor y) {{ {n}::run(x, y); }}\n" for n in names)
    return [SourceText("\n".join(sorted(includes))), *pieces, SourceText(exported)], names


PIECES, NAMES = sources()
extension = load_inline(
    name="faults",
    cpp_sources=[SourceText("".join(f"void {n}_run(torch::Tensor x, torch::Tensor y);\n" for n in NAMES))],
    cuda_sources=PIECES,
    functions=[f"{n}_run" for n in NAMES],
)


def run(torch):
    """For each case the message it raised and what was found: kind, line, file."""
    seen = {}
    for name in NAMES:
        x = torch.arange(1024, dtype=torch.float32).cuda()
        y = torch.zeros(1024, device="cuda")
        message = ""
        try:
            getattr(extension, f"{name}_run")(x, y)
        except RuntimeError as error:
            message = str(error)
        found = [[f.kind, f.line, f.file, f.kernel, f.message] for f in emulator.take_findings()]
        seen[name] = {"message": message, "found": found}
    return seen
