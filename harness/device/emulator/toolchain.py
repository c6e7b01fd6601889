"""Compiles `load_inline` extensions for the CPU."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.build.lean import PYTHON
from harness.device.emulator import (
    binding,
    building,
    explaining,
    lean_errors,
    libraries,
    module_variables,
    paths,
    preludes,
    symbols,
    translate,
)
from harness.protocol.extension import Extension, SourceText
from harness.records import KernelResources

# In DWARF 5 a unit's first file has two numbers, and addr2line of binutils 2.40 takes the other.
_COMMON = [
    *building.NO_COLLECTION,
    "-gdwarf-4",
    "-std=c++20",
    "-pipe",
    "-g1",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-gnu-unique",
]
# As torch calls nvcc: submissions that want operators of half undefine them again.
_COMMON += [
    f"-D__CUDA_NO_{what}__"
    for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
]
# `cpp_sources` and the bindings have no kernels in them: little is gained by optimising, and it takes twice as long.
_HOST = ["-O1"]
# What a kernel's threads do goes through the runtime, which takes most of the time: the rest of -O2 takes as long again
# to compile and saves nothing. A value that is already there is not read again, which counts of accesses would show.
_DEVICE = ["-O1", "-ftree-pre"]
# Kernels with equal bodies must not be merged: their lines differ.
_DEVICE += ["-fno-ipa-icf"]
# A GPU leaves in a register what was there, which is seldom the 0 that the compiler would take.
_DEVICE += ["-ftrivial-auto-var-init=pattern"]
# Units with kernels do without -w, which would hide what local_arrays.py makes an error. Of the warnings that come
# instead nobody reads any, but narrowing would be an error.
_DEVICE += ["-Wno-narrowing"]
# Misaligned vectors and overrun arrays are common mistakes, and seen in either mode for a fifth of the compiler's time.
_DEVICE += ["-fsanitize=bounds,alignment"]
# Without detectors nobody sees which accesses are left: the compiler does less, in five sixths of its time, and kernels
# are as fast. Preludes that were compiled with -O1 do for it.
_QUICK = ["-Og"]
# The accesses of checked kernels call into the runtime; see csrc/runtime/hooks.cpp.
_CHECKED = [
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
    "-fno-omit-frame-pointer",
    "-fno-tree-sra",  # a float4 copied as a whole is one access, as it is on a GPU
    "-U__SANITIZE_THREAD__",  # of all headers only shared_ptr's ask: so both modes have one prelude (_prelude_flags)
]
# What a kernel must not have from the host's library: hooks.cpp and heap.cpp.
_WRAPPED = ("__assert_fail", "malloc", "free", "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm")
# What of this folder, beside translate/, decides how a source is compiled.
_OWN = ("toolchain", "binding", "preludes", "lean_errors", "module_variables", "symbols")


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


def _bindings_of(extension: Extension) -> str:
    """What a compiler calls the file of what binds its functions."""
    return f"bindings of {extension.name}"


def _is_of_binding(log: str, extension: Extension) -> bool:
    """Whether the first error is in what binds the functions, or in their declarations, which say plain types only
    where there is such a binding: both are the same to all headers."""
    return explaining.is_of(log, extension.cpp_sources, _bindings_of(extension))


def _may_be_of_binding(log: str, extension: Extension) -> bool:
    """Whether a unit that binds its functions may fail where torch's units do not: in the binding, in a header's
    template that it uses, or in linking."""
    if explaining.is_of(log, extension.cuda_sources):
        return False
    return _is_of_binding(log, extension) or _bindings_of(extension) in log or not explaining.has_errors(log)


@dataclass(frozen=True)
class _Unit:
    """A source that is compiled by itself: `main` as torch compiles `cpp_sources`, or `cuda`. Its `preludes` are tried
    in turn."""

    name: str
    pieces: Sequence[SourceText]
    flags: tuple[str, ...]
    preludes: Sequence[str]
    binding: str = ""


class EmulatorToolchain:
    """The `Toolchain` of the emulated device; `check` builds with all detectors."""

    def __init__(self, cache: Path, check: bool = False):
        self._cache = Path(cache).resolve()
        self._check = check
        self._device_flags = [*_DEVICE, *(_CHECKED if check else _QUICK)]
        self._fingerprint = ""

    def fingerprint(self) -> str:
        """Everything beside the sources that decides the result."""
        if self._fingerprint:
            return self._fingerprint
        own = [*(paths.HERE / "translate").glob("*.py"), *(paths.HERE / f"{name}.py" for name in _OWN)]
        parts = {
            "headers": preludes.headers(),
            "translator": building.digest_of_files(own),
            "flags": [*_COMMON, *_HOST, *self._device_flags],
            "check": self._check,
        }
        self._fingerprint = "emulator " + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
        return self._fingerprint

    def compile(self, extension: Extension, module_name: str, folder: Path) -> tuple[Path, tuple[KernelResources, ...]]:
        """Build `module_name` in `folder`. Raises BuildFailed or Unsupported."""
        kernels = translate.find_kernels([p.text for p in (*extension.cpp_sources, *extension.cuda_sources)])
        cpp = [translate.translate(piece, kernels, is_cuda=False) for piece in extension.cpp_sources]
        flags = extension.extra_cuda_cflags
        cuda = [translate.translate(piece, kernels, flags=flags) for piece in extension.cuda_sources]
        sources = (*extension.cpp_sources, *extension.cuda_sources)
        plain = self._plain_binding(extension, cuda, module_name)
        if plain:
            unit = _Unit("cuda", [*cuda, *cpp], extension.extra_cuda_cflags, _preludes_of_kernels(cuda), plain)
            # What is wrong is said of the units that torch makes.
            try:
                return self._checked(self._built([unit], extension, module_name, folder), extension), ()
            except building.CompilerError as error:
                # An error of the kernels would come again in torch's units.
                if not _may_be_of_binding(error.log, extension):
                    raise explaining.explained(error.log, sources) from None
        main = _Unit("main", cpp, extension.extra_cflags, [preludes.MAIN], binding.with_pybind11(extension))
        # torch's headers alone take as long to compile as most kernels.
        empty = cuda and not main.binding and not any(piece.text.strip() for piece in cpp)
        units = [] if empty else [main]
        units += [_Unit("cuda", cuda, extension.extra_cuda_cflags, _preludes_of_kernels(cuda))] if cuda else []
        try:
            built = self._built(units, extension, module_name, folder, kernels_first=bool(plain))
            return self._checked(built, extension), ()
        except building.CompilerError as error:
            raise explaining.explained(error.log, sources) from None

    @staticmethod
    def _plain_binding(extension: Extension, cuda: Sequence[SourceText], module_name: str) -> str:
        """What binds the functions behind `cuda` in one unit, for half of the time; empty where it takes two."""
        alone = not cuda or _kept_flags(extension.extra_cflags) or any(PYTHON.search(piece.text) for piece in cuda)
        return "" if alone else binding.without_pybind11(extension, module_name)

    def _built(
        self,
        units: Sequence[_Unit],
        extension: Extension,
        module_name: str,
        folder: Path,
        *,
        kernels_first: bool = False,
    ) -> Path:
        """The library made of the units; with `kernels_first` one after the other, for where something is known to be
        wrong: mostly the kernels, and what pybind11 makes of declarations takes longest. Raises CompilerError."""

        def compile_unit(unit: _Unit) -> None:
            self._compile(unit, extension, module_name, folder)

        if kernels_first:
            for unit in reversed(units):
                compile_unit(unit)
        else:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(compile_unit, units))
        return self._link(module_name, folder, [f"{unit.name}.o" for unit in units])

    def _compile(self, unit: _Unit, extension: Extension, module_name: str, folder: Path) -> None:
        """Compile a unit with the first of its preludes that has what it uses. Raises CompilerError of the last, or of
        one that the others would not mend."""
        *others, last = unit.preludes
        for prelude in others:
            try:
                self._run(unit, self._command(unit, prelude, extension, module_name, folder), folder)
                return
            except building.CompilerError as error:
                if self._is_for_all(error, unit, extension, folder):
                    raise
        self._run(unit, self._command(unit, last, extension, module_name, folder), folder)

    def _is_for_all(self, error: building.CompilerError, unit: _Unit, extension: Extension, folder: Path) -> bool:
        """Whether what fails with the lean header need not be tried with another: the kernels are wrong themselves, or
        what binds them is, which torch's units do otherwise."""
        if not explaining.is_of(error.log, extension.cuda_sources):
            return bool(unit.binding) and _is_of_binding(error.log, extension)
        names = lean_errors.read(self._prelude(preludes.LEAN, folder).parent)
        includes = any(flag.startswith(("-I", "-include")) for flag in _kept_flags(unit.flags))
        if names is None or extension.extra_include_paths or includes:
            return False
        texts = [*(piece.text for piece in unit.pieces), *_kept_flags(unit.flags)]
        if any(map(preludes.includes_dispatcher, texts)):
            try:
                names = names.with_declared(preludes.with_dispatcher(_prelude_flags(preludes.LEAN), folder))
            except building.CompilerError:
                return False
        return lean_errors.are_of_the_source(error.log, texts, names)

    def _run(self, unit: _Unit, command: list[str], folder: Path) -> None:
        """Compile, and in check mode have the module list its variables."""
        if not (self._check and unit.name == "cuda"):
            building.run([*command, "-c", "-o", f"{unit.name}.o"], folder)
            return
        assembly = folder / f"{unit.name}.s"
        building.run([*command, "-S", "-o", assembly.name], folder)
        assembly.write_text(module_variables.rewrite(assembly.read_text()))
        building.run([paths.compiler(), "-c", assembly.name, "-o", f"{unit.name}.o"], folder)

    def _command(self, unit: _Unit, prelude: str, extension: Extension, module_name: str, folder: Path) -> list[str]:
        """Write a unit's source into `folder`; how to compile it."""
        source = folder / f"{unit.name}.cpp"
        body = "\n".join(piece.located for piece in unit.pieces)
        if unit.name == "cuda" and PYTHON.search(body):
            body = f"#undef EMU_WITHOUT_PYTHON\n{body}"
        bound = f"\n#line 1 {json.dumps(_bindings_of(extension))}\n{unit.binding}" if unit.binding else ""
        source.write_text(body + bound)
        include = [word for path in extension.extra_include_paths for word in ("-I", path)]
        extra = self._device_flags if unit.name == "cuda" else _HOST
        common = [flag for flag in _COMMON if flag != "-w"] if unit.name == "cuda" else _COMMON
        undefined = [flag for flag in unit.flags if flag.startswith("-U__CUDA_NO_")]
        header = preludes.as_text(folder, prelude) if undefined else self._prelude(prelude, folder)
        return [
            paths.compiler(), *common, *extra, *_kept_flags(unit.flags), *include,
            f"-DTORCH_EXTENSION_NAME={module_name}",
            "-include", str(header), *preludes.include_flags(prelude),
            source.name,
        ]  # fmt: skip

    def _checked(self, module: Path, extension: Extension) -> Path:
        """The module, if all that it calls of CUDA is there. Raises Unsupported."""
        own = libraries.build(self._cache)
        has = [own / name for name in (libraries.RUNTIME, libraries.DEVICE, libraries.PYTHON)]
        symbols.check(module, has, (*extension.cpp_sources, *extension.cuda_sources))
        return module

    def _link(self, module_name: str, folder: Path, objects: list[str]) -> Path:
        torch_libraries = paths.torch_folder() / "lib"
        built = libraries.build(self._cache)
        result = folder / f"{module_name}.so"
        building.run(
            [paths.compiler(), *libraries.linker_flags(built), "-shared", *objects, "-o", result.name, "-Wl,-z,relro",
             *(f"-Wl,--wrap={name}" for name in _WRAPPED),
             f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python",
             f"-L{built}", f"-l:{libraries.RUNTIME}", f"-l:{libraries.DEVICE}", f"-l:{libraries.PYTHON}",
             f"-Wl,-rpath,{torch_libraries}:{built}"],
            folder,
        )  # fmt: skip
        return result

    def prepare(self, wanted: Collection[str]) -> None:
        """Compile the preludes that are `wanted`."""
        with ThreadPoolExecutor(2) as pool, building.compilers.ended_by_failure():
            begun = [pool.submit(preludes.compiled, self._cache, name, _prelude_flags(name)) for name in wanted]
            for future in begun:
                building.result_of(future)

    def preludes(self, wanted: Collection[str]) -> list[Path]:
        """The folders of those that are `wanted`, which may not be there yet."""
        return [preludes.place(self._cache, name, _prelude_flags(name)) for name in wanted]

    def _prelude(self, name: str, folder: Path) -> Path:
        try:
            return preludes.compiled(self._cache, name, _prelude_flags(name))
        except OSError:  # a worker
            return preludes.as_text(folder, name)


def _prelude_flags(name: str) -> list[str]:
    """Without those of checked kernels: they are for what comes behind the parser, and all of a prelude that a unit
    uses is compiled with the unit's own."""
    return [*_COMMON, *(_HOST if name == preludes.MAIN else _DEVICE)]


def _preludes_of_kernels(cuda: Sequence[SourceText]) -> list[str]:
    """Those that a unit of kernels is tried with, in turn."""
    lean = all(preludes.is_lean(piece.text) for piece in cuda)
    return [preludes.LEAN, preludes.CUDA] if lean else [preludes.CUDA]
