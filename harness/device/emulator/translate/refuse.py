"""Constructs that the emulator does not execute, refused by name before anything is compiled."""

from __future__ import annotations

import re
from pathlib import Path

from harness.device.emulator import paths
from harness.device.emulator.translate.errors import CannotRead
from harness.device.emulator.translate.lexer import Source

_HEADERS = re.compile(
    r"#\s*include\s*[<\"](mma\.h|cute/|cutlass/|thrust/|cublas(?!_v2\.h)|cudnn|curand_mtgp32|cufft|cusparse|texture_|surface_|"
    r"cooperative_groups/details)[^>\"]*[>\"]"
)
# torch's and CUB's headers that need CUDA's libraries or compiler, unless the emulator has one of the same name.
_REPLACED = re.compile(
    r"#\s*include\s*[<\"](?P<name>(c10/cuda|ATen/cuda|ATen/native/cuda|torch/csrc/cuda|cub)/[^>\"]*)[>\"]"
)
_OWN_HEADERS = Path(__file__).resolve().parent.parent / "include"
_CURAND = re.compile(r"#\s*include\s*[<\"]curand")
_HARMLESS = {"ATen/cuda/Atomic.cuh", "ATen/cuda/DeviceUtils.cuh", "ATen/cuda/NumericLimits.cuh"}  # torch's own will do
_NAMES = {
    "curandStateMtgp32": "cuRAND's MTGP32",
    "curandStateMtgp32_t": "cuRAND's MTGP32",
    "wmma": "tensor-core fragments (wmma)",
    "tex1D": "textures",
    "tex1Dfetch": "textures",
    "tex2D": "textures",
    "tex3D": "textures",
    "cudaTextureObject_t": "textures",
    "cudaCreateTextureObject": "textures",
    "cudaGraphCreate": "CUDA graphs that are built node by node",
    "cuTensorMapEncodeTiled": "tensor maps (TMA)",
    "CUtensorMap": "tensor maps (TMA)",
}


def check(source: Source) -> None:
    """Raise CannotRead at the first construct that has no emulation."""
    for i, token in enumerate(source.tokens):
        if token.text in _NAMES and token.kind == "name":
            raise CannotRead(i, _NAMES[token.text])
        if token.text == "#" and source.at(i + 1) == "include":
            end = source.text.find("\n", token.start)
            directive = source.text[token.start : end if end >= 0 else len(source.text)]
            replaced = _REPLACED.match(directive)
            missing = replaced and not (_OWN_HEADERS / replaced["name"]).exists() and replaced["name"] not in _HARMLESS
            if _HEADERS.match(directive) or missing:
                raise CannotRead(i, f"the header {directive.split('include', 1)[1].strip()}")
            if _CURAND.match(directive) and not paths.has_curand():
                raise CannotRead(i, "cuRAND, whose headers are not here; pip install nvidia-curand brings them")
