"""A worker's answers to the judge's requests, one method each."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness import peers
from harness.build import intercept
from harness.build.extension import BuildFailed, Unsupported
from harness.protocol.arguments import arguments
from harness.protocol.handshake import Handshake
from harness.protocol.values import decode_constants, decode_value
from harness.protocol.wire import (
    Construct,
    DeviceTimed,
    Done,
    Failed,
    Load,
    Loaded,
    Name,
    Named,
    Play,
    Played,
    Precompile,
    Prepare,
    Ran,
    Release,
    Reply,
    Request,
    Run,
    Stage,
    TensorRef,
    TimeDevice,
)
from harness.reasons import Reason
from harness.records import Finding, KernelCounts
from harness.worker import device_time, implementations
from harness.worker.calls import Call, InAContainer, NoGradient, Training, forward, listed
from harness.worker.guard import Guard
from harness.worker.memory import EmulatedMemory, HostMemory, Memory
from harness.worker.parameters import CannotCarry, carry

# Longer texts of a submission's own errors are cut: what matters stands at their beginning.
MAX_TEXT = 2000


def open_memory(device: str, arena_fd: int) -> Memory:
    """Reach the device: a CUDA context, emulated memory, or the host's."""
    if device == "cuda":
        from harness.worker.cuda_memory import CudaMemory

        return CudaMemory()
    return EmulatedMemory(arena_fd) if device == "emulator" else HostMemory(arena_fd)


class Session:
    """One loaded implementation and what is staged for it."""

    def __init__(self, load: Load, device: str, memory: Memory, handshake: Handshake, emulator_cache: Path) -> None:
        self._path = Path(load.path)
        self._kind = load.kind
        self._check = load.check
        self._device = device
        self._memory = memory
        self._handshake = handshake
        self._emulator: Any = None
        self._emulator_cache = emulator_cache
        if device == "emulator":
            from harness.device import emulator

            self._emulator = emulator
        self._guard = Guard(load.allowed_ops, load.forbidden_ops) if load.kind == "submission" else None
        self._factory: implementations.Factory | None = None
        self._version = ""
        self._model: torch.nn.Module | None = None
        self._places: dict[str, str] = {}
        self._call: Call | None = None
        self._training: Training | None = None
        self._gradients = False
        self._precompiled: dict[str, torch.nn.Module] = {}
        self._buffers: list[list[torch.Tensor]] = []
        self._results: list[TensorRef] = []
        self._outputs: list[list[torch.Tensor]] = []
        self._device_timer: device_time.DeviceTimer | None = None

    def answer(self, request: Request) -> Reply:
        """The reply to one request. Whatever the submission raises becomes a Failed."""
        handlers = {
            Precompile: self._precompile,
            Construct: self._construct,
            Stage: self._stage,
            Run: self._run,
            Prepare: self._prepare,
            Play: self._play,
            Name: self._name,
            TimeDevice: self._time_device,
            Release: self._release,
        }
        try:
            return handlers[type(request)](request)  # type: ignore[operator]
        except CannotCarry as error:
            return Failed(reason=Reason.PARAMETERS_NOT_CARRIED, message=str(error))
        except InAContainer as error:
            return self._failure(Reason.WRONG_OUTPUT, error, plain=True)
        except NoGradient as error:
            return self._failure(Reason.NO_GRADIENT, error, plain=True)
        except torch.cuda.OutOfMemoryError as error:
            return self._failure(Reason.OUT_OF_MEMORY, error)
        except Exception as error:
            return self._failure(Reason.LOAD_FAILED if isinstance(request, Construct) else Reason.RAISED, error)

    def load(self, load: Load) -> Reply:
        """Build and import what `load` names."""
        report = intercept.install(self._toolchain(load), Path(load.build_cache), self._path)
        try:
            self._factory = self._make_factory()
        except BuildFailed as error:
            return Failed(reason=Reason.BUILD_FAILED, message=str(error)[:MAX_TEXT])
        except Unsupported as error:
            return Failed(reason=Reason.UNSUPPORTED_BY_EMULATOR, message=str(error)[:MAX_TEXT])
        except implementations.LoadFailed as error:
            return Failed(reason=Reason.LOAD_FAILED, message=str(error))
        except (Exception, SystemExit) as error:
            return self._failure(Reason.LOAD_FAILED, error)
        return Loaded(
            version=self._version,
            build_seconds=report.seconds,
            build_cached=report.cached,
            built=report.count > 0,
            kernels=report.kernels,
        )

    def _toolchain(self, load: Load) -> Any:
        if self._emulator is not None:
            return self._emulator.EmulatorToolchain(self._emulator_cache, check=load.check)
        from harness.build.torch_toolchain import TorchToolchain

        return TorchToolchain(cuda=self._device == "cuda")

    def _make_factory(self) -> implementations.Factory | None:
        if self._kind == "submission":
            return implementations.submission(self._path)
        if self._kind == "eager":
            return implementations.eager(self._path)
        if self._kind == "compile":
            return implementations.compiled(self._path)
        if self._kind in peers.DISTRIBUTIONS:
            build, self._version = implementations.peer(self._kind, self._path)
            return build
        return None  # the null kernel is built when its results are known

    def _precompile(self, request: Precompile) -> Reply:
        for precompilation in request.precompilations:
            model = self._build(precompilation.init, precompilation.dtype)
            assert isinstance(model, torch.nn.Module)
            tensors = [_anything(ref, self._memory.device) for ref in precompilation.inputs]
            inputs = arguments(tensors, decode_constants(precompilation.constants))
            with torch.set_grad_enabled(precompilation.gradients):
                _precompile_call(model, inputs, precompilation.gradients)
            self._precompiled[_model_key(precompilation.init, precompilation.dtype)] = model
        self._memory.synchronize()
        return Done()

    def _build(self, init: Any, dtype: str) -> Any:
        """What the factory gives, on the device; a model that was precompiled is used again."""
        assert self._factory is not None
        precompiled = self._precompiled.pop(_model_key(init, dtype), None)
        if precompiled is not None:
            return precompiled
        torch.manual_seed(0)
        model = self._factory(*decode_value(init))
        if not isinstance(model, torch.nn.Module):
            return model
        return model.to(getattr(torch, dtype) if dtype else None).to(self._memory.device)

    def _construct(self, request: Construct) -> Reply:
        self._forget()
        if self._factory is None:
            return Done()
        model = self._build(request.init, request.dtype)
        if not isinstance(model, torch.nn.Module):
            return Failed(
                reason=Reason.LOAD_FAILED,
                message=f"ModelNew(...) gave a {type(model).__name__}; ModelNew must be a torch.nn.Module.",
            )
        source = {item.name: self._memory.tensor(request.arena, item.tensor) for item in request.state}
        self._places = carry(source, getattr(model, "_orig_mod", model))
        self._memory.synchronize()
        self._model = model
        return Done()

    def _stage(self, request: Stage) -> Reply:
        self._outputs = []
        self._results = request.results
        self._buffers = [[self._memory.tensor(request.arena, ref) for ref in buffer] for buffer in request.buffers]
        if self._kind == "null_kernel":
            self._model = implementations.NullKernel(request.results, self._memory.device)
        assert self._model is not None
        self._model.train(request.train)
        self._gradients = request.differentiation is not None and self._kind != "null_kernel"
        self._training = None
        self._call = self._make_call(self._model, request)
        self._memory.synchronize()
        return Done()

    def _make_call(self, model: torch.nn.Module, request: Stage) -> Call:
        constants = decode_constants(request.constants)
        if not self._gradients or request.differentiation is None:
            return forward(model, constants, alone=request.alone and self._kind == "submission")
        # A compiled module holds the model and has its parameters under the same names.
        self._training = Training(model, request.differentiation, _under(model, self._places), constants)
        self._buffers = [self._training.leaves(buffer) for buffer in self._buffers]
        return self._training.call(request.call)

    def _prepare(self, request: Prepare) -> Reply:
        self._outputs = []
        if self._training is not None:
            with torch.enable_grad():
                self._training.prepare([self._buffers[buffer] for buffer in request.buffers])
            self._memory.synchronize()
        return Done()

    def _run(self, request: Run) -> Reply:
        """One observed call."""
        call = self._call
        assert call is not None
        self._outputs = []
        if request.random_seed is not None:
            torch.manual_seed(request.random_seed)
        self._memory.poison(self._results)
        if self._emulator is not None:
            self._emulator.configure(order=request.order, seed=request.order_seed, check=self._check)
            self._emulator.caller_writes(self._buffers[request.buffer])
        try:
            with torch.set_grad_enabled(self._gradients):
                result = call(self._buffers[request.buffer])
        finally:
            self._memory.unpoison()
        if self._emulator is not None:
            self._emulator.caller_reads(result)
            self._emulator.caller_writes(self._buffers[request.buffer])
        self._outputs = [result]
        handles: dict[str, int] = {}
        return Ran(
            outputs=self._memory.export(result, handles),
            handles=list(handles),
            inputs=self._memory.export(self._buffers[request.buffer], {}) if self._emulator is not None else [],
            forbidden=self._guard.take_calls() if self._guard else [],
            findings=self._findings(),
            counts=self._counts(),
        )

    def _play(self, request: Play) -> Reply:
        """A timed round. Nothing stands in its loop but the call and the handshake."""
        call, buffers = self._call, self._buffers
        assert call is not None
        self._outputs = []
        null = self._model if isinstance(self._model, implementations.NullKernel) else None
        with torch.set_grad_enabled(self._gradients):
            for buffer in request.warm_up:
                call(buffers[buffer])
            self._memory.synchronize()
            self._memory.wake()
            if null:
                null.begin_round()
            self._handshake.report_ready(request.handshake)
            results: list[list[torch.Tensor]] = []
            first_done = 0.0
            for buffer in self._handshake.take(request.handshake):
                results.append(call(buffers[buffer]))
                first_done = first_done or time.perf_counter()
            issue_us = (time.perf_counter() - first_done) * 1e6
            if null:
                null.end_round(request.lasts_us)
        self._outputs = results
        return Played(addresses=[[t.data_ptr() for t in result] for result in results], issue_us=issue_us)

    def _name(self, _request: Name) -> Reply:
        handles: dict[str, int] = {}
        outputs = [self._memory.export(result, handles) for result in self._outputs]
        return Named(
            outputs=outputs,
            handles=list(handles),
            forbidden=self._guard.take_calls() if self._guard else [],
            device_us=self._model.device_us() if isinstance(self._model, implementations.NullKernel) else 0.0,
        )

    def wait_for_device(self) -> Failed | None:
        """Wait until all that was launched has happened; the failure, if it ended in one."""
        try:
            self._memory.synchronize()
        except Exception as error:
            return self._failure(Reason.RAISED, error)
        return None

    def _findings(self) -> list[Finding]:
        if self._emulator is None:
            return []
        return self._emulator.take_findings()

    def _counts(self) -> list[KernelCounts]:
        if self._emulator is None:
            return []
        return self._emulator.take_counts()

    def _time_device(self, request: TimeDevice) -> Reply:
        with torch.set_grad_enabled(self._gradients):
            if self._device_timer is None:
                self._outputs = []
                self._memory.trim()  # a graph's results lie elsewhere
                try:
                    self._device_timer = self._make_device_timer(request)
                except RuntimeError:
                    self._memory.synchronize()  # what cannot be captured can be queued
                    return DeviceTimed()
            timer = self._device_timer
            timed = DeviceTimed(call_us=timer.measure(), launches=timer.launches)
        if not request.more or timed.call_us is None:
            del timer
            self._device_timer = None
            self._memory.trim()
        return timed

    def _make_device_timer(self, request: TimeDevice) -> device_time.DeviceTimer:
        assert self._call is not None
        calls = [partial(self._call, self._buffers[buffer]) for buffer in request.buffers]
        return device_time.TIMERS[request.method](calls)

    def _release(self, _request: Release) -> Reply:
        self._forget()
        self._memory.release()
        return Done()

    def _forget(self) -> None:
        self._model = None
        self._call = None
        self._training = None
        self._outputs = []
        self._buffers = []
        self._device_timer = None

    def _failure(self, reason: Reason, error: BaseException, *, plain: bool = False) -> Failed:
        """What the judge is told of an exception; a `plain` one is a sentence that needs no class or line."""
        forbidden = self._guard.take_calls() if self._guard else []
        if forbidden:
            reason = Reason.FORBIDDEN_OP
        elif self._device == "cuda" and "CUDA error" in str(error):
            reason = Reason.CUDA_FAULT
        text = str(error).strip()[:MAX_TEXT] or "no message"
        where = implementations.line_of_error(error, self._path)
        if forbidden:  # what it raised may have been wrapped in other words on its way
            plain, text = (
                True,
                f"{forbidden[0]} must not run in a submission: it is what the submission replaces{where}.",
            )
        return Failed(
            reason=reason,
            message=text if plain else f"{type(error).__name__}{where}: {text}",
            findings=self._findings(),
        )


def _model_key(init: Any, dtype: str) -> str:
    return f"{init!r} {dtype}"


def _under(model: torch.nn.Module, places: dict[str, str]) -> dict[str, str]:
    """`places` as names in `model`, which may be a compiled module around the one that they were found in."""
    prefix = "_orig_mod." if hasattr(model, "_orig_mod") else ""
    return {name: prefix + place for name, place in places.items()}


def _precompile_call(model: torch.nn.Module, inputs: list[Any], gradients: bool) -> None:
    if not gradients:
        model(*inputs)
        return
    for tensor in inputs:
        if isinstance(tensor, torch.Tensor):
            tensor.requires_grad_(tensor.is_floating_point())
    outputs = listed(model(*inputs))
    roots = [output for output in outputs if output.requires_grad]
    torch.autograd.backward(roots, [torch.zeros_like(root) for root in roots])


def _anything(ref: TensorRef, device: torch.device) -> torch.Tensor:
    dtype = getattr(torch, ref.dtype)
    return torch.zeros(ref.shape, dtype=dtype, device=device).as_strided(ref.shape, ref.stride)
