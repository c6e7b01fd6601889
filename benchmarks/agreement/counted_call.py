"""One call of a submission, for counters.py: on a GPU between cudaProfilerStart and Stop, or on the emulator.

Takes SUBMISSION, ROWS and COLUMNS from the environment, since tests/emulator/driver.py has arguments of its own.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any


def call(torch: Any) -> Any:
    """A function that calls the submission's LayerNorm once; everything else is done before."""
    path, rows, columns = os.environ["SUBMISSION"], int(os.environ["ROWS"]), int(os.environ["COLUMNS"])
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew((columns,)).cuda()
    x = torch.randn(rows, columns).cuda()
    return lambda: model(x)


def run(torch: Any) -> None:
    """For the emulator's driver, which reads the counts itself."""
    call(torch)()


def main() -> None:
    import torch

    forward = call(torch)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    forward()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
