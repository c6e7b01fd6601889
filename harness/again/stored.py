"""Which sources of the database are judged anew, and the plan of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.again.folder import put
from harness.device.choose import CannotRun, choose_device
from harness.errors import UsageError, name_of, one_line
from harness.events import LeftOut
from harness.paths import problem_called
from harness.plan import Arguments, RunPlan, make_plan, named_problem
from harness.settings import fresh_seed
from harness.store import Store
from harness.store.archive import Verdict, first_dates, verdicts
from harness.submission import Submission, read_submission
from harness.version import judge_version


@dataclass(frozen=True)
class Asked:
    """What is to be judged anew."""

    names: tuple[str, ...] = ()
    """Names, or beginnings of a source's SHA-256: these whatever judged them, and though they were withdrawn."""
    problem: str | None = None
    """A name, or a file in place of the one in problems/."""
    older_than: str = ""
    """The beginning of a judge's version."""
    every: bool = False


@dataclass(frozen=True)
class Kept:
    """One source on one problem, and all verdicts on it, oldest first."""

    verdicts: tuple[Verdict, ...]

    @property
    def latest(self) -> Verdict:
        return self.verdicts[-1]

    def before(self, device: str) -> Verdict:
        """The latest verdict on `device`; where there is none, on another; an error where there is nothing else."""
        said = [verdict for verdict in self.verdicts if verdict.says_something]
        here = [verdict for verdict in said if verdict.device == device]
        return [*self.verdicts, *said, *here][-1]


@dataclass(frozen=True)
class Chosen:
    """A source that is judged anew: where it lies for that, on which device, and what was said of it before."""

    problem: Path
    device: str
    submission: Submission
    before: Verdict

    @property
    def key(self) -> tuple[str, str]:
        """What an evaluation of it has: problem and source."""
        return (name_of(self.problem), self.submission.sha256)


@dataclass(frozen=True)
class Choice:
    """What is judged anew, and what is not, each with its reason."""

    chosen: tuple[Chosen, ...]
    left_out: tuple[LeftOut, ...]
    up_to_date: int
    """How many need not be judged."""
    other_problems: tuple[str, ...]
    """Problems whose file has changed since verdicts on them were given."""


def choose(store: Store, asked: Asked, folder: Path, device: str | None) -> Choice:
    """The sources that `asked` is about, written into `folder` under their old names. Raises UsageError for a name or a
    version that the database does not have."""
    found = verdicts(store)
    limit = _date_of(asked.older_than, found)
    chosen: list[Chosen] = []
    left_out: list[LeftOut] = []
    up_to_date = 0
    for kept in _asked_for(found, asked):
        one = _prepared(store, kept, asked, folder, device)
        if isinstance(one, LeftOut):
            left_out.append(one)
        elif _is_due(one.before, asked, limit):
            chosen.append(one)
        else:
            up_to_date += 1
    return Choice(tuple(chosen), tuple(left_out), up_to_date, tuple(_other_problems(chosen)))


def plan_of(choice: Choice, arguments: Arguments) -> RunPlan:
    """The plan of all that was chosen, with the other settings of `arguments`. Raises what `make_plan` does."""
    places = dict.fromkeys((one.problem, one.device) for one in choice.chosen)
    settings = replace(arguments, seed=fresh_seed() if arguments.seed is None else arguments.seed)
    plans = [
        make_plan(replace(settings, problem=str(problem), device=device, paths=_paths(choice, problem, device)))
        for problem, device in places
    ]
    groups = tuple(group for plan in plans for group in plan.groups)
    notices = tuple(dict.fromkeys(notice for plan in plans for notice in plan.notices))
    return replace(plans[0], groups=groups, notices=(*choice.left_out, *notices))


def _paths(choice: Choice, problem: Path, device: str) -> tuple[Path, ...]:
    return tuple(one.submission.path for one in choice.chosen if (one.problem, one.device) == (problem, device))


def _asked_for(found: Sequence[Verdict], asked: Asked) -> list[Kept]:
    """Sources with their problem, in the order of their first verdicts. Withdrawn ones only where they are named."""
    by: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in found:
        if asked.problem is None or verdict.problem == name_of(named_problem(asked.problem)):
            by.setdefault((verdict.problem, verdict.source_sha256), []).append(verdict)
    kept = [Kept(tuple(of)) for of in by.values()]
    if not asked.names:
        return [one for one in kept if not one.latest.is_withdrawn]
    named = {(one.latest.problem, one.latest.source_sha256) for name in asked.names for one in _named(kept, name)}
    return [one for one in kept if (one.latest.problem, one.latest.source_sha256) in named]


def _named(kept: Sequence[Kept], name: str) -> list[Kept]:
    """Those that were called so; where none was, those whose source's SHA-256 begins so. Raises UsageError for none."""
    plain = name.removesuffix(".py").rpartition("/")[2]
    called = [one for one in kept if any(verdict.submission == plain for verdict in one.verdicts)]
    found = called or [one for one in kept if plain and one.latest.source_sha256.startswith(plain)]
    if not found:
        raise UsageError(
            f"The database has no evaluation of '{one_line(name)}'. 'eval.py leaderboard' shows which there are."
        )
    return found


def _prepared(store: Store, kept: Kept, asked: Asked, folder: Path, device: str | None) -> Chosen | LeftOut:
    """A source, ready to be judged, or why it cannot be."""
    latest = kept.latest
    name = one_line(f"{latest.submission} on {latest.problem}")
    problem = _file_of(latest.problem, asked)
    if problem is None:
        return LeftOut(name, f"since problems/ has no {one_line(latest.problem)}; --problem may name its file")
    text = store.source(latest.source_sha256)
    if text is None:
        return LeftOut(name, "since the database has its evaluations without its text")
    try:
        submission = read_submission(put(folder, latest.submission, text))
        where = choose_device(device, submission)
    except CannotRun as error:
        return LeftOut(name, error.why)
    except UsageError as error:
        return LeftOut(name, f"since it is no submission: {error}")
    return Chosen(problem, where, submission, kept.before(where))


def _file_of(problem: str, asked: Asked) -> Path | None:
    """The problem's file. Its name comes from the database: it names no file elsewhere, and no text of the database is
    ever a problem, since the judge runs problems itself."""
    if asked.problem is not None:
        path = named_problem(asked.problem)
    elif "/" in problem or "\0" in problem:
        return None
    else:
        path = problem_called(problem)
    return path if path.is_file() else None


def _is_due(before: Verdict, asked: Asked, limit: str) -> bool:
    if limit:
        return before.date < limit
    return asked.every or bool(asked.names) or not before.says_something or before.judge != judge_version()


def _date_of(version: str, found: Sequence[Verdict]) -> str:
    """When the judge of that version gave its first verdict; empty for no version."""
    if not version:
        return ""
    dates = first_dates(found)
    if judge_version().startswith(version):  # which may have given none yet
        return dates.get(judge_version(), "9999")
    matching = [judge for judge in dates if judge.startswith(version)]
    if len(matching) != 1:
        known = ", ".join(f"{judge} ({date[:10]})" for judge, date in dates.items() if judge) or "none"
        what = "several judges" if matching else "no judge"
        raise UsageError(f"--older-than {version} is {what} of the database's. It has, with their first days: {known}.")
    return dates[matching[0]]


def _other_problems(chosen: Sequence[Chosen]) -> Iterator[str]:
    """Names of problems whose file is another than the one that a verdict was given on."""
    now = {one.problem: hashlib.sha256(one.problem.read_bytes()).hexdigest() for one in chosen}
    changed = (one.problem for one in chosen if one.before.problem_sha256 not in ("", now[one.problem]))
    yield from dict.fromkeys(map(name_of, changed))
