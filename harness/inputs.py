"""Input distributions that a case can ask for by name.

A distribution is a function of a shape, a dtype and a generator that returns a contiguous tensor on the
generator's device. The dtype is float32, or float64 in a case of float64; `draw` converts what it gets to the
case's. Rows lie along the first dimension. To add one, write the function and name it in DISTRIBUTIONS. Each
docstring says what its distribution is for; docs/judging.md has the figures.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Draw = Callable[[tuple[int, ...], torch.dtype, torch.Generator], torch.Tensor]


def _normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=generator, device=generator.device)


def _column(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """One random number a row, shaped to broadcast over the rest."""
    return _normal((shape[0],) + (1,) * (len(shape) - 1) if shape else (), dtype, generator)


def normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(0, 1)."""
    return _normal(shape, dtype, generator)


def uniform(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """U(0, 1), what KernelBench's own files draw."""
    return torch.rand(shape, dtype=dtype, generator=generator, device=generator.device)


def rows(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """A random offset and scale for each row: statistics that are constant or sampled show."""
    scale = torch.exp(_column(shape, dtype, generator))
    return _normal(shape, dtype, generator) * scale + 3 * _column(shape, dtype, generator)


def large_mean(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(1e4, 1): E[x^2] - m^2 cancels away every digit in fp32."""
    return _normal(shape, dtype, generator) + 1e4


def narrow(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(1000, 0.1): the variance is far below the square of the mean's rounding error."""
    return _normal(shape, dtype, generator) * 0.1 + 1000


def outlier(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(5, 1) with 1e4 at the first element of each row: shifting by x[0] alone fails."""
    x = _normal(shape, dtype, generator) + 5
    if x.numel():
        x.reshape(shape[0] if shape else 1, -1)[:, 0] = 1e4
    return x


def blocks(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Runs of 256 elements with means of their own: a merge without the between-block term fails."""
    x = _normal(shape, dtype, generator)
    flat = x.reshape(-1)
    count = -(-flat.numel() // 256)
    means = 10 * _normal((count,), dtype, generator)
    return (flat + means.repeat_interleave(256)[: flat.numel()]).reshape(shape)


def constant(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Each row one value: the variance is zero and eps alone decides."""
    return _column(shape, dtype, generator).expand(shape).contiguous()


def negative(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(-5, 0.5): where an activation is nearly 0, and with it what a result may be off. Another activation, such as
    x * sigmoid(1.702 x) for GELU, shows there in 16 bits, too."""
    return _normal(shape, dtype, generator) * 0.5 - 5.0


def tiny(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(0, 1) times 1e-20: the variance is subnormal in fp32, so eps decides."""
    return _normal(shape, dtype, generator) * 1e-20


def huge(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(0, 1) times 1e15: squares reach 1e31, and eps counts for nothing."""
    return _normal(shape, dtype, generator) * 1e15


def non_finite(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """N(0, 1) with one NaN in the first row and one Inf in the last: they must stay in their rows."""
    x = _normal(shape, dtype, generator)
    if x.numel():
        view = x.reshape(shape[0] if shape else 1, -1)
        view[0, view.shape[1] // 2] = float("nan")
        view[-1, -1] = float("inf")
    return x


DISTRIBUTIONS: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        normal, uniform, rows, large_mean, narrow, outlier, blocks, constant, negative, tiny, huge, non_finite,
    )
}  # fmt: skip

DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    )
}


def drawn_in(dtype: torch.dtype) -> torch.dtype:
    """What random numbers for tensors of `dtype` are drawn in. Sums of float32's numbers in float64 round in the same
    direction again and again: adding 32,400 numbers of `blocks` in order was off by the whole tolerance, and by a
    quarter of it with numbers of float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def draw(distribution: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """A contiguous tensor of `shape` and `dtype` on the generator's device."""
    return DISTRIBUTIONS[distribution](shape, drawn_in(dtype), generator).to(dtype)
