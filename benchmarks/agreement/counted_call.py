"""One call of a submission for each shape, for counters.py: on a GPU between cudaProfilerStart and Stop, each behind
a kernel that marks it, or on the emulator.

Takes SUBMISSION and SHAPES ('256x4096 4x262144') from the environment, since tests/emulator/driver.py has arguments
of its own. On a GPU the extension is the one that the judge built, if it did.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def calls(torch: Any) -> Iterator[Any]:
    """For each shape a function that calls the submission's LayerNorm once; everything else is done before."""
    spec = importlib.util.spec_from_file_location("submission", os.environ["SUBMISSION"])
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for shape in os.environ["SHAPES"].split():
        rows, columns = map(int, shape.split("x"))
        model = module.ModelNew((columns,)).cuda()
        x = torch.randn(rows, columns).cuda()
        yield lambda model=model, x=x: model(x)


def run(torch: Any) -> None:
    """For the emulator's driver, which reads the counts itself."""
    for call in calls(torch):
        call()


def main() -> None:
    import torch

    sys.path.insert(0, str(ROOT))
    from harness.build import intercept
    from harness.build.torch_toolchain import TorchToolchain
    from harness.paths import build_cache
    from harness.storage.cache import in_use

    path = Path(os.environ["SUBMISSION"])
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with in_use():
        intercept.install(TorchToolchain(cuda=True), build_cache(sha256), path)
        for call in calls(torch):
            call()  # the first one asks the device for its limits and sets up memory
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            torch.cuda._sleep(1)  # the mark: a kernel of PyTorch's that no submission launches
            call()
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
