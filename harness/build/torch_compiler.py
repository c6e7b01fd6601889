"""One call of PyTorch's `load_inline`, in a process of its own: a fork of one that has loaded torch, or
`python -m harness.build.torch_compiler`, which reads it as JSON from stdin.

A process of its own gives the compilers' output in one place, and keeps a half-built extension out of
the worker. Loading the result here finds missing symbols while they still are a build error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

import torch.utils.cpp_extension as cpp_extension


def compile_in_fork(request: dict[str, Any], environment: dict[str, str], output: int) -> int:
    """The process id of a fork of this one that compiles, printing to the file `output`; it ends with 1 where that
    fails. Loading what it has built runs the initialisers of a submission: of this one's files, such as the channel
    to the judge and the arena, it has none."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for printed_to in (1, 2):
            os.dup2(output, printed_to)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.update(environment)
        _end(compile_by_torch(request))
    finally:
        os._exit(1)


def compile_by_torch(request: dict[str, Any]) -> int:
    """Call `load_inline` with `request`; 1 where that fails, and it is printed why."""
    cuda_sources = request.pop("cuda_sources") or None
    functions = request.pop("functions") or None
    try:
        cpp_extension.load_inline(
            **request, cuda_sources=cuda_sources, functions=functions, is_python_module=False, verbose=True
        )
    except Exception as error:
        print(error)
        return 1
    return 0


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    os._exit(code)  # what remains is torch taking itself apart, for half a second


if __name__ == "__main__":
    _end(compile_by_torch(json.load(sys.stdin)))
