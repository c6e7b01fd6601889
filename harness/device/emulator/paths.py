"""Where the compiler, torch and CUDA's headers are. Nothing here imports torch."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

from harness.errors import KernelgateError

HERE = Path(__file__).resolve().parent
CURAND = "curand_kernel.h"


class Missing(KernelgateError, RuntimeError):
    """Something the emulator needs is not installed; the text says what to install."""


@cache
def compiler() -> str:
    """The C++ compiler: $CXX when it is set, else g++."""
    name = os.environ.get("CXX", "g++")
    found = shutil.which(name)
    if not found:
        raise Missing(f"The emulator compiles kernels with {name}, which is not installed: install g++ 11 or newer.")
    return found


@cache
def compiler_version() -> str:
    """The compiler's own name for itself."""
    answer = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()[0]


def has_gold() -> bool:
    """Whether binutils' faster linker is installed."""
    return shutil.which("ld.gold") is not None


@cache
def torch_folder() -> Path:
    """The installed torch package."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise Missing("torch is not installed in this Python: pip install torch.")
    return Path(spec.origin).parent


@cache
def torch_version() -> tuple[str, str]:
    """torch's version and the CUDA version it was built with, which is empty for a CPU build."""
    text = (torch_folder() / "version.py").read_text()
    version = re.search(r"__version__ = '([^']*)'", text)
    cuda = re.search(r"^cuda[^=]*= '([^']*)'", text, re.MULTILINE)
    return (version[1] if version else "unknown", cuda[1] if cuda else "")


def which_torch() -> tuple[str, ...]:
    """torch's version, that of its CUDA, and its folder. What is built loads the libraries of that folder: in another
    environment they would come beside its own."""
    return (*torch_version(), str(torch_folder()))


def _from_toolkit() -> list[Path]:
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        homes.append(str(Path(nvcc).resolve().parent.parent))
    for home in homes:
        include = Path(home) / "include"
        if home and (include / "cuda_runtime.h").exists() and (include / "cuda_fp16.h").exists():
            return [include, include / "cccl"]
    return []


def _package_folders() -> list[Path]:
    """Where PyPI's nvidia packages have headers: under nvidia/cu13 since CUDA 13, one folder a package before."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return [folder for root in roots for folder in sorted(root.glob("*/include"))]


def _from_packages() -> list[Path]:
    found: list[Path] = []
    for include in _package_folders():
        if any((include / name).exists() for name in ("cuda_runtime.h", "crt", "cccl", "nv/target")):
            found += [include, include / "cccl"]
    return [folder for folder in found if folder.exists()]


def _with_curand(folders: list[Path]) -> list[Path]:
    """Toolkits may come without cuRAND, which is a package of its own. Behind all others: what stands beside it may be
    of another version."""
    if any((folder / CURAND).exists() for folder in folders):
        return folders
    return [*folders, *(folder for folder in _package_folders() if (folder / CURAND).exists())][: len(folders) + 1]


@cache
def cuda_includes() -> tuple[Path, ...]:
    """Folders of CUDA's headers: a toolkit's if there is one, else those of PyPI's packages."""
    found = _from_toolkit() or _from_packages()
    if not any((folder / "cuda_runtime.h").exists() for folder in found):
        raise Missing(
            "The emulator needs CUDA's headers and found neither a toolkit nor PyPI's packages: "
            "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl."
        )
    return tuple(_with_curand(found))


def has_curand() -> bool:
    """Whether the headers of cuRAND are there."""
    return any((folder / CURAND).exists() for folder in cuda_includes())


def include_flags(shims: bool) -> list[str]:
    """Include folders in their order: our shims shadow torch's headers, and torch's come before CUDA's."""
    torch = torch_folder() / "include"
    system = [
        torch,
        torch / "torch/csrc/api/include",
        Path(sysconfig.get_paths()["include"]),
        *cuda_includes(),
    ]
    flags = ["-I", str(HERE / "include")] if shims else []
    for folder in system:
        flags += ["-isystem", str(folder)]
    return flags
