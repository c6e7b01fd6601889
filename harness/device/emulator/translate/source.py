"""All passes over one source text."""

from __future__ import annotations

from harness.build.extension import SourceText, Unsupported
from harness.device.emulator.translate import assembly, launches, refuse, shared
from harness.device.emulator.translate import kernels as kernel_pass
from harness.device.emulator.translate.kernels import Kernels
from harness.device.emulator.translate.lexer import Edits, Source


def find_kernels(texts: list[str]) -> Kernels:
    """The kernels that all texts of a submission declare together."""
    found = Kernels({})
    for text in texts:
        kernel_pass.collect(Source(text), found)
    return found


def translate(piece: SourceText, kernels: Kernels) -> SourceText:
    """The piece in C++ for the host compiler, with the same lines. Raises Unsupported."""
    source = Source(piece.text)
    edits = Edits(source)
    try:
        refuse.check(source)
        kernel_pass.mark_returns(source, edits)
        kernel_pass.name_dimensions(source, edits)
        assembly.rewrite(source, edits)
        launches.rewrite(source, edits, kernels)
        shared.rewrite(source, edits, max(piece.line, 1))
    except launches.CannotRead as error:
        line = source.line(error.index) + max(piece.line - 1, 0)
        place = f"{piece.file}:{line}" if piece.line else f"line {line} of the source"
        raise Unsupported(f"{place}: the emulator does not support {error}.") from None
    return SourceText(edits.apply(), piece.file, piece.line)
