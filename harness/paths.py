"""Folders of the harness on this machine."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import platformdirs

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT / "problems"
SUBMISSIONS = ROOT / "submissions"


def problem_called(name: str) -> Path:
    """The problem of that name: one that ships, or else one in problems/ where the program was started, which never
    stands in for a shipped one. It may not be there."""
    shipped, own = (folder / f"{name}.py" for folder in (PROBLEMS, Path.cwd() / "problems"))
    return own if own.is_file() and not shipped.is_file() else shipped


def known_problems() -> list[str]:
    """The names of problems that ship, and of those in problems/ where the program was started."""
    return sorted({path.stem for folder in (PROBLEMS, Path.cwd() / "problems") for path in folder.glob("*.py")})


def usual_submissions() -> Path:
    """submissions/ where the program was started, or else those that ship."""
    own = Path.cwd() / "submissions"
    return own if own.is_dir() else SUBMISSIONS


def no_such_problem(path: Path) -> str:
    """What to say of a problem whose file is not there."""
    if path.is_dir():
        return f"{path} is a folder, and a problem is a .py file. Give that file, or a name in problems/."
    known = known_problems()
    near = difflib.get_close_matches(path.stem, known, 1)
    meant = f"Did you mean '{near[0]}'?" if near else f"Known problems: {', '.join(known) or 'none'}."
    return f"There is no problem file {path}. {meant}"


def cache_root() -> Path:
    """Where built extensions and compiled baselines are kept; KERNELGATE_CACHE moves it."""
    return Path(os.environ.get("KERNELGATE_CACHE") or platformdirs.user_cache_dir("kernelgate")).resolve()


def build_cache(source_sha256: str) -> Path:
    """A submission's own build cache. No two files share one: a submission can only harm itself there."""
    return cache_root() / "build" / source_sha256[:32]


def shared_builds() -> Path:
    """Extensions by the digest of all that decides them, built by processes that ran nothing of a submission."""
    return cache_root() / "shared"


def results_db() -> Path:
    """The database of evaluations; KERNELGATE_DB names another file."""
    named = os.environ.get("KERNELGATE_DB")
    return Path(named or Path(platformdirs.user_data_dir("kernelgate")) / "results.db").expanduser().resolve()


def emulator_cache() -> Path:
    return cache_root() / "emulator"


def judge_cache() -> Path:
    """Where torch's compiler keeps things of the judge's own process, which compiles nothing."""
    return cache_root() / "judge"


def bytecode_cache() -> Path:
    """Bytecode of installations that have none."""
    return cache_root() / "bytecode"


def compile_cache() -> Path:
    """torch.compile's caches, written by baselines only."""
    return cache_root() / "compile"


def turns_folder() -> Path:
    """Where the locks of devices lie: one folder for all users of the machine, whatever TMPDIR says. KERNELGATE_TURNS
    names another."""
    return Path(os.environ.get("KERNELGATE_TURNS") or "/tmp/kernelgate-turns")


def shown_path(path: Path) -> str:
    """How reports name a file: from the checkout of GitHub's runner, or from where the program was started, if it lies
    below; else the whole path. Bytes that are no UTF-8 are replaced: no format of reports has a place for them."""
    return os.fsencode(_below(path)).decode(errors="replace")


def _below(path: Path) -> str:
    for folder in (os.environ.get("GITHUB_WORKSPACE"), os.getcwd()):
        if folder and path.resolve().is_relative_to(Path(folder).resolve()):
            return path.resolve().relative_to(Path(folder).resolve()).as_posix()
    return str(path)
