"""Compiles `load_inline` extensions for the CPU."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.build.extension import BuildFailed, Extension, KernelResources, Unsupported
from harness.device.emulator import building, libraries, paths, translate

_COMMON = ["-std=c++20", "-pipe", "-g1", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-gnu-unique"]
# As torch calls nvcc: submissions that want operators of half undefine them again.
_COMMON += [
    f"-D__CUDA_NO_{what}__"
    for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
]
# `cpp_sources` and the bindings have no kernels in them: little is gained by optimising, and it takes twice as long.
_HOST = ["-O1"]
_DEVICE = ["-O2"]
# Kernels with equal bodies must not be merged: their lines differ.
_DEVICE += ["-fno-ipa-icf"]
# Misaligned vectors and overrun arrays are common mistakes, and cheap to see in either mode.
_DEVICE += ["-fsanitize=bounds,alignment"]
# The accesses of checked kernels call into the runtime; see csrc/runtime/hooks.cpp.
_CHECKED = [
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
    "-fno-omit-frame-pointer",
    "-fno-tree-sra",  # a float4 copied as a whole is one access, as it is on a GPU
]
# What load_inline puts in front of sources: pybind11 before `cpp_sources` and the bindings only. Its internals are
# compiled into every unit that sees them, which with all detectors takes four times as long as torch's headers.
_CUDA = "#include <cuda.h>\n#include <cuda_runtime.h>\n#include <emu/emu.h>\n"
_PRELUDES = {
    "main": f"#include <emu/torch_types.h>\n#include <torch/extension.h>\n{_CUDA}#include <emu/checked.h>\n",
    "cuda": f"#define EMU_WITHOUT_PYTHON\n#include <emu/torch_types.h>\n#include <torch/types.h>\n{_CUDA}",
}
# A CUDA source that includes <torch/extension.h> mostly wants its tensors; one that says any of this wants Python.
_PYTHON = re.compile(r"\b(py::|pybind11|PYBIND11_|Py[A-Z_]|THP[A-Z])")
_ERROR = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$")
_INSTANTIATED = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):\d+:\s+(?:required from|in '?constexpr)")
_UNSUPPORTED = re.compile(r"unsupported_by_emulator: ([^\"\n]*?)[\"'’]*$", re.MULTILINE)


def _kept_flags(flags: tuple[str, ...]) -> list[str]:
    """Definitions and include folders; what chooses an architecture or optimisation means nothing here."""
    kept, take_next = [], False
    for flag in flags:
        if take_next:
            kept.append(flag)
        take_next = flag in ("-D", "-U", "-I", "-include")
        if take_next or re.match(r"-[DUI]\S", flag):
            kept.append(flag)
    return kept


class EmulatorToolchain:
    """The `Toolchain` of the emulated device; `check` builds with all detectors."""

    def __init__(self, cache: Path, check: bool = False):
        self._cache = Path(cache).resolve()
        self._check = check
        self._device_flags = [*_DEVICE, *(_CHECKED if check else [])]
        self._fingerprint = ""

    def fingerprint(self) -> str:
        """Everything beside the sources that decides the result."""
        if self._fingerprint:
            return self._fingerprint
        own = [*(paths.HERE / "translate").glob("*.py"), paths.HERE / "toolchain.py"]
        parts = {
            "headers": self._headers(),
            "translator": building.digest_of_files(own),
            "flags": [*_COMMON, *_HOST, *self._device_flags],
            "check": self._check,
        }
        self._fingerprint = "emulator " + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
        return self._fingerprint

    @staticmethod
    def _headers() -> str:
        """What a translated source is compiled against. The libraries' own sources change no extension."""
        shims = (file for file in (paths.HERE / "include").rglob("*") if file.is_file())
        parts = [building.digest_of_files(shims), paths.compiler_version(), *paths.torch_version()]
        return "\0".join([*parts, *(str(folder) for folder in paths.cuda_includes())])

    def compile(self, extension: Extension, module_name: str, folder: Path) -> tuple[Path, tuple[KernelResources, ...]]:
        """Build `module_name` in `folder`. Raises BuildFailed or Unsupported."""
        texts = [piece.text for piece in (*extension.cpp_sources, *extension.cuda_sources)]
        kernels = translate.find_kernels(texts)
        units = {"main": ([translate.translate(p, kernels) for p in extension.cpp_sources], extension.extra_cflags)}
        if extension.cuda_sources:
            pieces = [translate.translate(p, kernels) for p in extension.cuda_sources]
            units["cuda"] = (pieces, extension.extra_cuda_cflags)
        binding = _binding(extension)
        include = [word for path in extension.extra_include_paths for word in ("-I", path)]
        commands = []
        for name, (pieces, flags) in units.items():
            source = folder / f"{name}.cpp"
            body = "\n".join(piece.located for piece in pieces)
            if name == "main":
                body += f'\n#line 1 "bindings of {extension.name}"\n{binding}'
            elif _PYTHON.search(body):
                body = f"#undef EMU_WITHOUT_PYTHON\n{body}"
            source.write_text(body)
            extra = self._device_flags if name == "cuda" else _HOST
            undefined = [flag for flag in flags if flag.startswith("-U__CUDA_NO_")]
            prelude = _plain_prelude(folder, name) if undefined else self._prelude(name)
            commands.append([
                paths.compiler(), *_COMMON, *extra, *_kept_flags(flags), *include,
                f"-DTORCH_EXTENSION_NAME={module_name}",
                "-include", str(prelude), *paths.include_flags(shims=True),
                "-c", source.name, "-o", f"{name}.o",
            ])  # fmt: skip
        files = {piece.file for piece in (*extension.cpp_sources, *extension.cuda_sources) if piece.file}
        try:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda command: building.run(command, folder), commands))
            return self._link(module_name, folder, [f"{name}.o" for name in units], extension), ()
        except building.CompilerError as error:
            raise _explained(error.log, files) from None

    def _link(self, module_name: str, folder: Path, objects: list[str], extension: Extension) -> Path:
        torch_libraries = paths.torch_folder() / "lib"
        built = libraries.build(self._cache)
        result = folder / f"{module_name}.so"
        building.run(
            [paths.compiler(), "-shared", *objects, "-o", result.name, "-Wl,--wrap=__assert_fail",
             f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python",
             f"-L{built}", f"-l:{libraries.RUNTIME}", f"-l:{libraries.DEVICE}",
             f"-Wl,-rpath,{torch_libraries}:{built}"],
            folder,
        )  # fmt: skip
        return result

    def prepare(self) -> None:
        """Compile the preludes that `compile` will use."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._prelude, _PRELUDES))

    def _prelude(self, unit: str) -> Path:
        """The header that `unit` begins with, precompiled once: torch's headers take most of a build."""
        extra = self._device_flags if unit == "cuda" else _HOST
        parts = [self._headers(), *_COMMON, *extra, _PRELUDES[unit]]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

        def make(folder: Path) -> None:
            header = folder / "prelude.h"
            header.write_text(_PRELUDES[unit])
            flags = [*_COMMON, *extra, *paths.include_flags(shims=True)]
            building.run([paths.compiler(), *flags, "-x", "c++-header", header.name, "-o", "prelude.h.gch"], folder)

        return building.once(self._cache / f"prelude-{key}", make) / "prelude.h"


def _plain_prelude(folder: Path, unit: str) -> Path:
    """The header for a unit that undefines what the compiled ones were made with. It is not compiled: a worker cannot
    put it where others find it."""
    header = folder / f"prelude_{unit}.h"
    header.write_text(_PRELUDES[unit])
    return header


def _binding(extension: Extension) -> str:
    if not extension.functions:
        return ""
    lines = [
        f"m.def({json.dumps(name)}, ::emu::checked(&{name}), {json.dumps(doc)});" for name, doc in extension.functions
    ]
    return "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n" + "\n".join(lines) + "\n}\n"


def _explained(log: str, files: set[str]) -> Exception:
    """The compiler's errors in short, each at the submission's own line where there is one."""
    unsupported = _UNSUPPORTED.search(log)
    errors, place = [], ""
    for text in log.splitlines():
        outer = _INSTANTIATED.match(text)
        if outer and outer["file"] in files:
            place = f"{outer['file']}:{outer['line']}"
        match = _ERROR.match(text)
        if not match:
            if "undefined reference" in text or "ld returned" in text:
                errors.append(text.strip())
            continue
        if match["file"] in files:
            place = f"{match['file']}:{match['line']}"
        if unsupported and "unsupported_by_emulator" in match["text"]:
            return Unsupported(f"{place or 'the source'}: the emulator does not support {unsupported[1].strip()}.")
        errors.append(f"{place or match['file'] + ':' + match['line']}: {match['text']}")
        place = ""
    if not errors:
        errors = log.strip().splitlines()[-5:]
    more = f"\n(and {len(errors) - 5} more errors)" if len(errors) > 5 else ""
    return BuildFailed("\n".join(errors[:5]) + more)
