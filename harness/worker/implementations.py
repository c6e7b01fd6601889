"""What a worker can run: a submission, a baseline made from the reference, or the null kernel."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness import peers
from harness.build.pending import CALLED_AT
from harness.errors import KernelgateError, name_of, printable
from harness.protocol.wire import TensorRef
from harness.records import Place
from harness.worker.device_time import wait

# What is passed on of a name of a file.
MAX_NAME = 255

Factory = Callable[..., torch.nn.Module]


class LoadFailed(KernelgateError):
    """The file cannot be loaded or lacks what it must define; the text says what and at which line."""


def _load_module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadFailed(f"{path.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the submission look their module up
    spec.loader.exec_module(module)
    return module


def line_of_error(error: BaseException, path: Path) -> str:
    """' at line N of FILE' for where `path` raised it, or nothing."""
    place = place_of_error(error, path)
    return f" at line {place.line} of {path.name}" if place else ""


def place_of_error(error: BaseException, path: Path) -> Place | None:
    """Where in `path` it was raised: the innermost frame there, the line that Python's parser names, or that of the
    call of load_inline whose build failed."""
    name = printable(path.name)[:MAX_NAME]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return Place(name, error.lineno or 0, error.offset or 0) if error.lineno else None
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    if not frames:
        line = getattr(error, CALLED_AT, 0)
        return Place(name, line) if line else None
    at = frames[-1]
    if at.colno is None or at.end_colno is None or at.lineno != at.end_lineno:
        return Place(name, at.lineno or 0)
    return Place(name, at.lineno or 0, at.colno + 1, at.end_colno + 1)


def submission(path: Path) -> Factory:
    """`ModelNew` of a submission. Raises LoadFailed when there is none; its own errors pass through."""
    module = _load_module(path, "submission")
    model = getattr(module, "ModelNew", None)
    if not callable(model):
        raise _no_model(module, path)
    return model


def _no_model(module: ModuleType, path: Path) -> LoadFailed:
    """Names the classes that may be meant, and has the line of the first."""
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    names = ", ".join(cls.__name__ for cls in own)
    meant = f" It defines {names}; rename the one that is meant." if own else ""
    if callable(getattr(module, "custom_kernel", None)):
        meant = (
            " It has custom_kernel, as GPU MODE's do: define a ModelNew whose forward calls it (docs/submissions.md)."
        )
    error = LoadFailed(f"{path.name} defines no ModelNew; a submission defines a class of that name.{meant}")
    setattr(error, CALLED_AT, _line_of_class(own[0]) if own else 0)
    return error


def _line_of_class(cls: type) -> int:
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return 0


def eager(path: Path) -> Factory:
    """The reference as it is."""
    return _load_module(path, "problem").Model


def compiled(path: Path) -> Factory:
    """The reference under torch.compile, for static shapes, as its default mode compiles it."""
    return _compiled(path, "default")


def compiled_with_graphs(path: Path) -> Factory:
    """The reference under torch.compile with CUDA graphs of its own, its results copied."""
    build = _compiled(path, "reduce-overhead")
    return lambda *init: Copied(build(*init))


def _compiled(path: Path, mode: str) -> Factory:
    """Each model comes from a fresh copy of the file: dynamo keeps what it compiled with a function's code, and
    code of its own means that a model is neither limited nor slowed by what others compiled."""
    numbers = itertools.count()

    def build(*init: Any) -> torch.nn.Module:
        model = _load_module(path, f"reference_{next(numbers)}").Model(*init)
        return torch.compile(model, dynamic=False, mode=mode)  # type: ignore[return-value]

    return build


class Copied(torch.nn.Module):
    """A compiled model whose CUDA graphs write each call's results to the same place: whoever keeps them, as a round
    does, copies them (PyTorch's notes on CUDAGraph Trees, "Limitations")."""

    def __init__(self, compiled: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = compiled._orig_mod  # where parameters are looked for, see Staged.construct
        self._calls = [compiled]  # no submodule: its parameters are those of _orig_mod

    def forward(self, *inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        result = self._calls[0](*inputs)
        return result.clone() if isinstance(result, torch.Tensor) else type(result)(part.clone() for part in result)


def peer(name: str, problem: Path) -> tuple[Factory, str]:
    """A peer's implementation of the problem in that file, and its version. Of `Model`'s defaults it gets those whose
    names it has: its own may be others. Raises LoadFailed."""
    module = _load_module(problem, "problem")
    try:
        found = peers.load(name, getattr(module, "OPERATOR", name_of(problem)))
    except peers.NotAvailable as error:
        raise LoadFailed(str(error)) from error
    return lambda *init: found.build(*init, **_shared_defaults(module.Model, found.build, init)), found.version


def _shared_defaults(model: Factory, peer: Factory, init: Sequence[Any]) -> dict[str, Any]:
    """The defaults that `model` adds to `init`, as far as `peer` knows their names."""
    parameters = list(inspect.signature(model).parameters.values())[len(init) :]
    known = inspect.signature(peer).parameters
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name in known}


class NullKernel(torch.nn.Module):
    """What a round costs beside the calls that it times.

    On a CPU it does nothing. On a GPU its calls negate: each gives the first input of its buffer with the other sign as
    often as it fits into the form of an output, so that a round of its calls meets what any round does: the change of
    contexts, cold translations of addresses, the gaps between kernels. A kernel that waits follows them, so that the
    round lasts as long as those that it is compared with: what the judge does at the end takes longer after a longer
    wait. How long all of it took is told by events before the first and behind the last kernel, in the same round.
    """

    def __init__(self, results: Sequence[TensorRef], device: torch.device) -> None:
        super().__init__()
        self._works = device.type == "cuda"
        self._begins = False
        self._calls = 0
        self._padding_us = 0.0
        self._calls_us: dict[int, float] = {}  # how long so many calls took
        self._span: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._results = tuple(
            torch.zeros(ref.shape, dtype=getattr(torch, ref.dtype), device=device).as_strided(ref.shape, ref.stride)
            for ref in results
        )

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not self._works:
            return self._results
        if self._begins and self._span:
            self._span[0].record()
            self._begins = False
            self._calls = 0
        self._calls += 1
        source = inputs[0]
        floats = source.is_floating_point()
        return tuple(
            -source if floats and (r.shape, r.dtype) == (source.shape, source.dtype) else torch.zeros_like(r)
            for r in self._results
        )

    def begin_round(self) -> None:
        """The next call is a round's first."""
        if self._works:
            self._begins = True
            self._span = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))

    def end_round(self, lasts_us: float = 0.0) -> None:
        """The round's last call was made. The device is to be busy for `lasts_us` in all, at least; the first round
        of so many calls says how long they take by themselves."""
        if self._span:
            self._padding_us = max(0.0, lasts_us - self._calls_us.get(self._calls, lasts_us))
            if self._padding_us:
                wait(self._padding_us)
            self._span[1].record()

    def device_us(self) -> float:
        """Microseconds that the device was busy in the last round, all of which it has finished."""
        if not self._span:
            return 0.0
        busy_us = self._span[0].elapsed_time(self._span[1]) * 1e3
        self._calls_us[self._calls] = busy_us - self._padding_us
        return busy_us
