"""A submission file, read as text: the judging process never imports it."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from harness.errors import NOT_PARSED, UsageError, one_line
from harness.paths import SUBMISSIONS

# Of a longer source it is not worked out what it uses: its tree would have up to 500 times as many bytes.
MAX_PARSED_BYTES = 1 << 20


@dataclass(frozen=True)
class Submission:
    """`name` is how reports call it; `uses_cuda` whether it needs a CUDA device, real or emulated."""

    name: str
    path: Path
    sha256: str
    uses_cuda: bool


def read_submission(path: Path) -> Submission:
    """Raises UsageError when the file cannot be read. Whether it is Python, its worker finds out."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UsageError(f"The submission {path} is no file.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The submission {path} cannot be read: {error}.") from error
    return Submission(
        name=one_line(path.stem),
        path=path.resolve(),
        sha256=hashlib.sha256(data).hexdigest(),
        uses_cuda=_uses_cuda(data),
    )


def _uses_cuda(source: bytes) -> bool:
    """Whether any code, comments aside, speaks of CUDA: a `cuda_sources` argument, `.cuda()`, "cuda"."""
    if len(source) > MAX_PARSED_BYTES:
        return b"cuda" in source
    try:
        tree = ast.parse(source)
    except NOT_PARSED:
        return b"cuda" in source
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "cuda_sources":
            return not (isinstance(node.value, ast.Constant) and not node.value.value)
        if isinstance(node, ast.Attribute) and node.attr == "cuda":
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda"):
            return True
    return False


def find_submissions(paths: list[Path], problem: Path | None = None) -> list[Path]:
    """The submission files that `paths` (files and folders) name; all of submissions/ for none. What else lies in a
    folder under such a name, a folder or a link to nothing, is none; nor is the file of the `problem` that was asked
    for, which may lie beside its submissions.

    Raises UsageError for a path that does not exist.
    """
    found: list[Path] = []
    for path in paths or [SUBMISSIONS]:
        if path.is_dir():
            files = (p for p in path.rglob("*.py") if p.is_file() and not p.name.startswith(("_", ".")))
            found += sorted(p for p in files if p.resolve() != problem)
        elif path.exists():
            found.append(path)
        else:
            raise UsageError(f"There is no file or folder {path}.")
    return list(dict.fromkeys(found))
