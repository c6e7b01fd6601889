#!/usr/bin/env python3
"""How long a cold build takes here, beside torch's own load_inline of the same sources.

    python benchmarks/build_speed.py [SUBMISSION…] [--runs N] [--architecture 9.0] [--json FILE]

Each submission is built as it is, and one with kernels with torch/extension.h at their beginning, as most examples have
it. Both ways of building follow each other, in empty folders, with the same compilers, flags and two jobs.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from common import ROOT, save, seconds_of

DEFAULT = ROOT / "submissions" / "layernorm" / "rung3_warp_shuffle.py"
EXTENSION_HEADER = "#include <torch/extension.h>\n"


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submissions", nargs="*", type=Path, default=[DEFAULT])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--architecture", default="", help="of a GPU elsewhere, such as 9.0")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    return parser


def extensions(path):
    """What the file asks for, by how it is shown."""
    from harness.build.called import written
    from harness.protocol.extension import SourceText

    for extension in written(path):
        yield path.stem, extension
        first = SourceText(EXTENSION_HEADER)
        if extension.cuda_sources:
            yield f"{path.stem}, torch/extension.h", replace(extension, cuda_sources=(first, *extension.cuda_sources))


def seconds(build, extension):
    with tempfile.TemporaryDirectory(prefix="kernelgate-build-") as folder:
        started = time.perf_counter()
        build(extension, extension.module_name("0" * 32), Path(folder))
        return time.perf_counter() - started


def main():
    arguments = parser().parse_args()
    from harness import process
    from harness.build.extension import BuildFailed
    from harness.build.torch_toolchain import TorchToolchain

    process.prepare()
    measured = {}
    for path in arguments.submissions:
        for shown, extension in extensions(path):
            toolchain = TorchToolchain(cuda=bool(extension.cuda_sources), architecture=arguments.architecture)
            ours, torchs = [], []
            try:
                for _ in range(arguments.runs):
                    torchs.append(seconds(toolchain.compile_by_torch, extension))
                    ours.append(seconds(toolchain.compile, extension))
            except BuildFailed as error:
                sys.exit(f"{shown} was not built: {error}")
            ratio = statistics.median(ours) / statistics.median(torchs)
            measured[shown] = {"seconds": ours, "load_inline_s": torchs, "ratio": ratio}
            save(arguments.json, measured)
            print(f"{shown:50s} {seconds_of(ours)} s, load_inline {seconds_of(torchs)} s: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
