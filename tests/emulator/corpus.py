"""All kernels of faults/ in one extension, each called once: what the emulator found in each."""

from __future__ import annotations

from torch.utils.cpp_extension import load_inline

from harness.build.extension import SourceText
from harness.device import emulator
from tests.emulator import corpus_sources

extension = load_inline(
    name="faults",
    cpp_sources=[SourceText(corpus_sources.declarations())],
    cuda_sources=corpus_sources.sources(),
    functions=corpus_sources.exported(),
)


def run(torch):
    """For each case the message it raised, what was found (kind, line, file, kernel, message), and y if it ran."""
    seen = {}
    for file in corpus_sources.cases():
        x = torch.arange(1024, dtype=torch.float32).cuda()
        y = torch.zeros(1024, device="cuda")
        torch.cuda.synchronize()  # they are there for all streams
        message = ""
        try:
            getattr(extension, f"{file.stem}_run")(x, y)
        except RuntimeError as error:
            message = str(error)
        found = [[f.kind, f.line, f.file, f.kernel, f.message] for f in emulator.take_findings()]
        seen[file.stem] = {"message": message, "found": found, "y": [] if message else y.cpu().tolist()}
    return seen
