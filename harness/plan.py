"""What a run will do, decided before it begins: the arguments become a plan, and nothing changes it any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import against
from harness.device.choose import CannotRun, can_time, choose_device
from harness.errors import HarnessError, UsageError, one_line
from harness.events import LeftOut, Namesake, WithoutEffect
from harness.isolation.levels import Isolation, choose_isolation
from harness.pairing import problem_for, problems_in
from harness.paths import PROBLEMS, known_problems, problem_called, shown_path
from harness.settings import Effort, Settings, fresh_seed
from harness.submission import Submission, find_submissions, read_submission


class NoProblem(UsageError):
    """A folder of problems has none for a submission; `why` follows the submission's name."""

    def __init__(self, submission: Path, folder: Path | None) -> None:
        fits = (
            f"fits no problem of {folder} by its name: that of its folder or its own should be a problem's, or say its "
            "number as level_1_problem_40_sample_0_kernel.py does"
        )
        self.why = f"which {fits}"
        super().__init__(f"{submission} {fits}.")


# Each node of a cluster chooses for itself, and says what it has chosen.
ON_ITS_NODE = Isolation("as its node has it")


@dataclass(frozen=True)
class Arguments:
    """What a run is asked for; the command line's options, by their names."""

    paths: tuple[Path, ...] = ()
    """Submission files and folders; all of submissions/ for none."""
    problem: str | None = None
    device: str | None = None
    select: str = ""
    """Only cases whose name contains this, or is it."""
    dtype: str = ""
    """Only cases in this dtype, as reports name it."""
    seed: int | None = None
    against: str | None = None
    effort: Effort = "usual"
    timing: bool = True
    device_time: bool = False
    check: bool = False
    sanitize: bool = False
    first_failure: bool = False
    show_output: bool = False
    timeout_s: float = 60.0
    isolation: str = "auto"
    min_speedup: float | None = None
    cluster: str = ""
    """HOST:PORT of the cluster of Ray's that judges; empty for this machine."""
    accelerator: str = ""
    """Judge on the cluster's nodes with this model alone, by Ray's name."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for that changes what is judged: all cases, by the usual limits. What such a run
        says of a file another one would say, too, but for times."""
        plain = Arguments(
            paths=self.paths,
            problem=self.problem,
            device=self.device,
            timing=self.timing,
            isolation=self.isolation,
            min_speedup=self.min_speedup,
            cluster=self.cluster,
            accelerator=self.accelerator,
        )
        return self == plain


@dataclass(frozen=True)
class Group:
    """Submissions to one problem on one device: they share workers, baselines and data."""

    problem: Path
    device: str
    isolation: Isolation
    submissions: tuple[Submission, ...]


@dataclass(frozen=True)
class RunPlan:
    """What is judged, on which device, against what, with which settings."""

    groups: tuple[Group, ...]
    submissions: tuple[Submission, ...]
    """All that are in groups, in the order in which they were named or found."""
    settings: Settings
    against: tuple[str, ...]
    """Names as harness.against reads them."""
    select: str = ""
    dtype: str = ""
    sanitize: bool = False
    needs_times: bool = False
    """Whether a run without a timed case makes no sense."""
    notices: tuple[WithoutEffect | LeftOut | Namesake, ...] = ()
    """What a user should know beside it."""
    is_plain: bool = False
    """As Arguments have it."""
    several_problems: bool = False
    """Whether it was made for more than one; a share of it may have one alone."""

    @property
    def isolation(self) -> dict[str, Isolation]:
        """What the workers of each device are started with."""
        return {group.device: group.isolation for group in self.groups}


def make_plan(arguments: Arguments) -> RunPlan:
    """The plan for `arguments`; it has no groups where there is no submission.

    Raises UsageError for what cannot be, and HarnessError for a device, a tool or an isolation that is not here."""
    names = _baselines(arguments)
    _refuse_what_cannot_be(arguments, names)
    submissions, groups, left_out = _groups(arguments)
    if arguments.min_speedup is not None:
        _require_clocks(_devices(groups))
    return RunPlan(
        groups=groups,
        submissions=submissions,
        settings=_settings(arguments),
        against=tuple(names),
        select=arguments.select,
        dtype=arguments.dtype,
        sanitize=arguments.sanitize,
        needs_times=arguments.min_speedup is not None,
        is_plain=arguments.is_plain,
        several_problems=len({group.problem for group in groups}) > 1,
        notices=(
            *left_out,
            *_namesakes(arguments, groups),
            *(idle for device in _devices(groups) for idle in _without_effect(arguments, device)),
        ),
    )


def _devices(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(group.device for group in groups))


def _baselines(arguments: Arguments) -> list[str]:
    usual = against.QUICK if arguments.effort == "quick" else against.USUAL
    return against.read(usual if arguments.against is None else arguments.against)


def _refuse_what_cannot_be(arguments: Arguments, baselines: Sequence[str]) -> None:
    """Raises UsageError for what would only fail after minutes of judging."""
    if arguments.min_speedup is not None and not arguments.min_speedup > 0:
        raise UsageError(f"--min-speedup must be more than 0, and {arguments.min_speedup:g} was given.")
    if arguments.min_speedup is not None and not arguments.timing:
        raise UsageError("--min-speedup needs times, and --no-timing forbids them; give one of the two.")
    if arguments.min_speedup is not None and "eager" not in baselines:
        raise UsageError("--min-speedup is over eager, which --against leaves out; add eager to --against.")
    if not arguments.timeout_s > 0:  # nor what is no number
        raise UsageError(f"--timeout must be more than 0 seconds, and {arguments.timeout_s:g} was given.")
    if arguments.cluster:
        _refuse_what_no_cluster_does(arguments, baselines)
    elif arguments.accelerator:
        raise UsageError("--accelerator chooses nodes of a cluster; give --cluster, too.")


def _refuse_what_no_cluster_does(arguments: Arguments, baselines: Sequence[str]) -> None:
    """Raises UsageError."""
    if not arguments.device:
        raise UsageError("--cluster needs --device: what this machine has says nothing of the cluster's nodes.")
    if arguments.sanitize:
        raise UsageError("--sanitize judges on this machine, and --cluster elsewhere; give one of the two.")
    if files := [name for name in baselines if against.is_file(name)]:
        raise UsageError(
            f"--against names the file {files[0]}, and baselines from files do not go to a cluster; judge that file as "
            "a submission there, or leave out --cluster."
        )


def _require_clocks(devices: Sequence[str]) -> None:
    """Raises UsageError when one gives no times."""
    for device in devices:
        if not can_time(device):
            raise UsageError(
                f"--min-speedup needs times, and the {device} gives none. Leave it out, or judge on a GPU."
            )


def _settings(arguments: Arguments) -> Settings:
    return Settings(
        seed=fresh_seed() if arguments.seed is None else arguments.seed,
        timeout_s=arguments.timeout_s,
        effort=arguments.effort,
        one_timed_case=arguments.effort == "quick" and not (arguments.select or arguments.dtype),
        timing=arguments.timing,
        check=arguments.check,
        first_failure=arguments.first_failure,
        device_time=arguments.device_time,
        show_output=arguments.show_output,
    )


def _groups(arguments: Arguments) -> tuple[tuple[Submission, ...], tuple[Group, ...], tuple[LeftOut, ...]]:
    """Submissions; the same grouped so that baselines are loaded once for a problem and device; and those of a folder
    that cannot run here. Raises HarnessError for one that was named itself."""
    asked = None if arguments.problem is None else named_problem(arguments.problem)
    problems = problems_in(asked) if asked and asked.is_dir() else []
    if asked and asked.is_dir() and not problems:
        raise UsageError(f"There is no problem file in {asked}.")
    members: dict[tuple[Path, str], list[Submission]] = {}
    submissions: list[Submission] = []
    left_out: list[LeftOut] = []
    for path in find_submissions(list(arguments.paths), problems or ([asked] if asked else [])):
        submission = read_submission(path)
        try:
            device = choose_device(arguments.device, submission)
            of = _problems_for(submission, asked, problems)
        except (CannotRun, NoProblem) as error:
            if path in arguments.paths:
                raise
            left_out.append(LeftOut(submission.name, error.why))
        else:
            submissions.append(submission)
            for problem in of:
                members.setdefault((problem, device), []).append(submission)
    isolation = {device: _isolation(arguments, device) for device in dict.fromkeys(device for _, device in members)}
    groups = (Group(problem, device, isolation[device], tuple(found)) for (problem, device), found in members.items())
    return tuple(submissions), tuple(groups), tuple(left_out)


def _problems_for(submission: Submission, asked: Path | None, problems: list[Path]) -> list[Path]:
    """The problem that was `asked` for, the one of a folder's `problems` that the submission's name fits, or the usual
    ones. Raises NoProblem where the folder has none for it."""
    if not problems:
        return [asked] if asked else problems_of(submission)
    if problem := problem_for(submission.path, problems):
        return [problem]
    raise NoProblem(submission.path, asked)


def _isolation(arguments: Arguments, device: str) -> Isolation:
    if arguments.sanitize:
        _require_sanitizer(device)
    return ON_ITS_NODE if arguments.cluster else choose_isolation(arguments.isolation, device)


def _require_sanitizer(device: str) -> None:
    from harness.tools.sanitizing import require_tool

    require_tool()
    if device != "cuda":
        raise HarnessError(
            f"--sanitize watches kernels on a GPU, and this run is on {device}. Use --device cuda, or "
            "--device emulator --check, which looks for the same defects."
        )


def problems_of(submission: Submission) -> list[Path]:
    """Its folder's problem, and those that its ALSO_FOR names. Raises UsageError where there is no such problem."""
    known = known_problems()
    for name in submission.also_for:  # a name and no path: the judge imports what it finds
        if name not in known:
            raise UsageError(
                f"{submission.path}: ALSO_FOR names the problem '{one_line(name)}', which problems/ does not have. "
                f"Name some of: {', '.join(known)}; or say --problem, which goes before it."
            )
    return list(dict.fromkeys([problem_of(submission.path), *(named_problem(name) for name in submission.also_for)]))


def problem_of(submission: Path) -> Path:
    """The problem that is named like the submission's folder. Raises UsageError where none is."""
    named = problem_called(submission.parent.name)
    if named.is_file():
        return named
    raise UsageError(
        f"Which problem is {submission} for? No problem is named like its folder, '{submission.parent.name}'. "
        f"Say --problem with a file or one of: {', '.join(known_problems())}."
    )


def named_problem(asked: str) -> Path:
    """The file that --problem names: a path, or a name in problems/. It may not be there."""
    in_problems = problem_called(asked)
    is_path = asked.endswith(".py") or (Path(asked).is_dir() and not in_problems.is_file())
    return Path(asked).resolve() if is_path else in_problems


def _namesakes(arguments: Arguments, groups: Iterable[Group]) -> Iterator[Namesake]:
    """Problems here that differ from a shipped one of their name, which judges, and was not named as a file."""
    by_name = {group.problem for group in groups if not (arguments.problem or "").endswith(".py")}
    for problem in sorted(by_name):
        own = Path.cwd() / "problems" / problem.name
        with contextlib.suppress(OSError):
            if problem == PROBLEMS / problem.name and own.read_bytes() != problem.read_bytes():
                yield Namesake(shown_path(own))


def _without_effect(arguments: Arguments, device: str) -> Iterator[WithoutEffect]:
    """Options that do nothing on `device`."""
    of_times = {
        "--quick": arguments.effort == "quick",
        "--thorough": arguments.effort == "thorough",
        "--against": arguments.against is not None,
        "--device-time": arguments.device_time,
    }
    idle = [name for name, given in of_times.items() if given and (device == "emulator" or not arguments.timing)]
    if idle:
        why = "the emulator gives verdicts and no times" if device == "emulator" else "--no-timing times nothing"
        yield WithoutEffect(tuple(idle), device, f"since {why}")
    elif arguments.device_time and device == "cpu":
        yield WithoutEffect(("--device-time",), device, "which asks a GPU, and this run is on cpu")
    if arguments.check and device != "emulator":
        instead = "--sanitize looks for such defects there" if device == "cuda" else "it has nothing to look at there"
        yield WithoutEffect(("--check",), device, f"which is the emulator's, and this run is on {device}; {instead}")
