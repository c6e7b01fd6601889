"""Runs some cases of the emulator's corpus on a GPU, in this process; corpus.py starts it, under a sanitizer or not.

    python corpus_process.py EXTENSION NAME…

Prints `@@ start NAME`, then `@@ done NAME JSON` with the error it raised and the bytes of y. Ends with 3 after
the first case that leaves the context unusable, since what comes after it would say nothing.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


def run_case(function: Any) -> dict[str, str]:
    """One call: the error's first line, and y as base64 of zlib of its float32."""
    x = torch.arange(1024, dtype=torch.float32, device="cuda")
    y = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    try:
        function(x, y)
        torch.cuda.synchronize()
        return {"raised": "", "y": base64.b64encode(zlib.compress(y.cpu().numpy().tobytes(), 9)).decode()}
    except RuntimeError as error:
        return {"raised": str(error).splitlines()[0], "y": ""}


def context_is_lost() -> bool:
    """Whether a fault has ended this process's use of the GPU. Takes a pending launch error on the way."""
    for _ in range(2):
        try:
            torch.zeros(1, device="cuda").add_(1)
            torch.cuda.synchronize()
            return False
        except RuntimeError:
            continue
    return True


def load(path: Path) -> ModuleType:
    """The extension in a file, which is called like the file: so is the function that Python looks for in it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension


def main() -> None:
    path, *names = sys.argv[1:]
    extension = load(Path(path))
    torch.zeros(1, device="cuda")
    for name in names:
        print(f"\n@@ start {name}", flush=True)
        answer = run_case(getattr(extension, f"{name}_run"))
        print(f"\n@@ done {name} {json.dumps(answer)}", flush=True)
        if answer["raised"] and context_is_lost():
            os._exit(3)  # a destructor would raise


if __name__ == "__main__":
    main()
