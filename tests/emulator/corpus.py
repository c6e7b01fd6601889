"""All kernels of faults/ in one extension, each in one order of threads after the other until something is found."""

from __future__ import annotations

from torch.utils.cpp_extension import load_inline

from harness.device import emulator
from harness.protocol.extension import SourceText
from tests.emulator import corpus_sources

ORDERS = ("forward", "reverse", "random")

extension = load_inline(
    name="faults",
    cpp_sources=[SourceText(corpus_sources.declarations())],
    cuda_sources=corpus_sources.sources(),
    functions=corpus_sources.exported(),
)


def run(torch, configure):
    """For each case the order it was last run in, the message it raised, what was found (kind, line, file, kernel,
    message), and y if it ran."""
    seen = {}
    for file in corpus_sources.cases():
        for order in ORDERS:
            configure(order=order)
            seen[file.stem] = one = {"order": order, **called(torch, f"{file.stem}_run")}
            if one["found"] or one["message"]:
                break
    return seen


def called(torch, name):
    x = torch.arange(1024, dtype=torch.float32).cuda()
    y = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()  # they are there for all streams
    message = ""
    try:
        getattr(extension, name)(x, y)
    except RuntimeError as error:
        message = str(error)
    found = [[f.kind, f.line, f.file, f.kernel, f.message] for f in emulator.take_findings()]
    return {"message": message, "found": found, "y": [] if message else y.cpu().tolist()}
