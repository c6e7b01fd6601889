"""The headers that sources begin with, precompiled: torch's take most of a build.

What they pull in is paid for by every source, precompiled or not: the compiler instantiates the templates that a
precompiled header's inline functions use again for each source. Of torch/types.h that are 14,000, most of them of the
dispatcher's and of IValue; the headers in lean/ keep both out, and a source costs 0.7 s for them in place of 3 s.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from harness.build.lean import PYTHON
from harness.device.emulator import building, explaining, lean_errors, paths
from harness.errors import NOT_PARSED

LEAN = "lean"
MAIN = "main"
CUDA = "cuda"

_DEVICE = "#include <cuda.h>\n#include <cuda_runtime.h>\n#include <emu/emu.h>\n"
_WITHOUT_PYTHON = "#define EMU_WITHOUT_PYTHON\n#include <emu/torch_types.h>\n#include <torch/types.h>\n"
_LEANLY = f"#define EMU_LEAN\n{_WITHOUT_PYTHON}#undef EMU_LEAN\n"
# What load_inline puts in front of sources: pybind11 before `cpp_sources` and the bindings only. Its internals are
# compiled into every unit that sees them, which with all detectors takes four times as long as torch's headers.
TEXTS = {
    MAIN: f"#include <emu/torch_types.h>\n#include <torch/extension.h>\n{_DEVICE}#include <emu/checked.h>\n",
    CUDA: f"{_WITHOUT_PYTHON}{_DEVICE}#include <emu/bind.h>\n",
    LEAN: f"{_LEANLY}{_DEVICE}#include <emu/bind.h>\n",
}
# The dispatcher, which lean/ leaves out until a source includes it, and torch's own headers that build on more.
_OF_DISPATCHER = re.compile(r"\bTORCH_LIBRARY|\bIValue\b")
_DISPATCHER = re.compile(r"^\s*#\s*include\s*<torch/library\.h>", re.MULTILINE)
_MORE_THAN_LEAN = re.compile(r"#\s*include\s*[<\"]torch/(?!extension\.h|types\.h|library\.h)")
_NOT_LEAN = "#error Some of torch's headers have more to them than the emulator's lean ones know.\n"


def is_lean(source: str) -> bool:
    """Whether a CUDA source may do with the lean header. The compiler has the last word: what is missing is an error,
    and the source is compiled with all of torch's headers."""
    if PYTHON.search(source) or _MORE_THAN_LEAN.search(source):
        return False
    return includes_dispatcher(source) or not _OF_DISPATCHER.search(source)


def includes_dispatcher(source: str) -> bool:
    """Whether it includes torch/library.h itself."""
    return _DISPATCHER.search(source) is not None


def wanted(submission: Path) -> set[str]:
    """The preludes that a submission's sources will be compiled with, as far as its text tells. A source whose prelude
    is not there is compiled with the header as it is: that takes longer."""
    found = {LEAN}
    for text in _literals(submission):
        if "__global__" in text or "<<<" in text:
            found |= set() if is_lean(text) else {CUDA}
        elif _is_host_code(text):
            found |= {MAIN}
    return found


def _literals(submission: Path) -> list[str]:
    try:
        tree = ast.parse(submission.read_bytes())
    except (OSError, *NOT_PARSED):
        return []
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]


def _is_host_code(text: str) -> bool:
    """Whether it looks like `cpp_sources` with more than declarations, which pybind11 binds."""
    is_code = "#include" in text or ("{" in text and "(" in text)
    is_more = not is_lean(text) or _OF_DISPATCHER.search(text) is not None
    return is_code and (is_more or ("{" in text and "Tensor" in text))


def include_flags(prelude: str) -> list[str]:
    """Include folders of a source that begins with it."""
    lean = ["-I", str(paths.HERE / "lean")] if prelude == LEAN else []
    return [*lean, *paths.include_flags(shims=True)]


def headers() -> str:
    """A digest of all that a translated source is compiled against."""
    shims = (file for name in ("include", "lean") for file in (paths.HERE / name).rglob("*") if file.is_file())
    parts = [building.digest_of_files(shims), paths.compiler_version(), *paths.which_torch()]
    return "\0".join([*parts, *(str(folder) for folder in paths.cuda_includes())])


def place(cache: Path, prelude: str, flags: Iterable[str]) -> Path:
    """The folder of a compiled prelude in `cache`, or where it will be."""
    beside = [lean_errors.FILE] if prelude == LEAN else []
    key = hashlib.sha256("\0".join([headers(), *flags, prelude, TEXTS[prelude], *beside]).encode()).hexdigest()[:16]
    return cache / f"prelude-{key}"


def compiled(cache: Path, prelude: str, flags: list[str]) -> Path:
    """The header of `prelude`, compiled with `flags` if it is not there. Raises OSError where it cannot be written, and
    CompilerError; a torch for which the lean one is not made gets one that no source compiles with."""

    def make(folder: Path) -> None:
        header = folder / "prelude.h"
        header.write_text(TEXTS[prelude])
        command = [paths.compiler(), *flags, *include_flags(prelude), "-x", "c++-header", header.name]
        try:
            building.run([*command, "-o", "prelude.h.gch"], folder)
        except building.CompilerError as error:
            if prelude != LEAN or not explaining.has_errors(error.log):  # a compiler that was killed says nothing
                raise
            header.write_text(_NOT_LEAN)
        else:
            if prelude == LEAN:
                lean_errors.write(folder, *(_declared(TEXTS[name], name, flags, folder) for name in (CUDA, LEAN)))

    return building.once(place(cache, prelude, flags), make) / "prelude.h"


def with_dispatcher(flags: list[str], folder: Path) -> str:
    """All that the lean header and torch/library.h behind it declare, and their macros. Raises CompilerError."""
    return _declared(f"{TEXTS[LEAN]}#include <torch/library.h>\n", LEAN, flags, folder)


def _declared(text: str, prelude: str, flags: list[str], folder: Path) -> str:
    """`text` preprocessed where `prelude` is, with its macros."""
    header = folder / "declared.h"
    header.write_text(text)
    command = [paths.compiler(), *flags, *include_flags(prelude), "-E", "-dD", "-P", "-x", "c++", header.name]
    try:
        return building.run(command, folder)
    finally:
        header.unlink()


def as_text(folder: Path, prelude: str) -> Path:
    """The header of `prelude` in `folder`, not compiled: for flags that compiled ones were not made with, and for a
    worker, which cannot put it where others find it."""
    header = folder / f"prelude_{prelude}.h"
    header.write_text(TEXTS[prelude])
    return header
