"""`load_inline` in a worker: the same arguments, a cache keyed by content, no locks, no recompiling, and nothing built
before the file has been imported, unless the file itself needs it.

The folder of a built extension is named by a digest of its sources, flags and toolchain, so that equal
names never collide. A build happens in a folder of its own that is renamed into place when complete:
two builds of the same thing both succeed, and one that died leaves nothing that could be waited for.
"""

from __future__ import annotations

import errno
import importlib.util
import inspect
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import msgspec
import torch.utils.cpp_extension as cpp_extension

from harness.build.extension import SOURCES, BuildFailed, Extension, SourceText, Toolchain
from harness.build.locate import locate
from harness.build.pending import Pending, built, name_what_exists
from harness.build.symbols import missing_definition
from harness.build.wrong_call import WrongCall, require_callable, unknown_keyword
from harness.errors import KernelgateError
from harness.records import KernelResources

_REPORT = "kernels.json"

# What this torch takes beside what is read here.
_KEYWORDS = frozenset(inspect.signature(cpp_extension.load_inline).parameters)


class NotBuilt(KernelgateError):
    """An extension is needed where nothing is built."""


@dataclass
class BuildReport:
    """What the `load_inline` calls of one submission cost; filled as they happen."""

    seconds: float = 0.0
    cached: bool = True
    count: int = 0
    kernels: list[KernelResources] = field(default_factory=list)
    was_needed: bool = False
    """Whether an extension was needed that is not built here."""
    waiting: list[Pending] | None = field(default_factory=list)
    """What will be built once the file is imported; None when it is, and all is built at once."""

    def tells(self, error: BaseException) -> bool:
        """Whether `error`, which ended an import without a toolchain, would end it anywhere."""
        of_the_text = (NameError, SyntaxError, ModuleNotFoundError, WrongCall, BuildFailed)
        return not self.was_needed and isinstance(error, of_the_text)

    def finish(self) -> None:
        """Build what waits: the file is imported. Raises what building raises."""
        waiting, self.waiting = self.waiting or [], None
        for module in waiting:
            built(module)


def install(
    toolchain: Toolchain | None, cache: Path, submission: Path, look: Callable[[Path], None] = lambda library: None
) -> BuildReport:
    """Replace `torch.utils.cpp_extension.load_inline` in this process; returns the report it will fill. `look` sees
    each library before it is loaded, and what it raises passes through. Without a toolchain nothing is built: who needs
    an extension gets NotBuilt, and the report says so."""
    report = BuildReport()

    def load_inline(
        name: str,
        cpp_sources: str | Sequence[str],
        cuda_sources: str | Sequence[str] | None = None,
        sycl_sources: str | Sequence[str] | None = None,
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        is_python_module: bool = True,
        no_implicit_headers: bool = False,
        **others: Any,
    ) -> ModuleType | str:
        """PyTorch's signature. `build_directory`, `verbose`, `with_cuda` and others change nothing here, and
        `no_implicit_headers` nothing on the emulator, whose compiled headers come first in any case."""
        for keyword in others:
            if keyword not in _KEYWORDS:
                raise unknown_keyword(keyword, _KEYWORDS)
        extension = Extension(
            name=name,
            cpp_sources=_sources(cpp_sources, submission),
            cuda_sources=_sources(cuda_sources, submission),
            functions=_functions(functions),
            extra_cflags=tuple(extra_cflags or ()),
            extra_cuda_cflags=tuple(extra_cuda_cflags or ()),
            extra_ldflags=tuple(extra_ldflags or ()),
            extra_include_paths=tuple(extra_include_paths or ()),
            no_implicit_headers=bool(no_implicit_headers),
        )

        def load() -> ModuleType | str:
            if toolchain is None:
                report.was_needed = True
                raise NotBuilt(f"'{extension.name}' is not built here")
            return _load(extension, toolchain, cache, report, is_python_module, look)

        if not is_python_module:
            return load()
        require_callable(extension)

        def build() -> ModuleType:
            module = load()
            assert isinstance(module, ModuleType)
            name_what_exists(module, extension.name)
            return module

        if report.waiting is None:
            return build()
        report.waiting.append(Pending(extension.name, build, _line_in(submission)))
        return report.waiting[-1]

    load_inline.__qualname__ = "load_inline"  # Python's own messages about its arguments name it
    for name, function in (("load_inline", load_inline), ("load", _no_files)):
        setattr(cpp_extension, name, function)
    return report


def _line_in(submission: Path) -> int:
    """The line of the file that is being run by who called the caller; 0 where it is another file's."""
    frame = sys._getframe(2)
    return frame.f_lineno if frame.f_code.co_filename == str(submission) else 0


def _no_files(*_arguments: Any, **_keywords: Any) -> NoReturn:
    """In place of `torch.utils.cpp_extension.load`."""
    raise BuildFailed(
        "torch.utils.cpp_extension.load builds source files, and a submission is one Python file. Give the sources as "
        "text to torch.utils.cpp_extension.load_inline."
    )


def _sources(sources: str | Sequence[str] | None, submission: Path) -> tuple[SourceText, ...]:
    texts = [sources] if isinstance(sources, str) else list(sources or ())
    return tuple(locate(text, submission) for text in texts)


def _functions(functions: str | Sequence[str] | Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if functions is None:
        return ()
    if isinstance(functions, str):
        return ((functions, functions),)
    if isinstance(functions, Mapping):
        return tuple(functions.items())
    return tuple((name, name) for name in functions)


def _load(
    extension: Extension,
    toolchain: Toolchain,
    cache: Path,
    report: BuildReport,
    is_python_module: bool,
    look: Callable[[Path], None],
) -> ModuleType | str:
    digest = extension.digest(toolchain.fingerprint())
    # The module's name carries the digest, since Python and pybind11 know a module by its name.
    module_name = f"{re.sub(r'[^0-9A-Za-z_]', '_', extension.name)}_{digest[:16]}"
    folder = cache / digest
    library = folder / f"{module_name}.so"
    if not library.exists():
        started = time.perf_counter()
        try:
            _build(extension, toolchain, module_name, folder)
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            raise BuildFailed(
                f"load_inline was called for '{extension.name}' after the first call of forward, when no compiler can "
                "be started any more. Build all kernels at the top of the file or in __init__."
            ) from error
        report.seconds += time.perf_counter() - started
        report.cached = False
    report.count += 1
    look(library)
    report.kernels += msgspec.json.decode((folder / _REPORT).read_bytes(), type=list[KernelResources])
    try:
        if is_python_module:
            return _import(module_name, library)
        import torch

        torch.ops.load_library(str(library))
        return str(library)
    except (ImportError, OSError) as error:
        if sentence := missing_definition(str(error)):
            raise BuildFailed(sentence) from error
        raise


def _build(extension: Extension, toolchain: Toolchain, module_name: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        library, kernels = toolchain.compile(extension, module_name, scratch)
        finished = scratch / "finished"
        finished.mkdir()
        shutil.copy2(library, finished / f"{module_name}.so")
        (finished / _REPORT).write_bytes(msgspec.json.encode(kernels))
        (finished / SOURCES).write_bytes(msgspec.json.encode(extension))
        try:
            os.rename(finished, folder)
        except OSError:
            if not folder.exists():  # else another build of the same thing was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _import(module_name: str, library: Path) -> ModuleType:
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[module_name] = module
    return module
