"""Hypotheses that a result is wrong in some of its rows or columns, or at its border, and right in all else."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import torch

from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import Border, Places, Region
from harness.oracle.comparison import right

# Of a region so much must be wrong: by chance an element may be right.
WRONG_SHARE = 0.9

# One row at an end, of fewer, may be wrong by chance.
FEWEST_FOR_ONE = 16

# Of so many dimensions, images and volumes, there may be a border.
MOST_BORDERED = 3

PERIODS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def region(evidence: Evidence) -> Iterator[Candidate]:
    """Only some rows, columns, channels, lanes or a tail are wrong, or hold NaN or zero; all else is right."""
    if len(evidence.wrong) == 1:
        position = evidence.wrong[0]
        wrong = _wrong(evidence, position)
        got, splits = evidence.got[position], _splits(wrong.shape)
        dimensions = range(wrong.dim() - 1 if wrong.dim() > 2 else 0)
        ways = itertools.chain(
            (_found(wrong, got, split) for split in splits[:1]),
            (_in_dimension(wrong, got, dimension) for dimension in dimensions),
            (_found(wrong, got, split) for split in splits[1:]),
        )
        yield from (Candidate(found) for found in ways if found)


def border(evidence: Evidence) -> Iterator[Candidate]:
    """Only what is near the border of the last dimensions is wrong, as where a kernel forgets the padding."""
    if len(evidence.wrong) == 1:
        wrong = _wrong(evidence, evidence.wrong[0])
        ways = (_border(wrong, dimensions) for dimensions in range(1, min(wrong.dim(), MOST_BORDERED) + 1))
        yield from (Candidate(found) for found in ways if found)


def _border(wrong: torch.Tensor, dimensions: int) -> Border | None:
    """Where at most half of the elements are so near the border, and nearly all of those are wrong."""
    sizes = wrong.shape[-dimensions:]
    ends = [torch.arange(n, device=wrong.device) for n in sizes]
    from_ends = [torch.minimum(places, places.flip(0)) for places in ends]
    distance = functools.reduce(torch.minimum, torch.meshgrid(*from_ends, indexing="ij"))
    samples = wrong.reshape(-1, *sizes)
    width = int(distance[samples.any(0)].max()) + 1
    near = distance < width
    if near.numel() < FEWEST_FOR_ONE or _share(near) > 0.5:
        return None
    return Border(width=width, dimensions=dimensions) if _share(samples[:, near]) >= WRONG_SHARE else None


def _share(chosen: torch.Tensor) -> float:
    return float(chosen.double().mean())


def _wrong(evidence: Evidence, position: int) -> torch.Tensor:
    expected = evidence.expected[position]
    return ~right(evidence.got[position], expected.values, expected.tolerance)


def _splits(shape: torch.Size) -> list[int]:
    """After which dimensions rows may end: the last but one first, and then the others."""
    return list(range(len(shape) - 1, -1, -1))


def _found(wrong: torch.Tensor, got: torch.Tensor, split: int) -> Region | None:
    grid = wrong.reshape(math.prod(wrong.shape[:split]), -1)
    rows, columns = grid.any(1), grid.any(0)
    some_rows, some_columns = (None if bool(v.all()) else places(v) for v in (rows, columns))
    if (some_rows is None and not bool(rows.all())) or (some_columns is None and not bool(columns.all())):
        return None
    if not some_rows and not some_columns:
        return None
    if _share(grid[rows][:, columns]) < WRONG_SHARE:
        return None
    return Region(content=_content(got[wrong]), split=split, rows=some_rows, columns=some_columns)


def _in_dimension(wrong: torch.Tensor, got: torch.Tensor, dimension: int) -> Region | None:
    """Places of one dimension, such as channels, at which all else of the output is wrong."""
    chosen = wrong.movedim(dimension, 0).flatten(1)
    has_wrong = chosen.any(1)
    some = None if bool(has_wrong.all()) else places(has_wrong)
    if not some or _share(chosen[has_wrong]) < WRONG_SHARE:
        return None
    return Region(content=_content(got[wrong]), split=dimension, columns=some, dimension=dimension)


def places(chosen: torch.Tensor) -> Places | None:
    """Which are chosen, where that can be said in a word: those from an end, or the same ones of every period."""
    count = chosen.numel()
    positions = chosen.nonzero().flatten().tolist()
    start, stop = positions[0], positions[-1] + 1
    if stop - start == len(positions):
        at_an_end = start == 0 or stop == count
        enough = min(len(positions), count - len(positions)) > 1 or count >= FEWEST_FOR_ONE
        return Places(start=start, stop=stop, count=count) if at_an_end and enough else None
    return next(filter(None, (_periodic(chosen, period) for period in PERIODS if 2 * period <= count)), None)


def _periodic(chosen: torch.Tensor, period: int) -> Places | None:
    first = chosen[:period]
    if not bool((chosen[period:] == chosen[:-period]).all()):
        return None
    positions = first.nonzero().flatten().tolist()
    start, stop = positions[0], positions[-1] + 1
    whole = stop - start == len(positions)
    return Places(start=start, stop=stop, count=chosen.numel(), period=period) if whole else None


def _content(values: torch.Tensor) -> str:
    if values.is_floating_point() and bool(values.isnan().all()):
        return "nan"
    return "zero" if bool((values == 0).all()) else "wrong"
