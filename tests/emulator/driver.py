"""Runs one submission file in this process on the emulated device; the tests start it as a program.

    python driver.py FILE CACHE [--check] [--order ORDER] [--seed N] [--timeout S] [--headers-of-packages]

FILE defines `run(torch)`, which returns something JSON can hold, or `run(torch, configure)`, which may change the
order. The last line printed is a JSON object with `result` or `error`, `findings` and `counts`, and `headers`, the
folders that CUDA's headers came from.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import inspect
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.build.extension import BuildFailed, Unsupported
from harness.device import emulator
from harness.device.emulator import paths, preludes
from harness.garbage import no_garbage_collection
from harness.protocol.extension import Extension, SourceText
from harness.storage.cache import in_use


def _strings(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value or [])


def _located(text: str | SourceText, file: Path) -> SourceText:
    if isinstance(text, SourceText):
        return text
    at = file.read_text().find(text)
    return SourceText(text, str(file), file.read_text().count("\n", 0, at) + 1) if at >= 0 else SourceText(text)


def loader(file: Path, cache: Path, check: bool) -> Any:
    """A `load_inline` that builds with the emulator's toolchain and keeps what it built."""
    compiler = emulator.EmulatorToolchain(cache, check)

    def load_inline(name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None, **more: Any) -> Any:
        named = functions.items() if isinstance(functions, dict) else [(f, f) for f in _strings(functions)]
        extension = Extension(
            name,
            tuple(_located(text, file) for text in _strings(cpp_sources)),
            tuple(_located(text, file) for text in _strings(cuda_sources)),
            tuple(named),
            tuple(more.get("extra_cflags") or ()),
            tuple(more.get("extra_cuda_cflags") or ()),
        )
        module = "ext_" + extension.digest(compiler.fingerprint())
        built = cache / "built" / f"{module}.so"
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=built.parent) as folder:
                result, _ = compiler.compile(extension, module, Path(folder))
                result.rename(built)
        if not more.get("is_python_module", True):
            import torch

            return torch.ops.load_library(str(built))
        spec = importlib.util.spec_from_file_location(module, built)
        assert spec and spec.loader
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return load_inline


def _compiled(cache: Path, name: str, flags: list[str]) -> Path:
    """A prelude that nobody has compiled yet stays text: to compile it takes as long as to read it for two builds."""
    there = preludes.place(cache, name, flags) / "prelude.h"
    return there if there.exists() else preludes.as_text(cache / "built", name)


def main() -> None:
    """Run the file named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--order", default="forward")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--headers-of-packages", action="store_true", help="as on a machine without a toolkit")
    options = parser.parse_args()
    if options.headers_of_packages:
        paths._from_toolkit = list
        preludes.compiled = _compiled
    emulator.activate(options.cache)
    emulator.name_lines()
    with no_garbage_collection():
        import torch
        import torch.utils.cpp_extension

    configure = functools.partial(emulator.configure, workers=2, check=options.check, timeout_s=options.timeout)
    configure(order=options.order, seed=options.seed)
    torch.utils.cpp_extension.load_inline = loader(options.file.resolve(), options.cache, options.check)
    torch.manual_seed(0)
    answer: dict[str, Any] = {}
    try:
        spec = importlib.util.spec_from_file_location("submission", options.file)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        given = [torch, configure][: len(inspect.signature(module.run).parameters)]
        answer["result"] = module.run(*given)
    except (RuntimeError, BuildFailed, Unsupported) as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    answer["findings"] = [msgspec.structs.asdict(finding) for finding in emulator.take_findings()]
    answer["counts"] = [msgspec.structs.asdict(count) for count in emulator.take_counts()]
    answer["headers"] = [str(folder) for folder in paths.cuda_includes()]
    print(json.dumps(answer))


if __name__ == "__main__":
    with in_use():
        main()
    sys.stdout.flush()
    os._exit(0)  # autograd's thread may still let go of a graph, for which it wants an interpreter
