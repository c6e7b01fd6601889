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

# So many files are named that are passed over.
SHOWN_FILES = 3


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
    return [
        Target(submission, problem)
        for submission in _submissions(paths, problems, root)
        for problem in _problems_of(submission, problems, listed=bool(config.problems))
    ]


def _submissions(paths: Sequence[Path], problems: Mapping[str, Path], root: Path) -> list[Submission]:
    own = root / "submissions"
    if not paths and not own.is_dir():
        raise UsageError(
            f"There is no folder submissions/ in {root}. Start the gate in the folder that has it, or give the files "
            "or folders that it is to judge."
        )
    found = find_submissions(list(paths) or [own])
    return [read_submission(path) for path in found if path.resolve() not in problems.values()]


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
    found = [problems[name] for name in _names(submission) if name in problems]
    if not found and not listed:
        known = ", ".join(sorted(problems))
        raise UsageError(
            f"Which problem is {submission.path} for? No problem is named like its folder, "
            f"'{one_line(submission.path.parent.name)}'. Put it in a folder of such a name, or add the problem's file "
            f"to problems/: {known}."
        )
    return found


def _names(submission: Submission) -> list[str]:
    """What the problems are called that it is for."""
    return list(dict.fromkeys([submission.path.parent.name, *submission.also_for]))


def passed_over(paths: Sequence[Path], config: Config, root: Path) -> list[Remark]:
    """Of what `paths` hold, as `find_targets` takes them, and is for none of the problems that are listed: a remark for
    each file that was named, and one for those of folders."""
    if not config.problems:
        return []
    problems = _problems(config, root)
    others = [each for each in _submissions(paths, problems, root) if problems.keys().isdisjoint(_names(each))]
    named = {path.resolve() for path in paths}
    together = [each for each in others if each.path not in named]
    groups = [[each] for each in others if each.path in named] + ([together] if together else [])
    return [_passed_over(group, config) for group in groups]


def _passed_over(submissions: Sequence[Submission], config: Config) -> Remark:
    files = [shown_path(each.path) for each in submissions]
    more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
    was, is_for = ("were", "they are for") if len(files) > 1 else ("was", "it is for")
    names = one_line(", ".join(sorted({name for each in submissions for name in _names(each)})))
    return Remark(
        "",
        f"{', '.join(files[:SHOWN_FILES])}{more} {was} passed over: {is_for} {names}, and problems lists "
        f"{', '.join(config.problems)}.",
    )


def without_folders_problem(targets: Sequence[Target], config: Config) -> list[Remark]:
    """Of submissions that are judged on nothing but what their ALSO_FOR names, since their folders name no problem."""
    judged: dict[Path, list[str]] = {}
    for target in targets:
        judged.setdefault(target.submission.path, []).append(target.problem.stem)
    return [
        Remark(
            shown_path(path),
            f"No problem is named like its folder, '{one_line(path.parent.name)}'; it is judged on "
            f"{', '.join(names)} alone, as its ALSO_FOR says.",
        )
        for path, names in judged.items()
        if path.parent.name not in names and not config.problems
    ]


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
