"""Functions of CUDA that an extension calls and no library of the emulator has: the loader would refuse the module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.build import symbols
from harness.build.extension import Unsupported
from harness.protocol.extension import SourceText

_OF_CUDA = re.compile(r"(?:cuda|cu|curand|cublas|cudnn|cufft|cusparse|cusolver|nccl|nvrtc|nvml)_?[A-Z]\w*")


def _place(name: str, pieces: Iterable[SourceText]) -> str:
    """Where the name stands first in the submission's text."""
    for piece in pieces:
        if found := re.search(rf"\b{name}\b", piece.text):
            line = piece.text.count("\n", 0, found.start()) + max(piece.line, 1)
            return f"{piece.file or 'the source'}:{line}"
    return "the source"


def check(module: Path, libraries: Sequence[Path], pieces: Iterable[SourceText]) -> None:
    """Raise Unsupported for the first function of CUDA that nobody has."""
    wanted = {name for name in symbols.undefined(module) if _OF_CUDA.fullmatch(name)}
    if missing := sorted(wanted.difference(*map(symbols.defined, libraries)) if wanted else []):
        raise Unsupported(f"{_place(missing[0], pieces)}: the emulator does not support {missing[0]}.")
