"""Which submissions a gate judges, each to which problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError, one_line
from harness.gate.config import Config
from harness.gate.values import Remark
from harness.paths import PROBLEMS, shown_path
from harness.submission import Submission, find_submissions, read_submission


@dataclass(frozen=True)
class Target:
    """A submission, and one of the problems that it is for."""

    submission: Submission
    problem: Path


def find_targets(paths: Sequence[Path], config: Config, root: Path) -> list[Target]:
    """What `paths` hold, or `submissions/` in `root`; each file is for the problem named like its folder, and for those
    that its ALSO_FOR names. Where the configuration lists problems, others are passed over.

    Raises UsageError for a path, a folder or a problem that does not exist, and for a file that is for none."""
    problems = _problems(config, root)
    own = root / "submissions"
    if not paths and not own.is_dir():
        raise UsageError(
            f"There is no folder submissions/ in {root}. Start the gate in the folder that has it, or give the files "
            "or folders that it is to judge."
        )
    found = find_submissions(list(paths) or [own])
    files = [path for path in found if path.resolve() not in problems.values()]
    return [
        Target(submission, problem)
        for submission in map(read_submission, files)
        for problem in _problems_of(submission, problems, listed=bool(config.problems))
    ]


def _problems(config: Config, root: Path) -> dict[str, Path]:
    """By name; those in `root` go before those that ship with the judge."""
    own = root / "problems"
    if not config.problems:
        return {path.stem: path.resolve() for folder in (PROBLEMS, own) for path in sorted(folder.glob("*.py"))}
    return {path.stem: path for path in (_named(name, root) for name in config.problems)}


def _named(name: str, root: Path) -> Path:
    tried = (
        [root / name] if name.endswith(".py") else [folder / f"{name}.py" for folder in (root / "problems", PROBLEMS)]
    )
    for path in tried:
        if path.is_file():
            return path.resolve()
    raise UsageError(f"problems lists '{one_line(name)}', and there is no file {' or '.join(map(str, tried))}.")


def _problems_of(submission: Submission, problems: Mapping[str, Path], *, listed: bool) -> list[Path]:
    named = dict.fromkeys([submission.path.parent.name, *submission.also_for])
    found = [problems[name] for name in named if name in problems]
    if not found and not listed:
        known = ", ".join(sorted(problems))
        raise UsageError(
            f"Which problem is {submission.path} for? No problem is named like its folder, "
            f"'{one_line(submission.path.parent.name)}'. Put it in a folder of such a name, or add the problem's file "
            f"to problems/: {known}."
        )
    return found


def touched(targets: Sequence[Target], changed: Set[Path], config_file: Path) -> list[Target]:
    """Those that a change can have another verdict on: of a changed file, to a changed problem, or all where the
    configuration changed."""
    if _has_changed(config_file, changed):
        return list(targets)
    return [t for t in targets if _has_changed(t.submission.path, changed) or _has_changed(t.problem, changed)]


def moved_measures(targets: Sequence[Target], changed: Set[Path], config_file: Path) -> list[Remark]:
    """Of a change that may move what submissions are measured by: a problem of `targets`, or the configuration."""
    measures = {target.problem: "what is right" for target in targets} | {config_file.resolve(): "the rules"}
    return [
        Remark(shown_path(path), f"this change touches it, and so decides {what}. Look at it before you merge.")
        for path, what in measures.items()
        if _has_changed(path, changed)
    ]


def in_place_of_shipped(targets: Sequence[Target]) -> list[Remark]:
    """Of problems of `targets` that are called like one that ships with the judge, and are another."""
    problems = dict.fromkeys(target.problem for target in targets)
    shipped = {path: PROBLEMS / path.name for path in problems if (PROBLEMS / path.name).is_file()}
    return [
        Remark(shown_path(path), f"it differs from the {path.stem} that ships with kernelgate.")
        for path, own in shipped.items()
        if path.read_bytes() != own.read_bytes()
    ]


def _has_changed(file: Path, changed: Set[Path]) -> bool:
    """Of a submodule git names the folder alone, and any file in it may have changed."""
    return not changed.isdisjoint({file.resolve(), *file.resolve().parents})
