"""Runs a submission alone, for tools that watch a process from outside: `python -m harness.worker.drive REQUEST`.

REQUEST is a file with a harness.protocol.drive.Drive. There is no judge, no clock and no isolation: a person points a
profiler or checker at a submission of their own. Exit code 4 with a sentence means that the submission failed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from harness.build import intercept
from harness.build.extension import BuildFailed
from harness.build.torch_toolchain import TorchToolchain
from harness.protocol.drive import Drive, DriveCase, Driven, WireKernelTime
from harness.protocol.values import decode_value
from harness.worker import implementations
from harness.worker.parameters import carry

EXIT_FAILED = 4


def main() -> int:
    drive = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Drive)
    source = Path(drive.submission)
    toolchain = TorchToolchain(cuda=drive.device == "cuda")
    report = intercept.install(toolchain, Path(drive.build_cache), source)
    times: list[WireKernelTime] = []
    try:
        factory = implementations.submission(source)
        for case in drive.cases:
            times += _run(factory, case, drive)
    except (BuildFailed, implementations.LoadFailed) as error:
        return _failed(str(error))
    except Exception as error:
        return _failed(f"{type(error).__name__}{implementations.line_of_error(error, source)}: {error}")
    done = Driven(kernels=report.kernels, times=times)
    Path(drive.result).write_bytes(msgspec.json.encode(done))
    return 0


def _failed(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return EXIT_FAILED


def _run(factory: implementations.Factory, case: DriveCase, drive: Drive) -> list[WireKernelTime]:
    """The warm-up calls of a case, then one that is marked and, if that is asked for, traced."""
    tensors = torch.load(case.tensors, map_location=drive.device, weights_only=True)
    model = factory(*decode_value(case.init)).to(getattr(torch, case.dtype) if case.dtype else None).to(drive.device)
    with torch.no_grad():
        carry(tensors["state"], model)
    call = _Step(model, tensors["inputs"]) if case.backward else partial(_forward, model, tensors["inputs"])
    for _ in range(drive.warm_ups):
        call()
    _synchronize(drive.device)
    with _traced(drive) as times, _marked(drive.device):
        call()
        _synchronize(drive.device)
    return times


def _forward(model: torch.nn.Module, inputs: list[Any]) -> None:
    with torch.no_grad():
        model(*inputs)


class _Step:
    """A forward and a backward. Gradients of the outputs are made in the first call and kept: one that follows it runs
    the submission's kernels and no others, as a timed step does."""

    def __init__(self, model: torch.nn.Module, inputs: list[Any]):
        self._model = model
        self._inputs = [t.detach().requires_grad_() if _is_floating(t) else t for t in inputs]
        self._leaves = [t for t in (*self._inputs, *model.parameters()) if _is_floating(t) and t.requires_grad]
        self._upstream: list[torch.Tensor] = []

    def __call__(self) -> None:
        result = self._model(*self._inputs)
        outputs = [t for t in (result if isinstance(result, tuple | list) else [result]) if t.requires_grad]
        self._upstream = self._upstream or [torch.ones_like(t) for t in outputs]
        torch.autograd.grad(outputs, self._leaves, self._upstream, allow_unused=True)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def _marked(device: str) -> Iterator[None]:
    """What a profiler that waits for cudaProfilerStart looks at."""
    if device != "cuda":
        yield
        return
    torch.cuda.profiler.start()
    yield
    torch.cuda.profiler.stop()


@contextlib.contextmanager
def _traced(drive: Drive) -> Iterator[list[WireKernelTime]]:
    """Fills the list with what torch.profiler saw: kernels on a GPU, operators on a CPU."""
    times: list[WireKernelTime] = []
    if not drive.traced:
        yield times
        return
    activity = torch.profiler.ProfilerActivity.CUDA if drive.device == "cuda" else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        yield times
    for event in profile.key_averages():
        us = _self_time_us(event, drive.device)
        if us > 0:
            times.append(WireKernelTime(event.key, event.count, us))
    times.sort(key=lambda time: -time.total_us)


def _self_time_us(event: Any, device: str) -> float:
    return float(event.self_device_time_total if device == "cuda" else event.self_cpu_time_total)


if __name__ == "__main__":
    sys.exit(main())
