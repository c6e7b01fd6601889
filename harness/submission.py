"""A submission file, read as text: the judging process never imports it."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from harness.errors import NOT_PARSED, UsageError
from harness.paths import SUBMISSIONS


@dataclass(frozen=True)
class Submission:
    """`name` is how reports call it; `uses_cuda` whether it needs a CUDA device, real or emulated."""

    name: str
    path: Path
    source: str
    sha256: str
    uses_cuda: bool


def read_submission(path: Path) -> Submission:
    """Raises UsageError when the file cannot be read as text."""
    try:
        data = path.read_bytes()
        source = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The submission {path} cannot be read: {error}.") from error
    return Submission(
        name=path.stem,
        path=path.resolve(),
        source=source,
        sha256=hashlib.sha256(data).hexdigest(),
        uses_cuda=_uses_cuda(source),
    )


def _uses_cuda(source: str) -> bool:
    """Whether any code, comments aside, speaks of CUDA: a `cuda_sources` argument, `.cuda()`, "cuda"."""
    try:
        tree = ast.parse(source)
    except NOT_PARSED:
        return "cuda" in source
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "cuda_sources":
            return not (isinstance(node.value, ast.Constant) and not node.value.value)
        if isinstance(node, ast.Attribute) and node.attr == "cuda":
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda"):
            return True
    return False


def find_submissions(paths: list[Path]) -> list[Path]:
    """The submission files that `paths` (files and folders) name; all of submissions/ for none.

    Raises UsageError for a path that does not exist.
    """
    found: list[Path] = []
    for path in paths or [SUBMISSIONS]:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*.py") if not p.name.startswith(("_", ".")))
        elif path.exists():
            found.append(path)
        else:
            raise UsageError(f"There is no file or folder {path}.")
    return list(dict.fromkeys(found))
