"""The libraries of the emulator: the runtime that executes kernels, the device that torch sees, and what gives
extensions' functions to Python."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.device.emulator import building, paths, standins

RUNTIME = "libemu_runtime.so"
DEVICE = "libemu_device.so"
PYTHON = "libemu_python.so"

# A file beside them, where the compiler can link with gold.
_WITH_GOLD = "links_with_gold"
_GOLD = "-fuse-ld=gold"

_FLAGS = [
    *building.NO_COLLECTION,
    "-std=c++20",
    "-O2",
    "-g1",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",
    "-fno-semantic-interposition",
]


# Of the runtime's files, those that share no name of their own are one unit: the headers of each take as long as its
# code. What switches fibers stays apart, since nothing of it may be inlined.
_ALONE = frozenset({"fibers", "findings", "heap", "host_side", "memory", "signals", "streams", "variables"})


def _sources() -> list[Path]:
    return [f for f in (paths.HERE / "csrc").rglob("*") if f.is_file()] + list((paths.HERE / "include/emu").glob("*.h"))


def fingerprint() -> str:
    """Digest of everything that decides the libraries."""
    sources = [*_sources(), paths.HERE / "standins.py"]
    parts = [
        building.digest_of_files(sources),
        paths.compiler_version(),
        *paths.which_torch(),
        *_FLAGS,
        *sorted(_ALONE),
        _WITH_GOLD * paths.has_gold(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _make(folder: Path) -> None:
    if paths.torch_version()[1]:
        standins.make(folder, [*_FLAGS, "-shared"])
    files = sorted((paths.HERE / "csrc/runtime").glob("*.cpp"))
    together = _unit("runtime", [file for file in files if file.stem not in _ALONE], folder)
    runtime = [together, *(file for file in files if file.stem in _ALONE)]
    device = _unit("device", sorted((paths.HERE / "csrc/device").glob("*.cpp")), folder)
    python = sorted((paths.HERE / "csrc/python").glob("*.cpp"))
    # Those that take longest first, on all cores: the others fill the rest.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda source: _compile(source, folder), [device, *python, *runtime]))
    torch_libraries = paths.torch_folder() / "lib"
    torch = [f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", "-ltorch", f"-Wl,-rpath,{torch_libraries}"]
    _link(RUNTIME, runtime, ["-Wl,-Bsymbolic", "-lpthread", "-ldl"], folder)
    _link(DEVICE, [device], ["-L.", f"-l:{RUNTIME}", *torch], folder)
    _link_with_gold(PYTHON, python, ["-L.", f"-l:{RUNTIME}", *torch, "-ltorch_python"], folder)
    for source in (*runtime, device, *python):
        _object(source, folder).unlink()


def _unit(name: str, files: Sequence[Path], folder: Path) -> Path:
    """A source in `folder` that has all of `files`."""
    unit = folder / f"{name}.cpp"
    unit.write_text("".join(f'#include "{file}"\n' for file in files))
    return unit


def _compile(source: Path, folder: Path) -> None:
    """What executes kernels is optimised; the rest takes longer to compile than all that its speed would save."""
    level = [] if "runtime" in (source.parent.name, source.stem) else ["-O1"]
    flags = [*_FLAGS, *level, *paths.include_flags(shims=False)]
    building.run([paths.compiler(), *flags, "-c", str(source), "-o", _object(source, folder).name], folder)


def _object(source: Path, folder: Path) -> Path:
    return folder / f"{source.stem}.o"


def _link(library: str, sources: Sequence[Path], flags: list[str], folder: Path) -> None:
    objects = [_object(source, folder).name for source in sources]
    command = [paths.compiler(), "-shared", f"-Wl,-soname,{library}", *objects, "-o", library, *flags]
    building.run(command, folder)


def _link_with_gold(library: str, sources: Sequence[Path], flags: list[str], folder: Path) -> None:
    """Link with gold, and leave a file that says so, or with the compiler's own linker where gold cannot: a compiler
    may name a library that is not there, and only the other goes on to the next folder."""
    try:
        if paths.has_gold():
            _link(library, sources, [*flags, _GOLD], folder)
            (folder / _WITH_GOLD).touch()
            return
    except building.CompilerError:
        pass
    _link(library, sources, flags, folder)


def linker_flags(built: Path) -> list[str]:
    """What has the compiler link with gold, where it is installed and can link `built`: with torch's libraries it takes
    a third of the time."""
    return [_GOLD] if paths.has_gold() and (built / _WITH_GOLD).exists() else []


def place(cache: Path) -> Path:
    """Where the libraries lie, or will."""
    return cache / f"emulator-{fingerprint()}"


def build(cache: Path) -> Path:
    """The folder with the libraries, built if it is not there."""
    return building.once(place(cache), _make)
