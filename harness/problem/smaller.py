"""A case with a smaller first dimension, for a machine that has no room for all of it."""

from __future__ import annotations

from dataclasses import replace

import torch

from harness.problem.values import Case, Problem


def with_batch(problem: Problem, case: Case, batch: int) -> Case | None:
    """`case` with `batch` in place of the first dimension that its first input and maybe others have; None where
    get_inputs() cannot be had to give that. Whether the reference takes it is another question."""
    whole = case.shapes[0][0]
    shapes = tuple((batch, *shape[1:]) if shape[:1] == (whole,) else shape for shape in case.shapes)
    smaller = replace(case, shapes=shapes, scaled=None, emulated=None, whole_batch=whole)
    if case.from_functions:
        try:
            drawn = problem.draw_inputs(smaller, 0, torch.device("meta"))
        except Exception:  # whatever a problem's author may have written
            return None
        if tuple(tuple(t.shape) for t in drawn) != shapes:
            return None
    return smaller
