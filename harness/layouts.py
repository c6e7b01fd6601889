"""How a tensor may lie in memory, by name. Imports nothing, so that the judge and its workers may both read it."""

from __future__ import annotations

# What a case's inputs may ask for, see `strides` and `elements_before`.
LAYOUTS = ("contiguous", "transposed", "offset")

# What it may ask for an upstream gradient: `expanded` is one number with strides of 0, as y.sum().backward() sends it.
UPSTREAM_LAYOUTS = ("contiguous", "transposed", "expanded")

# How what is not contiguous lies a second time. `sliced` is a part of a larger tensor, as y[:, :n, :d] is: the last
# stride is 1, and rows, and matrices of rows, lie further apart than they are long, by numbers of elements to which no
# vector fits. Not dense, so that no timed case has it: a round's data are what lies in memory.
SLICED = "sliced"

# For upstream gradients that were `expanded`: one row seen everywhere, as y.sum(0).backward() sends it to a
# y of two dimensions.
ROWS = "rows"

# Layouts in which an element of memory is several of the tensor: tensors for them have strides of 0 already.
SHARED = ("expanded", ROWS)


def strides(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Strides, in elements, of a tensor of `shape`. `transposed` swaps the last two dimensions in memory: the tensor
    is dense and not contiguous. `sliced` is a part of a tensor whose rows are twice as long and one element longer,
    and whose matrices have a row more. `expanded` is one element seen everywhere, `rows` one row. Other layouts are
    contiguous."""
    if layout == "expanded":
        return (0,) * len(shape)
    if layout == ROWS:
        return (*(0 for _ in shape[:-1]), *(1 for _ in shape[-1:]))
    order = list(range(len(shape)))
    if layout == "transposed" and len(shape) >= 2:
        order[-1], order[-2] = order[-2], order[-1]
    result = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        result[dim] = step
        size = max(shape[dim], 1)
        if layout == SLICED and dim == len(shape) - 1:
            size = 2 * size + 1
        elif layout == SLICED and dim == len(shape) - 2:
            size += 1
        step *= size
    return tuple(result)


def elements_before(layout: str) -> int:
    """Elements between an aligned address and the tensor: `offset` has one, as a view of a batch may."""
    return 1 if layout == "offset" else 0
