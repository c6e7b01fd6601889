"""What `eval.py gate` runs: each submission on each device that is asked for, and beside the stored best where there
is a GPU."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.device.choose import CannotRun, can_time, choose_device
from harness.errors import HarnessError, Interrupted, ReferenceFault, name_of
from harness.gate.best import Best
from harness.gate.config import Config
from harness.gate.rules import decide
from harness.gate.targets import Target
from harness.gate.values import Candidate, Compiled, NoVerdict, Outcome, Ran, Remark, Slower
from harness.paths import shown_path
from harness.plan import Arguments, RunPlan, make_plan
from harness.report.progress import listening
from harness.report.view import Color, View, console
from harness.run import RunStopped, run
from harness.settings import Effort
from harness.store import Keeper
from harness.tools import compiling
from harness.verbs.gating import stored_best
from harness.verbs.gating.stored_best import Beside
from harness.verdict import SCHEMA, Evaluation, Results


@dataclass(frozen=True)
class Gated:
    """All evaluations, what the gate says of them, and the files that they are of."""

    results: Results
    outcome: Outcome
    texts: Mapping[str, bytes]
    files: Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class _Job:
    """One run of the judge."""

    problem: Path
    device: str
    check: bool
    targets: tuple[Target, ...]


@dataclass
class _Found:
    """What is known so far of one target."""

    ran: list[Ran] = field(default_factory=list)
    without: list[NoVerdict] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    slower: tuple[Slower, ...] = ()
    best: str = ""


class Runner:
    """Judges targets by a configuration."""

    def __init__(self, config: Config, db: Path, *, keeps: bool, color: Color, quiet: bool) -> None:
        self._config = config
        self._db = db
        self._keeps = keeps
        self._color: Color = color
        self._quiet = quiet
        self._remarks: list[Remark] = []
        self._found: dict[Target, _Found] = {}
        self._isolation: dict[str, object] = {}

    def judge(self, targets: Sequence[Target], remarks: Sequence[Remark] = ()) -> Gated:
        """Everything that is asked for; `remarks` come first among its own. Raises UsageError for a problem that cannot
        be loaded."""
        self._remarks = list(remarks)
        self._found = {target: _Found() for target in targets}
        for job in self._jobs(targets):
            self._do(job)
        candidates = [self._candidate(target) for target in targets]
        environment = self._environment() | {"isolation": self._isolation}
        evaluations = [ran.evaluation for found in self._found.values() for ran in found.ran]
        paths = {target.submission.path for target in targets} | {target.problem for target in targets}
        texts = [path.read_bytes() for path in paths if path.is_file()]
        shown = {(t.submission.name, t.submission.sha256): shown_path(t.submission.path) for t in targets}
        return Gated(
            Results(schema=SCHEMA, environment=environment, evaluations=evaluations),
            decide(candidates, self._config, self._remarks),
            {hashlib.sha256(text).hexdigest(): text for text in texts},
            shown,
        )

    # ------------------------------------------------------------------ what is run

    def _jobs(self, targets: Sequence[Target]) -> list[_Job]:
        """Submissions to one problem on one device are judged together."""
        members: dict[tuple[Path, str, bool], list[Target]] = {}
        for target in targets:
            for device in self._devices(target):
                check = device == "emulator" and self._config.require_check
                members.setdefault((target.problem, device, check), []).append(target)
        return [_Job(*key, tuple(found)) for key, found in members.items()]

    def _devices(self, target: Target) -> list[str]:
        """Where it is judged: on each device that is asked for and can run it, else on the one that suits it."""
        found = self._found.setdefault(target, _Found())
        if target.submission.is_host_code:
            found.cannot = [device for device in self._config.devices if device != "cpu"]
            return ["cpu"]
        devices: list[str] = []
        for asked in self._config.devices or (None,):
            try:
                devices.append(choose_device(asked, target.submission))
            except CannotRun as error:
                found.cannot += [asked] if asked else []
                self._remark(target, f"left out: {error}")
        if self._config.require_check and _needs_check(target):
            devices.append("emulator")
        return list(dict.fromkeys(devices))

    def _do(self, job: _Job) -> None:
        if job.device != "cuda" or self._config.no_slower_than_best == "off":
            self._run(job)
            return
        for target in job.targets:  # each beside a best of its own
            with tempfile.TemporaryDirectory(prefix="kernelgate-best-") as folder:
                self._beside_best(replace(job, targets=(target,)), target, Path(folder))

    # ------------------------------------------------------------------ beside the stored best

    def _beside_best(self, job: _Job, target: Target, folder: Path) -> None:
        from harness.gate import slower  # scipy.stats takes a second to load

        chosen = stored_best.find(target, job.device, self._config, self._db, self._environment())
        beside = stored_best.written(chosen, self._db, folder)
        if chosen.why_not:
            self._remark(target, f"no-slower-than-best left out: {chosen.why_not}.")
        evaluations = self._run(job, beside)
        if not evaluations or chosen.stored is None:
            return
        self._remark_doubts(target, evaluations[0])
        if beside is None or not slower.has_times_of(evaluations[0], beside.names[0]):
            self._warn_of_stored(target, evaluations[0], chosen)
        elif suspects := slower.suspected(evaluations[0], *beside.names):
            decisive = (self._run(job, beside, effort="decisive") or evaluations)[0]
            found = slower.repeated(suspects, slower.slower_than(decisive, *beside.names))
            self._found[target].slower, self._found[target].best = found, chosen.words
            if decisive is not evaluations[0]:
                self._remark_doubts(target, decisive)
            if not found:
                self._remark(target, f"slower than {chosen.words} in one run, and not in the longer one after it.")

    def _remark_doubts(self, target: Target, evaluation: Evaluation) -> None:
        from harness.gate import slower

        if doubted := slower.doubted(evaluation):
            self._remark(target, f"times in doubt are not compared: {'; '.join(dict.fromkeys(doubted))}.")

    def _warn_of_stored(self, target: Target, evaluation: Evaluation, chosen: Best) -> None:
        """Stored figures are of another run, and hold nothing against it."""
        assert chosen.stored is not None
        before = chosen.stored.evaluation.geomean_speedup
        now = evaluation.geomean_speedup
        if before and now:
            than = f"{now:.2f}× over eager, and stored are {before:.2f}× of {chosen.words}"
            self._remark(target, f"{than}, which could not be run beside it: a warning, not an alarm.")

    # ------------------------------------------------------------------ one run

    def _run(self, job: _Job, beside: Beside | None = None, effort: Effort = "usual") -> list[Evaluation]:
        """Judge the job's targets; what cannot be judged is kept as why, and so is a reference that nothing can be
        judged with: it costs the other problems nothing."""
        why = ""
        try:
            plan = make_plan(self._arguments(job, beside, effort))
            results = self._judged(plan)
        except RunStopped as stopped:
            if isinstance(stopped.cause, Interrupted) or not isinstance(stopped.cause, HarnessError | ReferenceFault):
                raise stopped.cause from stopped
            results, why = stopped.results, str(stopped.cause)
        except (HarnessError, ReferenceFault) as error:
            results, why = Results(schema=SCHEMA, environment={}, evaluations=[]), str(error)
        self._isolation |= results.environment.get("isolation", {})
        waiting = list(results.evaluations)
        for target in job.targets:
            of_target = [e for e in waiting if _is_of(e, target)]
            self._found[target].ran += [Ran(e, job.check) for e in of_target]
            if not of_target:
                self._found[target].without.append(NoVerdict(job.device, why or "it was not reached."))
        return waiting

    def _arguments(self, job: _Job, beside: Beside | None, effort: Effort) -> Arguments:
        against = ["eager", *([str(beside.best), str(beside.copy)] if beside else [])]
        compares = job.device == "cuda" and self._config.no_slower_than_best != "off"
        times = can_time(job.device) and (compares or self._config.min_speedup is not None)
        return Arguments(
            paths=tuple(target.submission.path for target in job.targets),
            problem=str(job.problem),
            device=job.device,
            against=",".join(against) if times else None,
            timing=times,
            effort=effort,
            check=job.check,
            isolation="require" if self._config.require_isolation else "auto",
        )

    def _judged(self, plan: RunPlan) -> Results:
        with listening(console(sys.stderr, self._color), View(quiet=self._quiet)) as tell:
            keeper = Keeper(self._db, plan, tell) if self._keeps else None
            try:
                return run(plan, keeper or tell)
            finally:
                if keeper and keeper.failure:
                    self._remarks.append(Remark("", keeper.failure))

    @staticmethod
    def _environment() -> dict[str, Any]:
        from harness.environment import describe

        return describe()

    # ------------------------------------------------------------------ what came out

    def _candidate(self, target: Target) -> Candidate:
        found = self._found[target]
        return Candidate(
            file=shown_path(target.submission.path),
            problem=name_of(target.problem),
            needs_check=_needs_check(target),
            ran=tuple(found.ran),
            without=tuple(found.without),
            cannot=tuple(found.cannot),
            compiled=tuple(self._compiled(target)),
            slower=found.slower,
            best=found.best,
        )

    def _compiled(self, target: Target) -> Iterator[Compiled]:
        wanted = self._config.compile_for
        if not wanted or not _needs_check(target):
            return
        nvcc = compiling.find_nvcc()
        if nvcc is None:
            remark = Remark("", compiling.WITHOUT_NVCC.format(", ".join(wanted)))
            self._remarks += [] if remark in self._remarks else [remark]
            return
        for architecture, kernels in compiling.compile_for(nvcc, target.submission.sha256, wanted):
            yield Compiled(architecture, kernels.kernels, kernels.error)

    def _remark(self, target: Target, text: str) -> None:
        self._remarks.append(Remark(shown_path(target.submission.path), text))


def _needs_check(target: Target) -> bool:
    submission = target.submission
    return submission.uses_cuda and not submission.gpu_language and not submission.is_host_code


def _is_of(evaluation: Evaluation, target: Target) -> bool:
    return (evaluation.submission, evaluation.source_sha256) == (target.submission.name, target.submission.sha256)
