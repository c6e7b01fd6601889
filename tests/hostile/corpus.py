"""The corpus's files and what each must get, and judging many of them in one run of eval.py."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.helpers import PATIENCE, ROOT, EvalRun, run_eval
from tests.hostile import walls
from tests.hostile.walls import WALLS

FOLDER = Path(__file__).parent
PROBLEMS = ROOT / "tests" / "fixtures" / "problems"
PROBLEM = PROBLEMS / "corpus_layernorm.py"

# Words of `needs:`. Devices: `cuda` runs CUDA, emulated or not; `gpu` a real one only; `cpu` and `emulator` only those.
# Isolation: `landlock` and `namespaces` name the weakest level that stops it. `timing`: only timed calls show it.
WORDS = {"cuda", "gpu", "cpu", "emulator", "timing", "landlock", "namespaces"}

LEVELS = ("basic", "landlock", "namespaces")

# What bombs may take here, so that a test need not fill a machine.
LIMITS = {"KERNELGATE_MEMORY_GIB": "3", "KERNELGATE_DISK_GIB": "0.25"}

# A process with a CUDA context, and nvcc beside it, hold more.
CUDA_LIMITS = {**LIMITS, "KERNELGATE_MEMORY_GIB": "16"}

# A right submission that sleeps in every call is far below this, and one of elementary operators far above it: of
# eager's speed they have 0.04 at the most and 0.12 at the least. A sleeper's rounds have two calls, so a busy machine
# makes an interval wide. The low end decides, as it does for --min-speedup: only what is shown is claimed.
TOO_SLOW = 0.07

# A hang shows in seconds. For all others the limit must be beyond what a busy machine makes of a call.
HANGS_TIMEOUT_S, TIMEOUT_S = 8, 60


@dataclass(frozen=True)
class Opening:
    """What lets a file succeed: something that it is `given`, or a `wall` that is down (see tests.hostile.walls)."""

    kind: Literal["given", "wall"]
    name: str

    @property
    def text(self) -> str:
        return f"given `{self.name}`" if self.kind == "given" else f"without the wall *{self.name}*"

    def source(self, text: str) -> str:
        """The file that is judged, made of the file's own `text`. Raises ValueError when it lacks the switch."""
        if self.kind == "wall":
            return text
        opened, switches = re.subn(rf"^{self.name} = False\b.*$", f"{self.name} = True", text, flags=re.MULTILINE)
        if switches != 1:
            raise ValueError(f"'opens: given {self.name}' needs one line '{self.name} = False'; found {switches}")
        return opened


@dataclass(frozen=True)
class Entry:
    """One file of the corpus. `allowed` holds the verdicts that it may get: 'accepted', 'rejected crashed', …"""

    path: Path
    strategy: str
    surface: str
    needs: frozenset[str]
    allowed: tuple[str, ...]
    problem: Path = PROBLEM
    opens: Opening | None = None
    case: str = ""
    """The only case that it is judged on; all of the problem's without one."""

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def sha256(self) -> str:
        return _sha256(self.path)

    @property
    def is_control(self) -> bool:
        return "accepted" in self.allowed

    @property
    def needs_quiet(self) -> bool:
        """Whether nothing may run beside it: its verdict follows from a time, or from who is first of two threads. The
        others that need timed calls give wrong values in them, however long they take."""
        of_times = bool({"accepted", "too_slow"} & set(self.allowed))
        return "timing" in self.needs and (of_times or self.path.parent.name == "clock")

    @property
    def may_hang(self) -> bool:
        """Whether it may be refused because no answer came."""
        return "rejected timed_out" in self.allowed

    def runs_on(self, device: str, level: str) -> bool:
        """Whether it can be judged on `device` with workers isolated by `level`."""
        needed = max((LEVELS.index(word) for word in self.needs & set(LEVELS)), default=0)
        if LEVELS.index(level) < needed:
            return False
        if device == "cuda":
            return not self.needs & {"cpu", "emulator"}
        if device == "emulator":
            return bool(self.needs & {"cuda", "emulator"})
        return not self.needs & {"cuda", "emulator", "gpu"}


@dataclass(frozen=True)
class Outcome:
    """What a file got: `verdict` in the words of `Entry.allowed`."""

    entry: Entry
    device: str
    verdict: str
    message: str

    @property
    def right(self) -> bool:
        return self.verdict in self.entry.allowed or self.verdict.split()[0] in self.entry.allowed

    @property
    def failed_otherwise(self) -> bool:
        """Whether it was refused as it must be, but not for a reason that it may be; or is honest and was refused."""
        return not self.right and (self.verdict != "accepted" or self.entry.is_control)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(path: Path) -> Entry:
    """The head of a file. Raises ValueError when it lacks a line or names what is not known."""
    head = re.match(r'"""(.*?)"""', path.read_text(), re.DOTALL)
    if not head:
        raise ValueError(f"{path} has no docstring at its head")
    fields = dict(re.findall(r"^(surface|problem|needs|expect|opens|case): (.*)$", head[1], re.MULTILINE))
    if not {"surface", "expect"} <= set(fields):
        raise ValueError(f"{path}: the docstring needs the lines 'surface:' and 'expect:'")
    needs = frozenset(word.strip() for word in fields.get("needs", "").split(",") if word.strip())
    if needs - WORDS:
        raise ValueError(f"{path}: 'needs:' has {sorted(needs - WORDS)}; known are {sorted(WORDS)}")
    problem = PROBLEMS / f"{fields.get('problem', PROBLEM.stem)}.py"
    strategy, opens = head[1].strip().splitlines()[0], _opening(path, fields.get("opens"))
    return Entry(
        path, strategy, fields["surface"], needs, _allowed(fields["expect"]), problem, opens, fields.get("case", "")
    )


def _opening(path: Path, text: str | None) -> Opening | None:
    if text is None:
        return None
    kind, _, name = text.partition(" ")
    if (kind == "given" and name.isidentifier()) or (kind == "wall" and name in WALLS):
        return Opening(kind, name)  # type: ignore[arg-type]
    raise ValueError(f"{path}: 'opens:' says '{text}'; it must be 'given NAME', or 'wall' and one of {sorted(WALLS)}")


def _allowed(text: str) -> tuple[str, ...]:
    """'too_slow|rejected raised|timed_out' -> ('too_slow', 'rejected raised', 'rejected timed_out')."""
    allowed, status = [], ""
    for part in text.split("|"):
        words = part.split()
        if len(words) == 2 or words[0] in ("accepted", "rejected", "too_slow"):
            status = words[0]
            allowed.append(part.strip())
        else:
            allowed.append(f"{status} {words[0]}")
    return tuple(allowed)


def entries() -> list[Entry]:
    """All files of the corpus, family by family."""
    return [read(path) for path in sorted(FOLDER.glob("*/*.py"))]


def judge(
    chosen: Iterable[Entry], device: str, *options: str, timing: bool, at_once: int = 1, alone: bool | None = None
) -> tuple[list[Outcome], EvalRun]:
    """Judge files in one run of eval.py for each problem, case and limit of time: whatever one of them does, the next
    has to be judged as if alone. Of `at_once` runs beside each other each has its share of the cores. A run is `alone`
    on the machine where a file needs it, unless that is said. What is given is the last run, with what all have
    said."""
    members = list(chosen)
    outcomes, said = [], ""
    for kind in dict.fromkeys((entry.problem, entry.case, entry.may_hang) for entry in members):
        of_it = [entry for entry in members if (entry.problem, entry.case, entry.may_hang) == kind]
        problem, case, may_hang = kind
        quiet = any(entry.needs_quiet for entry in of_it) if alone is None else alone
        limit = ["--timeout", HANGS_TIMEOUT_S if may_hang else TIMEOUT_S]
        found, run = _judge(problem, case, of_it, device, *limit, *options, timing=timing, at_once=at_once, alone=quiet)
        outcomes += found
        said += run.stderr
    return outcomes, replace(run, stderr=said)


def _judge(
    problem: Path,
    case: str,
    members: list[Entry],
    device: str,
    *options: object,
    timing: bool,
    at_once: int,
    alone: bool,
) -> tuple[list[Outcome], EvalRun]:
    found, run = _run(
        problem,
        case,
        [e.path for e in members],
        device,
        *options,
        timing=timing,
        at_once=at_once,
        program=True,
        alone=alone,
    )
    return [_outcome(entry, device, found.get(entry.sha256)) for entry in members], run


def _run(
    problem: Path,
    case: str,
    paths: list[Path],
    device: str,
    *options: object,
    timing: bool,
    program: Literal[True] | list[str],
    alone: bool,
    at_once: int = 1,
) -> tuple[dict[str, dict], EvalRun]:
    """One run of eval.py, or of `program`: its evaluations by the hash of the file, and the run."""
    limits = CUDA_LIMITS if device == "cuda" else LIMITS
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))} if at_once > 1 else {}
    mode = ["-k", "timed", "--quick", "--against", "eager"] if timing else ["--no-timing"]
    mode += ["-k", case] if case else []
    mode += ["--check"] if device == "emulator" else []
    seed = random.SystemRandom().randrange(2**53)
    try:
        # Several at once are to be at once, whoever times: how long something takes is not asked.
        with tempfile.TemporaryDirectory() as turns:
            own = {"KERNELGATE_TURNS": turns} if at_once > 1 else {}
            run = run_eval(
                *paths, "--problem", problem, "--device", device, *mode, "--seed", seed, "--no-store", *options,
                env=limits | threads | own, timeout_s=240 + 60 * len(paths), alone=alone, program=program,
            )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        run = EvalRun(code=-1, stdout="", stderr=f"{error}\n", results={})
    return {evaluation["source_sha256"]: evaluation for evaluation in run.results.get("evaluations", [])}, run


def _outcome(entry: Entry, device: str, evaluation: dict | None) -> Outcome:
    if evaluation is None:
        return Outcome(entry, device, "not judged", "The run ended before it.")
    verdict = " ".join(filter(None, (evaluation["status"], evaluation["reason"])))
    interval = evaluation.get("geomean_interval")
    if verdict == "accepted" and "too_slow" in entry.allowed:
        if interval is None:  # the baseline was lost in the noise, so that nothing is said of its time
            verdict = "not compared"
        elif interval[0] < TOO_SLOW:
            verdict = "too_slow"
    return Outcome(entry, device, verdict, evaluation["message"] or _speedup(evaluation))


def _speedup(evaluation: dict) -> str:
    """With its 95% interval, where times were taken."""
    speedup, interval = evaluation["geomean_speedup"], evaluation.get("geomean_interval")
    return f"{speedup:.3g}× [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else ""


def judge_opened(
    chosen: Iterable[Entry], device: str, folder: Path, *, jobs: int = 1, timed_jobs: int = 1
) -> Iterator[tuple[list[Outcome], EvalRun]]:
    """Judge files, each with what it asks for in `opens:`, of which copies are written to `folder`: one run or more for
    each problem and wall, `jobs` at a time, and `timed_jobs` where calls are timed. What each run gave, as it ends. All
    of them must be accepted; who sleeps otherwise must be fast."""
    groups: dict[tuple[Path, str, str, bool], list[tuple[Entry, Path]]] = {}
    for entry in chosen:
        if entry.opens:
            copy = folder / entry.path.parent.name / entry.path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(entry.opens.source(entry.path.read_text()))
            wall = entry.opens.name if entry.opens.kind == "wall" else ""
            groups.setdefault((entry.problem, entry.case, wall, "timing" in entry.needs), []).append((entry, copy))

    for timing, at_once in ((False, jobs), (True, timed_jobs)):
        with ThreadPoolExecutor(at_once) as pool:
            running = [
                pool.submit(
                    _judge_opened, problem, case, wall, pairs[i::at_once], device, timing=timing, at_once=at_once
                )
                for (problem, case, wall, timed), pairs in groups.items()
                for i in range(min(at_once, len(pairs)))
                if timed == timing
            ]
            for done in as_completed(running):
                yield done.result()


def _judge_opened(
    problem: Path,
    case: str,
    wall: str,
    pairs: list[tuple[Entry, Path]],
    device: str,
    *,
    timing: bool,
    at_once: int,
) -> tuple[list[Outcome], EvalRun]:
    """One run of eval.py on copies of files, without `wall`."""
    found, run = _run(
        problem, case, [copy for _, copy in pairs], device,
        timing=timing, program=walls.command(wall) if wall else True, at_once=at_once,
        alone=timing and any({"too_slow", "rejected ran_while_held"} & set(entry.allowed) for entry, _ in pairs),
    )  # fmt: skip
    return [_outcome(entry, device, found.get(_sha256(copy))) for entry, copy in pairs], run


def judge_all(
    device: str,
    level: str,
    pattern: str = "",
    options: Sequence[str] = (),
    left_out: Container[str] = (),
    *,
    jobs: int = 1,
    timed_jobs: int = 1,
) -> Iterator[tuple[list[Outcome], EvalRun]]:
    """Everything that can be judged on `device` but for the names `left_out`, first without timing, then with; what
    each run of eval.py gave, as it ends. Files are handed out to `jobs` runs at a time, and to `timed_jobs` where calls
    are timed."""
    fitting = [e for e in entries() if e.runs_on(device, level) and pattern in e.name and e.name not in left_out]
    for timing, at_once in ((False, jobs), (True, timed_jobs)):
        group = [entry for entry in fitting if ("timing" in entry.needs) == timing]
        if not group or (timing and device == "emulator"):
            continue
        with ThreadPoolExecutor(at_once) as pool:
            shards = [group[i::at_once] for i in range(min(at_once, len(group)))]
            running = [pool.submit(judge, shard, device, *options, timing=timing, at_once=at_once) for shard in shards]
            for done in as_completed(running):
                yield done.result()


def judge_again(outcomes: Iterable[Outcome], *options: str) -> list[Outcome]:
    """Those of one device that were refused, but not for the reason that they must be, judged anew with nothing
    beside them, a few times: on a busy machine an attack may fail in another way first. What was accepted and must
    not be stays as it is."""
    latest = {outcome.entry: outcome for outcome in outcomes}
    for timing in (False, True) * PATIENCE:
        failed = [o for e, o in latest.items() if o.failed_otherwise and ("timing" in e.needs) == timing]
        if failed:
            judged = judge([o.entry for o in failed], failed[0].device, *options, timing=timing, alone=timing)[0]
            latest |= {outcome.entry: outcome for outcome in judged}
    return list(latest.values())


def table() -> str:
    """The corpus as a table for docs/threat-model.md."""
    lines = [
        "| file of `tests/hostile` | strategy | surface | must get | accepted when the wall is open |",
        "|---|---|---|---|---|",
    ]
    for entry in entries():
        strategy = entry.strategy.replace("|", "\\|")
        verdicts = " or ".join(verdict.replace("_", " ") for verdict in entry.allowed)
        where = " (GPU only)" if "gpu" in entry.needs else ""
        opened = entry.opens.text if entry.opens else "honest"
        lines.append(f"| `{entry.name}`{where} | {strategy} | {entry.surface} | {verdicts} | {opened} |")
    return "\n".join(lines)
