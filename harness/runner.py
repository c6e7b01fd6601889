"""A worker with one implementation loaded, and the requests that judging makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import oracle
from harness.device.base import Device, Reader
from harness.draw import Drawn
from harness.errors import SubmissionError
from harness.paths import build_cache, emulator_cache
from harness.problem import Problem
from harness.sandbox import Worker
from harness.settings import Settings
from harness.wire import (
    Construct,
    Failed,
    Load,
    Loaded,
    NamedTensor,
    Ran,
    Release,
    Run,
    Stage,
    TensorRef,
    WireFinding,
    encode_value,
)

# Building may take minutes, and says so itself when it takes longer (harness.build.torch_toolchain).
LOAD_TIMEOUT_S = 1000.0


class Runner:
    """A worker with one implementation loaded, and the requests that a case needs."""

    def __init__(self, device: Device, load: Load, timeout_s: float) -> None:
        self.device = device
        self.timeout_s = timeout_s
        self.worker = Worker(device.arena_fd, keeps_compile_cache=load.kind == "compile")
        self.reader: Reader = device.reader(self.worker.pid)
        self._load = load
        self.worker.tell(load)

    def finish_loading(self) -> Loaded:
        """Wait for the build. Raises SubmissionError."""
        reply = _require(self.worker.hear(LOAD_TIMEOUT_S))
        assert isinstance(reply, Loaded)
        return reply

    def construct(self, drawn: Drawn, state: Sequence[TensorRef]) -> None:
        dtypes = {str(t.dtype).removeprefix("torch.") for t in drawn.state.values()}
        changes = {"float32"} if not dtypes else dtypes
        request = Construct(
            arena=self.device.arena.ref,
            init=encode_value(tuple(drawn.init)),
            state=[NamedTensor(n, ref) for n, ref in zip(drawn.state, state, strict=True)],
            dtype=changes.pop() if len(changes) == 1 and "float32" not in changes else "",
        )
        _require(self.worker.ask(request, self.timeout_s))

    def stage(self, slots: list[list[TensorRef]], expected: Sequence[oracle.Expected]) -> None:
        results = [
            TensorRef(0, list(e.shape), list(e.stride), str(e.dtype).removeprefix("torch.")) for e in expected
        ]
        _require(
            self.worker.ask(Stage(arena=self.device.arena.ref, slots=slots, results=results), self.timeout_s)
        )

    def observe(self, order: str, seed: int) -> Ran:
        request = Run(slots=[0], observed=True, order=order, order_seed=seed)
        reply = _require(self.worker.ask(request, self.timeout_s))
        assert isinstance(reply, Ran)
        return reply

    def release(self) -> None:
        self.reader.forget()
        _require(self.worker.ask(Release(), self.timeout_s))

    def end(self) -> None:
        self.worker.end()


def _require(reply: object) -> object:
    """`reply`, unless it is a failure: then SubmissionError with its reason."""
    if isinstance(reply, Failed):
        raise SubmissionError(*_first_finding(reply.findings, reply.reason, reply.message))
    return reply


def _first_finding(findings: Sequence[WireFinding], reason: str, message: str) -> tuple[str, str]:
    """A device's finding names the defect better than the exception that it caused."""
    if not findings:
        return reason, message
    return findings[0].kind, findings[0].message


def load_request(
    kind: str, device: Device, path: Path, sha256: str, problem: Problem, settings: Settings
) -> Load:
    return Load(
        kind=kind,
        device=device.name,
        path=str(path),
        build_cache=str(build_cache(sha256)),
        emulator_cache=str(emulator_cache()),
        check=settings.check,
        allowed_ops=sorted(problem.allowed_ops),
    )
