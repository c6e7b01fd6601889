"""The implementation that a worker was told to load, and the models that it gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from harness import against, peers
from harness.device.views import span
from harness.layouts import elements_before, strides
from harness.protocol.arguments import arguments
from harness.protocol.values import decode_constants, decode_value
from harness.protocol.wire import Done, Load, Precompilation, Precompile, Rehearse, Reply, TensorRef
from harness.worker import implementations
from harness.worker.calls import listed
from harness.worker.memory import Memory
from harness.worker.wrong_arguments import require_fit


class Implementation:
    """A submission, a baseline, a peer or the null kernel."""

    def __init__(self, load: Load, memory: Memory) -> None:
        self.kind = load.kind
        self.version = ""
        """The package behind a peer, and its version."""
        self._path = load.file
        self._memory = memory
        self._factory: implementations.Factory | None = None
        self._compiled: dict[str, torch.nn.Module] = {}
        """Models of torch.compile that nobody uses at the moment, by what they were compiled for."""

    @property
    def is_submission(self) -> bool:
        return self.kind == "submission"

    @property
    def is_null_kernel(self) -> bool:
        """Whether it has no models: the null kernel is built when the form of its results is known."""
        return self.kind == "null_kernel"

    @property
    def launches_graphs(self) -> bool:
        """Whether its calls are CUDA graphs by themselves, which hold the addresses of its parameters."""
        return self.kind == against.WITH_GRAPHS

    def load(self) -> None:
        """Import it. Raises LoadFailed, and what the file raises, BuildFailed and Unsupported among it."""
        if self.kind in peers.DISTRIBUTIONS:
            self._factory, self.version = implementations.peer(self.kind, self._path)
        elif not self.is_null_kernel:
            self._factory = _FACTORIES[self.kind](self._path)

    def model(self, init: Any, dtype: str, shapes: Sequence[Sequence[int]]) -> Any:
        """What it gives for encoded constructor arguments, on the device with parameters of `dtype`; a model that was
        compiled for these and for inputs of `shapes`, if there is one. Should be a Module: a submission may give
        anything."""
        assert self._factory is not None
        compiled = self._compiled.pop(_key(init, dtype, shapes), None)
        if compiled is not None:
            return compiled
        torch.manual_seed(0)
        given = decode_value(init)
        try:
            model = self._factory(*given)
        except TypeError:
            if self.is_submission:
                require_fit(self._factory, "ModelNew", given, "Model is")
            raise
        if not isinstance(model, torch.nn.Module):
            return model
        return model.to(getattr(torch, dtype) if dtype else None).to(self._memory.device)

    def precompile(self, request: Precompile) -> Reply:
        """Build models and call each once on zeros; `model` gives them later."""
        for precompilation in request.precompilations:
            shapes = [ref.shape for ref in precompilation.inputs]
            model = self.model(precompilation.init, precompilation.dtype, shapes)
            assert isinstance(model, torch.nn.Module)
            with torch.set_grad_enabled(precompilation.gradients):
                _call_once(model, self._zeros(precompilation), precompilation.gradients)
            self.take_back(model, precompilation.init, precompilation.dtype, shapes)
        self._memory.synchronize()
        return Done()

    def take_back(self, model: torch.nn.Module, init: Any, dtype: str, shapes: Sequence[Sequence[int]]) -> None:
        """Keep a model of torch.compile that is used no more, since to compile it again takes seconds: `model` gives it
        to who asks for the like next, and who sets its parameters."""
        if self.kind in against.COMPILED:
            self._compiled[_key(init, dtype, shapes)] = model

    def rehearse(self, request: Rehearse) -> Reply:
        """Build a model and call it on zeros: in training and in evaluation, with autograd and without. Raises what the
        last call raised that raised something."""
        form = request.form
        model = self.model(form.init, form.dtype, [ref.shape for ref in form.inputs])
        if not isinstance(model, torch.nn.Module):
            return Done()
        raised: Exception | None = None
        for train, recorded in itertools.product((True, False), (True, False)):
            model.train(train)
            try:
                with torch.set_grad_enabled(recorded):
                    _call_once(model, self._zeros(form), form.gradients and recorded, form.upstream)
            except Exception as error:
                raised = error
        if raised:
            raise raised
        return Done()

    def _zeros(self, form: Precompilation) -> list[Any]:
        """Arguments of `forward`."""
        tensors = [_zeros(ref, self._memory.device) for ref in form.inputs]
        return arguments(tensors, decode_constants(form.constants))


_FACTORIES = {
    "submission": implementations.submission,
    "eager": implementations.eager,
    "compile": implementations.compiled,
    "reduce-overhead": implementations.compiled_with_graphs,
}


def _key(init: Any, dtype: str, shapes: Sequence[Sequence[int]]) -> str:
    return f"{init!r} {dtype} {[list(shape) for shape in shapes]}"


def _call_once(model: torch.nn.Module, inputs: list[Any], gradients: bool, upstream: str = "contiguous") -> None:
    if not gradients:
        model(*inputs)
        return
    for tensor in inputs:
        if isinstance(tensor, torch.Tensor):
            tensor.requires_grad_(tensor.is_floating_point())
    outputs = listed(model(*inputs))
    roots = [output for output in outputs if output.requires_grad]
    torch.autograd.backward(roots, [_upstream(root, upstream) for root in roots])


def _upstream(root: torch.Tensor, layout: str) -> torch.Tensor:
    """An upstream gradient of zeros, by the names of layouts."""
    shape = tuple(root.shape)
    return _lying(shape, strides(shape, layout), elements_before(layout), root.dtype, root.device)


def _zeros(ref: TensorRef, device: torch.device) -> torch.Tensor:
    """Zeros of the form and the alignment of `ref`."""
    dtype = getattr(torch, ref.dtype)
    return _lying(ref.shape, ref.stride, ref.offset // dtype.itemsize, dtype, device)


def _lying(
    shape: Sequence[int], stride: Sequence[int], before: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Zeros of that shape and those strides, so many elements behind an aligned address."""
    stored = torch.zeros(before + span(shape, stride), dtype=dtype, device=device)
    return stored.as_strided(shape, stride, before)
