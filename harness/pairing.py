"""Which of a folder's problems a submission is for, where only their names say so."""

from __future__ import annotations

import re
from pathlib import Path

# As KernelBench's generations are called: level_1_problem_40_sample_0_kernel.py, for level1/40_LayerNorm.py.
_GENERATED = re.compile(r"level_?(\d+)_problem_?(\d+)(?!\d)")

# As its problems are: 40_LayerNorm.py.
_NUMBERED = re.compile(r"(\d+)_")


def problems_in(folder: Path) -> list[Path]:
    """The problem files of a folder and of those below it, resolved."""
    return sorted(path.resolve() for path in folder.rglob("*.py") if path.is_file() and path.name[0] not in "._")


def problem_for(submission: Path, problems: list[Path]) -> Path | None:
    """The one of `problems` that is called as the submission's folder, as its file, or whose number a generation of
    KernelBench's has in its name; of several with that number the one in its level's folder. None where none is, or
    more than one."""
    for name in (submission.parent.name, submission.stem):
        if found := [problem for problem in problems if problem.stem == name]:
            return found[0] if len(found) == 1 else None
    generated = _GENERATED.search(submission.stem)
    if not generated:
        return None
    level, number = map(int, generated.groups())
    found = [p for p in problems if (numbered := _NUMBERED.match(p.name)) and int(numbered[1]) == number]
    of_level = [problem for problem in found if problem.parent.name in (f"level{level}", f"level_{level}")]
    chosen = of_level or found
    return chosen[0] if len(chosen) == 1 else None
