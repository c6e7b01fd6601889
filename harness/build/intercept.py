"""`load_inline` in a worker: the same arguments, a cache keyed by content, no locks, no recompiling, and nothing built
before the file has been imported, unless the file itself needs it.

A worker first asks the judge for what is not there. The judge has it built by a process that runs nothing of any
submission, for all who ask for the same; what it does not build, the worker builds for its own file.
"""

from __future__ import annotations

import errno
import importlib.util
import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch.utils.cpp_extension as cpp_extension

from harness.build import called
from harness.build.entry import Entry
from harness.build.extension import BuildFailed, Toolchain, Unsupported
from harness.build.pending import BUILDING, Pending, built, name_what_exists
from harness.build.symbols import missing_definition
from harness.build.wrong_call import WrongCall, require_callable, unknown_keyword
from harness.errors import KernelgateError, one_line
from harness.protocol.extension import Extension
from harness.records import KernelResources

# What this torch takes beside what is read here.
_KEYWORDS = frozenset(inspect.signature(cpp_extension.load_inline).parameters)


class NotBuilt(KernelgateError):
    """An extension is needed where nothing is built."""


# Has the judge lend builds, as far as it does; gives what compilers said of those that do not build, by their digests.
Ask = Callable[[Sequence[Entry]], Mapping[str, BuildFailed | Unsupported]]


@dataclass
class BuildReport:
    """What the `load_inline` calls of one submission cost; filled as they happen."""

    seconds: float = 0.0
    cached: bool = True
    count: int = 0
    kernels: list[KernelResources] = field(default_factory=list)
    was_needed: bool = False
    """Whether an extension was needed that is not built here."""
    waiting: list[tuple[Pending, Entry | None]] | None = field(default_factory=list)
    """What will be built once the file is imported; None when it is, and all is built at once."""
    ask: Ask | None = None
    """None where the judge is not asked."""
    refused: dict[str, BuildFailed | Unsupported] = field(default_factory=dict)
    """What the judge said of extensions that do not build, by their digests."""

    def tells(self, error: BaseException) -> bool:
        """Whether `error`, which ended an import without a toolchain, would end it anywhere."""
        of_the_text = (NameError, SyntaxError, ModuleNotFoundError, WrongCall, BuildFailed)
        return not self.was_needed and isinstance(error, of_the_text)

    def finish(self) -> None:
        """Build what waits: the file is imported. Raises what building raises."""
        waiting, self.waiting = self.waiting or [], None
        self.obtain([entry for module, entry in waiting if entry and type(module) is Pending])
        for module, _ in waiting:
            built(module)
        self.ask = None  # while a submission is run, the judge asks

    def obtain(self, entries: Sequence[Entry]) -> None:
        """Have the judge lend those that are not there."""
        with BUILDING:
            missing = [entry for entry in entries if not entry.library.exists() and entry.digest not in self.refused]
            if self.ask and missing:
                self.refused.update(self.ask(missing))


def install(
    toolchain: Toolchain | None,
    cache: Path,
    submission: Path,
    look: Callable[[Path], None] = lambda library: None,
    ask: Ask | None = None,
) -> BuildReport:
    """Replace `torch.utils.cpp_extension.load_inline` in this process; returns the report it will fill. `look` sees
    each library before it is loaded, and what it raises passes through. Without a toolchain nothing is built: who needs
    an extension gets NotBuilt, and the report says so. `ask` has the judge put builds into `cache`."""
    report = BuildReport(ask=ask)

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
        extension = called.extension(
            submission,
            name,
            cpp_sources,
            cuda_sources,
            functions,
            extra_cflags,
            extra_cuda_cflags,
            extra_ldflags,
            extra_include_paths,
            no_implicit_headers,
        )
        if line := extension.reads_by_path:
            raise BuildFailed(
                f"`{one_line(line[:100])}` may read a file beside the submission, which is one file. Put its text into "
                "it, or name its folder in extra_include_paths."
            )
        if is_python_module:
            require_callable(extension)
        entry = Entry.of(extension, toolchain, cache) if toolchain else None

        def load() -> ModuleType | str:
            if toolchain is None or entry is None:
                report.was_needed = True
                raise NotBuilt(f"'{extension.name}' is not built here")
            with BUILDING:
                return _load(entry, toolchain, report, is_python_module, look)

        if not is_python_module:
            return load()

        def build() -> ModuleType:
            module = load()
            assert isinstance(module, ModuleType)
            name_what_exists(module, extension.name)
            return module

        if report.waiting is None or _registers_operators(extension):
            return build()
        pending = Pending(extension.name, build, _line_in(submission))
        report.waiting.append((pending, entry))
        return pending

    load_inline.__qualname__ = "load_inline"  # Python's own messages about its arguments name it
    for name, function in (("load_inline", load_inline), ("load", _no_files)):
        setattr(cpp_extension, name, function)
    return report


def _registers_operators(extension: Extension) -> bool:
    """Whether loading it gives torch operators, which a file may use without asking the module for anything."""
    return any("TORCH_LIBRARY" in source.text for source in (*extension.cpp_sources, *extension.cuda_sources))


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


def _load(
    entry: Entry, toolchain: Toolchain, report: BuildReport, is_python_module: bool, look: Callable[[Path], None]
) -> ModuleType | str:
    report.obtain([entry])
    if entry.digest in report.refused:
        raise report.refused[entry.digest]
    if not entry.library.exists():
        _build(entry, toolchain, report)
    report.count += 1
    look(entry.library)
    report.kernels += entry.kernels()
    try:
        if is_python_module:
            return _import(entry.module_name, entry.library)
        import torch

        torch.ops.load_library(str(entry.library))
        return str(entry.library)
    except (ImportError, OSError) as error:
        if sentence := missing_definition(str(error)):
            raise BuildFailed(sentence) from error
        raise


def _build(entry: Entry, toolchain: Toolchain, report: BuildReport) -> None:
    started = time.perf_counter()
    try:
        entry.build(toolchain)
    except PermissionError as error:
        if error.errno != errno.EPERM:
            raise
        raise BuildFailed(
            f"load_inline was called for '{entry.extension.name}' after the first call of forward, when no compiler "
            "can be started any more. Build all kernels at the top of the file or in __init__."
        ) from error
    report.seconds += time.perf_counter() - started
    report.cached = False


def _import(module_name: str, library: Path) -> ModuleType:
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[module_name] = module
    return module
