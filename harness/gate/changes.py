"""Which files a change touches, as git tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.errors import UsageError, one_line


def changed_since(ref: str, root: Path) -> set[Path]:
    """The files and submodules that differ from where HEAD and `ref` parted, in the index and in the folder too, and
    those that git does not know yet. Raises UsageError where git cannot tell."""
    top = Path(_git(root, "rev-parse", "--show-toplevel").strip())
    _require(ref, root)
    base = _git(root, "merge-base", "--end-of-options", ref, "HEAD").strip()
    differing = _git(top, "diff", "--name-only", "--no-renames", "--ignore-submodules=none", "-z", base)
    unknown = _git(top, "ls-files", "--others", "--exclude-standard", "-z")
    return {(top / name).resolve() for name in (differing + unknown).split("\0") if name}


def _require(ref: str, folder: Path) -> None:
    """Raises UsageError where there is no such commit."""
    if _started(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").returncode:
        what_to_do = _if_shallow(folder) or " Name one that 'git log' knows, or fetch it."
        raise UsageError(f"--since: there is no commit or branch '{one_line(ref)}' in {folder}.{what_to_do}")


def _git(folder: Path, *words: str) -> str:
    done = _started(folder, *words)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UsageError(f"--since: git {words[0]} in {folder} says: {said.rstrip('.')}.{_if_shallow(folder)}")
    return done.stdout


def _if_shallow(folder: Path) -> str:
    """What to do in a shallow checkout; nothing elsewhere."""
    if _started(folder, "rev-parse", "--is-shallow-repository").stdout.strip() != "true":
        return ""
    return (
        " This is a shallow checkout, which lacks the history that is compared with: fetch it, on GitHub with "
        "fetch-depth: 0."
    )


def _started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"--since asks git, which cannot be started: {error.strerror}.") from error
