"""A worker with one implementation loaded, and the requests that judging makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch

from harness import against
from harness.device.base import Device, Reader
from harness.errors import Stopped, SubmissionError, one_line
from harness.isolation.sandbox import Worker
from harness.judging.building import Builds
from harness.judging.frames import code_frame
from harness.layouts import elements_before, strides
from harness.oracle.outputs import Form
from harness.oracle.reference import Reference
from harness.problem import Case, Problem
from harness.protocol.replies import required
from harness.protocol.values import encode_constants, encode_value
from harness.protocol.wire import (
    Construct,
    DeviceTimed,
    DeviceTimeMethod,
    Differentiation,
    Done,
    Failed,
    Load,
    Loaded,
    NamedTensor,
    Precompilation,
    Precompile,
    Ran,
    Rehearse,
    Release,
    Reply,
    Reweigh,
    Reweighing,
    Run,
    Stage,
    TensorRef,
    TimeDevice,
    Wanted,
)
from harness.reasons import Reason
from harness.settings import Settings
from harness.verdict import CodeFrame

_R = TypeVar("_R")

# Building may take minutes, and says so itself when it takes longer (harness.build.torch_toolchain).
LOAD_TIMEOUT_S = 1000.0

# A submission may ask for builds so often while it is loaded: once for each that its import needs at once.
MOST_ORDERS = 64

# A call of a rehearsal may take so much longer than another, since kernels are compiled in it.
COMPILING_S = 120.0


class Runner:
    """A worker with one implementation loaded, and the requests that a case needs."""

    def __init__(
        self,
        device: Device,
        worker: Worker,
        load: Load,
        sha256: str,
        timeout_s: float,
        builds: Builds,
        rehearsal: Sequence[Precompilation] = (),
    ) -> None:
        """Ask for the loading, which begins when the worker has started; do not wait for it.

        `sha256`, of the submission's source, names its builds; it is empty for what builds nothing. What it builds
        comes from `builds`, as far as others may have it. What compiles its kernels when they are first launched is
        called in the forms of `rehearsal` as soon as it is loaded."""
        self.device = device
        self.timeout_s = timeout_s
        self.worker = worker
        self._sha256 = sha256
        self._file, self._source = "", b""
        self._rehearsal = rehearsal
        self._builds = builds
        self._check = load.check
        self.launches_graphs = load.kind == against.WITH_GRAPHS
        """Whether its calls are CUDA graphs by themselves, which nothing can capture."""
        self.version = ""
        self.reader: Reader = device.reader(worker.pid)
        worker.tell(self._placed(load) if sha256 else load)

    @property
    def trusted(self) -> bool:
        """Whether the worker runs our own code and the problem's, and nothing of a submission's."""
        return not self._sha256

    def _placed(self, load: Load) -> Load:
        """`load` with the worker's copy of the submission and its folder for builds."""
        source = load.file
        self._file, self._source = one_line(source.name), source.read_bytes()
        copy = self.worker.home.place(self._file, self._source)
        builds = self.worker.home.lend_builds(self._sha256)
        return msgspec.structs.replace(load, path=bytes(copy), build_cache=str(builds))

    def frame(self, error: Stopped) -> CodeFrame | None:
        """The lines of the submission that an error is about, from what it was judged by."""
        return code_frame(self._source, self._file, error.places, error.message)

    @property
    def has_answered(self) -> bool:
        """Whether there is an answer to hear; there is none before the worker has started."""
        return self.worker.has_answered

    def finish_loading(self, meanwhile: Callable[[Callable[[], bool]], None] = lambda stop: None) -> Loaded:
        """Wait for the build and the rehearsal, with `meanwhile` doing something else until what it is given says that
        there is an answer. Raises SubmissionError and Inconclusive; HarnessError when the worker could not start or had
        no room."""
        self.worker.wait_until_ready()
        said = self.worker.hear(LOAD_TIMEOUT_S)
        build_s, is_new, asked = 0.0, False, 0
        while isinstance(said, Wanted) and asked < MOST_ORDERS:
            order = self._builds.asked_for(said, check=self._check)
            self.worker.tell(order.finish(meanwhile, self.worker.home.hand_build))
            build_s, is_new, asked = build_s + order.seconds, is_new or order.is_new, asked + 1
            meanwhile(lambda: self.has_answered)
            said = self.worker.hear(LOAD_TIMEOUT_S)
        if isinstance(said, Failed) and said.reason != Reason.UNSUPPORTED_BY_EMULATOR:
            self.worker.require_room()
        reply = self._required(said, Loaded)
        self.version = reply.version
        if self._sha256 and reply.built and (asked or not reply.build_cached):
            self.worker.home.keep_builds(self._sha256)
        reply = msgspec.structs.replace(
            reply, build_seconds=reply.build_seconds + build_s, build_cached=reply.build_cached and not is_new
        )
        if self._rehearsal:
            self._rehearse()
        return reply

    def _required(self, reply: Reply, kind: type[_R]) -> _R:
        """Raises SubmissionError, and Inconclusive for what the emulator cannot do."""
        return required(reply, kind, emulated=self.device.name == "emulator")

    def start_precompiling(self, precompilations: Sequence[Precompilation]) -> None:
        """Have the worker compile what will be timed, once it has loaded; `finish_precompiling` waits for it."""
        self.worker.tell(Precompile(precompilations=list(precompilations)))

    def finish_precompiling(self) -> None:
        """Raises SubmissionError."""
        self._required(self.worker.hear(LOAD_TIMEOUT_S), Done)

    def _rehearse(self) -> None:
        """Have a submission called on zeros, while it may start compilers: in as many forms as fit into the time for
        loading. Raises SubmissionError."""
        ends_s = time.monotonic() + LOAD_TIMEOUT_S
        try:
            for form in self._rehearsal:
                if time.monotonic() > ends_s:
                    break
                self._required(self.worker.ask(Rehearse(form), self.timeout_s + COMPILING_S), Done)
            self.worker.require_alone()
        except SubmissionError as error:
            raise SubmissionError(
                error.reason, f"While it was rehearsed on zeros: {error.message}", error.places
            ) from error

    def construct(self, reference: Reference, state: Sequence[TensorRef], *, beside: bool = False) -> None:
        """Build the model on weights that lie where `state` says, in the reference's order; `beside` those that there
        are. Raises SubmissionError."""
        request = Construct(
            arena=self.device.arena.ref,
            init=encode_value(tuple(reference.init)),
            state=_named(reference, state),
            dtype=model_dtype(reference.case),
            beside=beside,
            shapes=[list(shape) for shape in reference.case.shapes] if self.trusted else [],
        )
        self._construct(request)

    def construct_to_stand_by(self, reference: Reference, init: Sequence[Any]) -> None:
        """Build a model with other arguments of the constructor, which is never called. Raises SubmissionError."""
        self._construct(
            Construct(
                arena=self.device.arena.ref,
                init=encode_value(tuple(init)),
                state=[],
                dtype=model_dtype(reference.case),
                beside=True,
                stands_by=True,
            )
        )

    def _construct(self, request: Construct) -> None:
        self._required(self.worker.ask(request, self.timeout_s), Done)
        if not self.trusted:
            self.worker.require_alone()

    def reweigh(self, reference: Reference, state: Sequence[TensorRef], how: Reweighing) -> None:
        """Give the model that is staged the weights that lie where `state` says. Raises SubmissionError."""
        request = Reweigh(self.device.arena.ref, _named(reference, state), how)
        self._required(self.worker.ask(request, self.timeout_s), Done)

    def stage(
        self,
        buffers: list[list[TensorRef]],
        results: Sequence[Form],
        call: str = "forward",
        differentiation: Differentiation | None = None,
        train: bool = True,
        constants: Mapping[int, Any] | None = None,
        model: int = 0,
    ) -> None:
        """Stage buffers, each of inputs and then upstream gradients; calls give `results`. `call`, `differentiation`,
        `train`, `constants` and `model` are those of wire.Stage. Raises SubmissionError."""
        request = Stage(
            arena=self.device.arena.ref,
            buffers=buffers,
            results=[TensorRef(0, list(form.shape), list(form.stride), dtype_name(form.dtype)) for form in results],
            alone=any(form.alone for form in results),
            call=call,
            differentiation=differentiation,
            train=train,
            constants=encode_constants(constants or {}),
            model=model,
            infers=any(form.infers for form in results),
        )
        self._required(self.worker.ask(request, self.timeout_s), Done)

    def observe(self, request: Run) -> Ran:
        """One call of what is staged, after its outputs' memory was poisoned. Raises SubmissionError."""
        return self._required(self.worker.ask(request, self.timeout_s), Ran)

    def time_device(self, buffers: Sequence[int], method: DeviceTimeMethod, *, more: bool) -> DeviceTimed:
        """The device's time for a call as the worker tells it, see wire.TimeDevice. Raises SubmissionError."""
        self.reader.forget()
        return self._required(self.worker.ask(TimeDevice(list(buffers), method, more), self.timeout_s), DeviceTimed)

    def release(self, *, everything: bool = False) -> None:
        """Have the worker let go of the case, and with `everything` of what PyTorch keeps for later."""
        self.reader.forget()
        # There is nothing in it that an emulator may lack.
        required(self.worker.ask(Release(everything), self.timeout_s), Done)

    def end(self) -> None:
        self.worker.end()


def _named(reference: Reference, state: Sequence[TensorRef]) -> list[NamedTensor]:
    needless = reference.needless
    return [NamedTensor(name, ref, name in needless) for name, ref in zip(reference.state, state, strict=True)]


def dtype_name(dtype: torch.dtype) -> str:
    """torch's name without its module."""
    return str(dtype).removeprefix("torch.")


def model_dtype(case: Case) -> str:
    """The dtype that a model for `case` is converted to; empty where it stays as it was built."""
    kept = case.from_functions or case.parameter_dtype is torch.float32
    return "" if kept else dtype_name(case.parameter_dtype)


def precompilation(problem: Problem, case: Case) -> Precompilation:
    """What `case` will call, without its data."""
    dtypes = case.dtypes or [case.dtype] * len(case.shapes)
    inputs = [
        TensorRef(
            elements_before(case.layout_of(position)) * dtype.itemsize,
            list(shape),
            list(strides(shape, case.layout_of(position))),
            dtype_name(dtype),
        )
        for position, (shape, dtype) in enumerate(zip(case.shapes, dtypes, strict=True))
    ]
    return Precompilation(
        encode_value(tuple(problem.init_args(case, 0))),
        inputs,
        model_dtype(case),
        gradients=problem.gradients is not None,
        constants=encode_constants(case.constants),
        upstream=case.upstream,
    )


def load_request(kind: str, path: Path, problem: Problem, settings: Settings) -> Load:
    return Load(
        kind=kind,
        path=bytes(path),
        build_cache="",
        check=settings.check,
        kernel_s=settings.timeout_s / 3,
        allowed_ops=sorted(problem.allowed_ops),
        forbidden_ops=sorted(problem.forbidden_ops),
    )
