"""References that multiply matrices or convolve, and how far sums of many products may be off."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from harness.judging.operators import Operators

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
        _known[kind] = _has_products(model, inputs)
    return _known[kind]


def _has_products(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    watched = copy.deepcopy(model)
    given: list[Any] = []
    for module in watched.modules():  # a training step gives gradients, and what it differentiates stands inside it
        module.register_forward_hook(lambda _module, _inputs, output: given.append(output))
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
    devices = [t.device for t in inputs[:1] if t.is_cuda]
    with contextlib.suppress(RuntimeError, NotImplementedError), torch.enable_grad(), torch.random.fork_rng(devices):
        watched(*[leaf.clone() for leaf in leaves])
    tensors = [t for output in given for t in (output if isinstance(output, tuple | list) else [output])]
    starts = [t.grad_fn for t in tensors if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    return not starts or any(_is_product(node) for node in _graph(starts))


def _is_product(node: Any) -> bool:
    name = node.name().partition("Backward")[0].lower()
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


class RoundedSums(Operators):
    """Changes products and convolutions by what adding their terms one after the other rounds away, signs at random.

    A sum of K terms is rounded K times, by eps / 2 of what it has come to, which is up to the norms of both factors
    together: sqrt(K sum of squares of the terms). Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    section 4.2, with errors of random sign."""

    def __init__(self, eps: float, generator: torch.Generator) -> None:
        super().__init__()
        self._eps = eps
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _FACTORS:
            squares, terms = _sums_of_squares(func, args)
            signs = torch.randint(0, 2, result.shape, generator=self._generator, device=result.device) * 2 - 1
            result = result + signs * (self._eps / 2) * (terms * squares).sqrt()
        return result


_aten = torch.ops.aten

# Where the factors stand among an operator's arguments.
_FACTORS = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _aten.convolution.default: (0, 1),
}


def _sums_of_squares(func: Any, args: Sequence[Any]) -> tuple[torch.Tensor, int]:
    """For each element of a product the sum of its terms' squares, and how many terms it has."""
    one, other = (args[position] for position in _FACTORS[func])
    if func is not _aten.convolution.default:
        return one.square() @ other.square(), other.shape[-2]
    transposed = args[6]
    squares = func(one.square(), other.square(), None, *args[3:])
    return squares, math.prod(other.shape) // other.shape[1 if transposed else 0]
