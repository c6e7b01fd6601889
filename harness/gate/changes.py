"""Which files a change touches, as git tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.errors import UsageError


def changed_since(ref: str, root: Path) -> set[Path]:
    """The files and submodules that differ from where HEAD and `ref` parted, in the index and in the folder too, and
    those that git does not know yet. Raises UsageError where git cannot tell."""
    top = Path(_git(root, "rev-parse", "--show-toplevel").strip())
    base = _git(root, "merge-base", "--end-of-options", ref, "HEAD").strip()
    differing = _git(top, "diff", "--name-only", "--no-renames", "--ignore-submodules=none", "-z", base)
    unknown = _git(top, "ls-files", "--others", "--exclude-standard", "-z")
    return {(top / name).resolve() for name in (differing + unknown).split("\0") if name}


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"--since asks git, which cannot be started: {error.strerror}.") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UsageError(
            f"--since: git {words[0]} in {folder} says: {said}. A shallow checkout does not have the history that is "
            "compared with: fetch it, on GitHub with fetch-depth: 0."
        )
    return done.stdout
