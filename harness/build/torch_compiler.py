"""`python -m harness.build.torch_compiler`: one call of PyTorch's `load_inline`, read as JSON from stdin.

A process of its own gives the compilers' output in one place, and keeps a half-built extension out of
the worker. Loading the result here finds missing symbols while they still are a build error.
"""

from __future__ import annotations

import json
import os
import sys

import torch.utils.cpp_extension as cpp_extension


def main() -> int:
    request = json.load(sys.stdin)
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


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # what remains is torch taking itself apart, for half a second
