"""The libraries of the emulator: the runtime that executes kernels, the device that torch sees, and what gives
extensions' functions to Python."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.device.emulator import building, paths, standins

RUNTIME = "libemu_runtime.so"
DEVICE = "libemu_device.so"
PYTHON = "libemu_python.so"
_FLAGS = [
    "-std=c++20",
    "-O2",
    "-g1",
    "-fPIC",
    "-shared",
    "-w",
    "-fno-strict-aliasing",
    "-fno-semantic-interposition",
]


def _sources() -> list[Path]:
    return [f for f in (paths.HERE / "csrc").rglob("*") if f.is_file()] + list((paths.HERE / "include/emu").glob("*.h"))


def fingerprint() -> str:
    """Digest of everything that decides the libraries."""
    sources = [*_sources(), paths.HERE / "standins.py"]
    parts = [building.digest_of_files(sources), paths.compiler_version(), *paths.torch_version(), *_FLAGS]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _make(folder: Path) -> None:
    torch_libraries = paths.torch_folder() / "lib"
    runtime = sorted(str(f) for f in (paths.HERE / "csrc/runtime").glob("*.cpp"))
    device = folder / "device.cpp"  # one unit of all: torch's headers take most of the time of each
    device.write_text("".join(f'#include "{f}"\n' for f in sorted((paths.HERE / "csrc/device").glob("*.cpp"))))
    python = sorted(str(f) for f in (paths.HERE / "csrc/python").glob("*.cpp"))
    if paths.torch_version()[1]:
        standins.make(folder, _FLAGS)
    common = [paths.compiler(), *_FLAGS, *paths.include_flags(shims=False)]
    building.run(
        [*common, "-Wl,-Bsymbolic", f"-Wl,-soname,{RUNTIME}", *runtime, "-o", RUNTIME, "-lpthread", "-ldl"],
        folder,
    )
    building.run(
        [*common, "-O1", f"-Wl,-soname,{DEVICE}", device.name, "-o", DEVICE, "-L.", f"-l:{RUNTIME}",
         f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", "-ltorch", f"-Wl,-rpath,{torch_libraries}"],
        folder,
    )  # fmt: skip
    building.run(
        [*common, "-O1", f"-Wl,-soname,{PYTHON}", *python, "-o", PYTHON, "-L.", f"-l:{RUNTIME}",
         f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python",
         f"-Wl,-rpath,{torch_libraries}"],
        folder,
    )  # fmt: skip


def place(cache: Path) -> Path:
    """Where the libraries lie, or will."""
    return cache / f"emulator-{fingerprint()}"


def build(cache: Path) -> Path:
    """The folder with the libraries, built if it is not there."""
    return building.once(place(cache), _make)
