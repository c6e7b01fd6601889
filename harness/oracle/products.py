"""References that multiply matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from harness.oracle.copies import copied

# Autograd names its nodes after operators: AddmmBackward0.
_PRODUCTS = {packet.__name__.replace("_", "") for packet in flop_registry}

_known: dict[tuple[type, ...], bool] = {}


def multiplies_matrices(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether the reference has products of matrices or convolutions: operators whose operations PyTorch counts, by
    their names in the graph that autograd makes of a call. Where there is no graph it is taken to have them. Models of
    the same modules have the same answer.

    torch.utils.flop_counter finds the same, and loads torch's compiler for it: a second of an evaluation."""
    kind = tuple(type(module) for module in model.modules())
    if kind not in _known:
        _known[kind] = _find_out(model, inputs)
    return _known[kind]


def _find_out(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    watched = copied(model)
    given: list[Any] = []
    for module in watched.modules():  # a training step gives gradients, and what it differentiates stands inside it
        module.register_forward_hook(lambda _module, _inputs, output: given.append(output))
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
    devices = [t.device for t in inputs[:1] if t.is_cuda]
    with contextlib.suppress(RuntimeError, NotImplementedError), torch.enable_grad(), torch.random.fork_rng(devices):
        watched(*[leaf.clone() for leaf in leaves])
    starts = _nodes(given)
    return not starts or any(_is_product(node) for node in _graph(starts))


def _nodes(given: Iterable[Any]) -> list[Any]:
    tensors = [t for output in given for t in (output if isinstance(output, tuple | list) else [output])]
    return [t.grad_fn for t in tensors if isinstance(t, torch.Tensor) and t.grad_fn is not None]


def _operator(node: Any) -> str:
    return node.name().partition("Backward")[0].lower()


def _is_product(node: Any) -> bool:
    name = _operator(node)
    return name in _PRODUCTS or name.startswith("scaleddotproduct")


def _graph(starts: Iterable[Any]) -> Iterator[Any]:
    """The nodes of autograd's graph from `starts` on, each once."""
    waiting = list(starts)
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [above for above, _ in node.next_functions]
            yield node
