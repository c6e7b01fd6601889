"""All passes over one source text."""

from __future__ import annotations

from collections.abc import Sequence

from harness.build.extension import BuildFailed, Unsupported
from harness.device.emulator.translate import (
    assembly,
    dimensions,
    file_scope,
    launches,
    local_arrays,
    memory,
    refuse,
    shared,
    sides,
    variables,
)
from harness.device.emulator.translate import kernels as kernel_pass
from harness.device.emulator.translate.errors import CannotRead, NvccRefuses
from harness.device.emulator.translate.kernels import Kernels
from harness.device.emulator.translate.lexer import Edits, Source
from harness.protocol.extension import SourceText


def find_kernels(texts: list[str]) -> Kernels:
    """The kernels that all texts of a submission declare together."""
    found = Kernels({})
    for text in texts:
        kernel_pass.collect(Source(text), found)
    return found


def _place(source: Source, piece: SourceText, token: int) -> str:
    line = source.line(token) + max(piece.line - 1, 0)
    return f"{piece.file}:{line}" if piece.line else f"line {line} of the source"


def translate(piece: SourceText, kernels: Kernels, *, is_cuda: bool = True, flags: Sequence[str] = ()) -> SourceText:
    """The piece in C++ for the host compiler, with the same lines; nvcc would compile it with
    `flags` if it `is_cuda`. Raises
    Unsupported or BuildFailed."""
    source = Source(piece.text)
    try:
        if not is_cuda:
            launches.refuse(source)
        source = Source(file_scope.rewrite(piece.text))
        edits = Edits(source)
        refuse.check(source)
        sides.check(source, flags)
        kernel_pass.refuse_references(source)
        kernel_pass.mark_bodies(source, edits)
        local_arrays.refuse(source, edits)
        dimensions.rewrite(source, edits)
        assembly.rewrite(source, edits)
        launches.rewrite(source, edits, kernels)
        memory.rewrite(source, edits)
        variables.rewrite(source, edits)
        shared.rewrite(source, edits)
    except CannotRead as error:
        raise Unsupported(f"{_place(source, piece, error.index)}: the emulator does not support {error}.") from None
    except NvccRefuses as error:
        raise BuildFailed(f"{_place(source, piece, error.index)}: {error}") from None
    return SourceText(edits.apply(), piece.file, piece.line)
