"""Reading a problem file.

Problem files are trusted: they run in the judging process. The convention is KernelBench's (`Model`,
`get_inputs`, `get_init_inputs`); `CASES` and `random_cases` extend it, see docs/problems.md.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from harness.errors import name_of
from harness.problem import declarations
from harness.problem.cases import read_cases
from harness.problem.file import import_file, model_of
from harness.problem.values import Problem


def load_problem(path: Path, random_seed: int) -> Problem:
    """Load a problem file; `random_seed` decides the shapes of its `random_cases`.

    Raises UsageError with a sentence when the file is missing or does not follow the convention. What it prints goes
    to standard error, where it stands in no report's way."""
    with contextlib.redirect_stdout(sys.stderr):
        return _loaded(path, random_seed)


def _loaded(path: Path, random_seed: int) -> Problem:
    module = import_file(path)
    model = model_of(path, module)
    declarations.refuse_misspelt_settings(path, module)
    cases = read_cases(path, module, random_seed)
    return Problem(
        name=name_of(path),
        path=path,
        model=model,
        cases=cases,
        allowed_ops=declarations.operators(path, module, "ALLOWED_OPS"),
        forbidden_ops=declarations.operators(path, module, "FORBIDDEN_OPS"),
        gradients=declarations.gradients(path, module, cases),
        deterministic=bool(getattr(module, "DETERMINISTIC", False)),
        random=declarations.random_outputs(path, module),
        tolerance_factor=declarations.tolerance_factor(path, module),
        get_inputs=getattr(module, "get_inputs", None),
        get_init_inputs=getattr(module, "get_init_inputs", None),
    )
