"""A worker's answers to the judge's requests: which part of it answers which, and what becomes of exceptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.build import intercept
from harness.build.doors import ForbiddenSymbol, require_no_door
from harness.device.toolchains import toolchain
from harness.protocol.handshake import Handshake
from harness.protocol.testimony import Witness
from harness.protocol.wire import (
    Capture,
    Construct,
    Done,
    Failed,
    Load,
    Loaded,
    Name,
    Play,
    Precompile,
    Prepare,
    Rehearse,
    Release,
    Reply,
    Request,
    Reweigh,
    Run,
    Stage,
    TimeDevice,
    Wanted,
)
from harness.worker import devices
from harness.worker.building import ask_for
from harness.worker.device_timing import DeviceTiming
from harness.worker.failures import Failures
from harness.worker.graphs import CapturedCalls
from harness.worker.implementations import LoadFailed
from harness.worker.loading import Implementation
from harness.worker.memory import Memory
from harness.worker.observed import ObservedCalls
from harness.worker.rounds import Rounds
from harness.worker.staged import Staged
from harness.worker.walls.guard import Guard
from harness.worker.walls.seccomp import refuse_processes

# A line of the testimony has room for so much of a C++ name.
MAX_SYMBOL = 1000


class Session:
    """One loaded implementation, and all that is asked of it."""

    def __init__(
        self,
        load: Load,
        device: str,
        memory: Memory,
        handshake: Handshake,
        emulator_cache: Path,
        witness: Witness,
        want: Callable[[Wanted], Request],
    ) -> None:
        """In a submission's worker, forbids operators from here on. `witness` is told what they and the device find.
        `want` asks the judge for builds, while a submission is loaded."""
        guard = Guard(witness, load.allowed_ops, load.forbidden_ops) if load.kind == "submission" else None
        take_forbidden = guard.take_calls if guard else list[str]
        self._check_guard = guard.check if guard else lambda: None
        self._refuses_processes = load.kind == "submission"
        observer = devices.observer(device, memory, witness, load)
        self._device = device
        self._witness = witness
        self._want = want
        self._emulator_cache = emulator_cache
        self._memory = memory
        self._implementation = Implementation(load, memory)
        self._staged = Staged(self._implementation, memory)
        self._observed = ObservedCalls(self._staged, memory, observer, take_forbidden)
        self._graphs = CapturedCalls(self._staged, memory)
        self._rounds = Rounds(self._staged, self._graphs, memory, handshake, take_forbidden)
        self._timing = DeviceTiming(self._staged, memory)
        self._failures = Failures(load.file, take_forbidden, observer, on_gpu=device == "cuda")

    def load(self, load: Load) -> Reply:
        """Build and import what `load` names, or import it alone."""
        if load.dry:
            return self._look_at(load)
        compilers = toolchain(self._device, self._emulator_cache, check=load.check)
        ask = partial(ask_for, want=self._want) if load.kind == "submission" else None
        report = intercept.install(compilers, Path(load.build_cache), load.file, self._looks(load), ask)
        try:
            self._implementation.load()
            report.finish()
        except (Exception, SystemExit) as error:
            return self._failures.of_loading(error)
        self._check_guard()
        return Loaded(
            version=self._implementation.version,
            build_seconds=report.seconds,
            build_cached=report.cached,
            built=report.count > 0,
            kernels=report.kernels,
        )

    def _look_at(self, load: Load) -> Reply:
        """What is wrong with the file's text, as far as importing it shows."""
        report = intercept.install(None, Path(load.build_cache), load.file)
        try:
            self._implementation.load()
        except (Exception, SystemExit) as error:
            if report.tells(error) or (isinstance(error, LoadFailed) and not report.was_needed):
                return self._failures.of_loading(error)
        return Loaded()

    def _looks(self, load: Load) -> Callable[[Path], None]:
        """What sees each extension before it is loaded, and raises ForbiddenSymbol once the judge knows."""

        def look(library: Path) -> None:
            try:
                require_no_door(library, load.allowed_ops, load.forbidden_ops)
            except ForbiddenSymbol as error:
                self._witness.forbidden(str(error)[:MAX_SYMBOL])
                raise

        return look if load.kind == "submission" else lambda library: None

    def answer(self, request: Request) -> Reply:
        """The reply to one request. Whatever the submission raises becomes a Failed."""
        handlers = {
            Precompile: self._implementation.precompile,
            Rehearse: self._rehearse,
            Construct: self._construct,
            Reweigh: self._staged.reweigh,
            Stage: self._stage,
            Run: self._observed.run,
            Prepare: self._staged.prepare,
            Capture: self._graphs.capture,
            Play: self._rounds.play,
            Name: self._rounds.name,
            TimeDevice: self._timing.measure,
            Release: self._release,
        }
        try:
            if isinstance(request, Run | Prepare | Capture | Play | TimeDevice):
                self._refuse_processes()
            return handlers[type(request)](request)  # type: ignore[operator]
        except Exception as error:
            return self._failures.of_answer(error, request)

    def _refuse_processes(self) -> None:
        """What a submission calls in a process of its own no guard sees. It has built its kernels by its first call."""
        if self._refuses_processes:
            refuse_processes()
            self._refuses_processes = False  # once is for good

    def wait_for_device(self) -> Failed | None:
        """Wait until all that was launched has happened; the failure, if it ended in one."""
        try:
            self._memory.synchronize()
        except Exception as error:
            return self._failures.of_device(error)
        return None

    def _stage(self, request: Stage) -> Reply:
        self._graphs.forget()
        return self._staged.stage(request)

    def _rehearse(self, request: Rehearse) -> Reply:
        try:
            return self._failures.rehearsed(lambda: self._implementation.rehearse(request))
        finally:
            self._memory.release()

    def _construct(self, request: Construct) -> Reply:
        self._graphs.forget()
        self._timing.forget()
        return self._staged.construct(request)

    def _release(self, request: Release) -> Reply:
        self._check_guard()
        self._graphs.forget()
        self._staged.forget()
        self._timing.forget()
        self._memory.release(everything=request.everything)
        return Done()
