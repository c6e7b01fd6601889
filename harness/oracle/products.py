"""References whose results are sums of many terms, and how far such sums may be off."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from harness.oracle.operators import Operators
from harness.oracle.pieces import pieces

# Autograd names its nodes after operators: AddmmBackward0.
_PRODUCTS = {packet.__name__.replace("_", "") for packet in flop_registry}

# Autograd's names of what adds all terms up, losses beside them, and of what may come after it.
_REDUCTIONS = {"sum", "mean", "cumsum"}
_AFTERWARDS = {"div", "mul", "neg", "view", "squeeze", "unsqueeze", "reshape", "flip", "cat"}


@dataclass(frozen=True)
class _Arithmetic:
    """What a reference does: it has products of matrices or convolutions; an output of it is a sum."""

    products: bool
    reductions: bool


_known: dict[tuple[type, ...], _Arithmetic] = {}


def multiplies_matrices(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether the reference has products of matrices or convolutions: operators whose operations PyTorch counts, by
    their names in the graph that autograd makes of a call. Where there is no graph it is taken to have them. Models of
    the same modules have the same answer.

    torch.utils.flop_counter finds the same, and loads torch's compiler for it: a second of an evaluation."""
    return _arithmetic(model, inputs).products


def adds_up(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether an output of the reference is itself a sum, a mean, a running sum or a loss: there the order in which an
    implementation adds shows. Sums inside, as the statistics of a norm, are not meant."""
    return _arithmetic(model, inputs).reductions


def _arithmetic(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> _Arithmetic:
    kind = tuple(type(module) for module in model.modules())
    if kind not in _known:
        _known[kind] = _find_out(model, inputs)
    return _known[kind]


def _find_out(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> _Arithmetic:
    watched = copy.deepcopy(model)
    given: list[Any] = []
    for module in watched.modules():  # a training step gives gradients, and what it differentiates stands inside it
        module.register_forward_hook(lambda _module, _inputs, output: given.append(output))
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
    devices = [t.device for t in inputs[:1] if t.is_cuda]
    with contextlib.suppress(RuntimeError, NotImplementedError), torch.enable_grad(), torch.random.fork_rng(devices):
        watched(*[leaf.clone() for leaf in leaves])
    starts = _nodes(given)
    return _Arithmetic(
        products=not starts or any(_is_product(node) for node in _graph(starts)),
        reductions=any(_ends_in_a_sum(node) for node in _nodes(given[-1:])),  # the whole model's own outputs come last
    )


def _nodes(given: Iterable[Any]) -> list[Any]:
    tensors = [t for output in given for t in (output if isinstance(output, tuple | list) else [output])]
    return [t.grad_fn for t in tensors if isinstance(t, torch.Tensor) and t.grad_fn is not None]


def _operator(node: Any) -> str:
    return node.name().partition("Backward")[0].lower()


def _is_product(node: Any) -> bool:
    name = _operator(node)
    return name in _PRODUCTS or name.startswith("scaleddotproduct")


def _ends_in_a_sum(node: Any) -> bool:
    while _operator(node) in _AFTERWARDS:
        above = [parent for parent, _ in node.next_functions if parent is not None]
        if len(above) != 1:  # what is multiplied by something else is no longer the sum
            return False
        node = above[0]
    return _operator(node) in _REDUCTIONS or _operator(node).endswith("loss")


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
    """Changes products, convolutions and, with `reductions`, sums by what adding their terms one after the other rounds
    away, signs at random.

    A sum of K terms is rounded K times, by eps / 2 of what it has come to. With signs that cancel that is up to the
    root of all squares of the terms; with a mean it grows steadily to the sum S itself, and its squares add up to
    K S^2 / 3. So a sum changes by eps / 2 of sqrt(K (sum of squares + S^2 / 3)). Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd edition, section 4.2, with errors of random sign."""

    def __init__(self, eps: float, generator: torch.Generator, *, reductions: bool = False) -> None:
        super().__init__()
        self._eps = eps
        self._generator = generator
        self._reductions = reductions

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _FACTORS:
            return self._changed(result, *_sums_of_squares(func, args))
        if self._reductions and func in _REDUCING and args[0].is_floating_point():
            terms = _terms(func, args, result)
            squares = func(args[0].square(), *args[1:], **(kwargs or {}))
            return self._changed(result, squares / terms if func in _MEANS else squares, terms)
        if self._reductions and func in _LOSSES:
            loss, *rest = result if isinstance(result, tuple) else [result]
            if loss.dim() == 0:  # added up: terms of one sign, whose squares are little beside that of their sum
                loss = self._changed(loss, torch.zeros_like(loss), args[1].numel())
            return (loss, *rest) if rest else loss
        return result

    def _changed(self, result: torch.Tensor, squares: torch.Tensor, terms: Any) -> torch.Tensor:
        """`result`, sums of `terms` terms each, of which `squares` are the sums of squares."""
        counts = torch.as_tensor(terms, dtype=result.dtype, device=result.device).expand(result.shape)
        for _, (piece, some, count) in pieces(result, squares, counts):
            signs = torch.randint(0, 2, piece.shape, generator=self._generator, device=piece.device, dtype=torch.int8)
            piece += (signs * 2 - 1) * (self._eps / 2) * (count * (some + piece.square() / 3)).sqrt()
        return result


_aten = torch.ops.aten

_MEANS = {_aten.mean.default, _aten.mean.dim}
_REDUCING = {_aten.sum.default, _aten.sum.dim_IntList, _aten.cumsum.default, *_MEANS}
_LOSSES = {  # their second argument has an element for each term
    _aten.mse_loss.default,
    _aten.nll_loss_forward.default,
    _aten.smooth_l1_loss.default,
    _aten.huber_loss.default,
    _aten.binary_cross_entropy.default,
}


def _terms(func: Any, args: Sequence[Any], result: torch.Tensor) -> Any:
    """How many terms each element of a reduction has."""
    if func is not _aten.cumsum.default:
        return args[0].numel() // max(result.numel(), 1)
    if result.dim() == 0:
        return 1
    counts = torch.arange(1, result.shape[args[1]] + 1, dtype=result.dtype, device=result.device)
    return counts.view(-1, *[1] * (result.dim() - 1)).movedim(0, args[1])


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
