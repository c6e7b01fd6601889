"""The result of judging: frozen values, the only thing that reports see.

An evaluation is one of three variants told apart by `status`. Fields that make no sense for a variant
have the type None there, so that a rejected submission cannot carry a speedup; they are still written
to JSON (as null) to give every evaluation the same keys. Times are microseconds, sizes bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from harness.explanations import Explanation, FailingCases
from harness.notes import Disturbed, FasterThanMemory, Note, NotTimed, TooNoisyToRank
from harness.reasons import Reason
from harness.records import ClockLimit, KernelCounts, KernelResources

SCHEMA = "kernelgate.results/1"

# What is ranked is known within this share on either side.
KNOWN_WITHIN = 0.1


def digest_of_cases(names: Iterable[str]) -> str:
    """SHA-256, 12 digits, of a set of cases."""
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()[:12]


def reach(value: float, interval: tuple[float, float]) -> float:
    """How far an interval reaches from its value on the farther side, as a share of the value."""
    return max(value - interval[0], interval[1] - value) / value


class Timing(Struct, frozen=True, kw_only=True):
    """One implementation's time for one call on one case, as the judge's own clock saw it: called from Python, or, in
    `CaseTiming.captured`, launched as a CUDA graph."""

    median_us: float
    """Of `samples_us`."""
    interval_us: tuple[float, float]
    """95% confidence interval of the median."""
    samples_us: list[float]
    """One value a round, in the order measured."""
    calls_per_round: int
    """How many calls each round had."""
    fixed_us: float
    """What a round cost beside its calls, taken off before dividing."""
    issue_us: float | None = None
    """How long a call took to return, self-reported: on a GPU the time of Python and launch."""
    device: DeviceTime | None = None
    """Self-reported, with --device-time. None where a call waits for the device itself."""
    processor: ProcessorUse | None = None
    """None on a GPU."""


class DeviceTime(Struct, frozen=True, kw_only=True):
    """The GPU's own time for a call, as the process that ran it tells it: a diagnosis, never a score."""

    call_us: float
    """As `method` measures it."""
    method: str
    """graph: replays of a CUDA graph; queue: launched one by one behind a waiting kernel, where there is no graph."""
    queued_us: float | None = None
    """Launched one by one, beside the graph's time too: between such launches there are gaps, in a graph hardly any."""
    graphs_us: float | None = None
    """Each call a graph of its own, launched one by one: gaps between calls, hardly any between the kernels of one."""
    launches: float | None = None
    """Kernels, copies and memory sets of a call, as the graph counts them."""


class ProcessorUse(Struct, frozen=True, kw_only=True):
    """Processor time of a call on a CPU: of all threads of its process, the user's and the system's, as the system
    counts it in the rounds that `samples_us` are of. Who waits for a core that others use takes none meanwhile; a
    thread that spins until it has work takes some."""

    median_us: float
    """Of the rounds."""
    interval_us: tuple[float, float]
    """95% confidence interval of the median."""
    speedup: Speedup | None = None
    """Of a baseline: the submission's over it, by processor time."""


class Speedup(Struct, frozen=True, kw_only=True):
    """A ratio of times (baseline over submission) with its 95% interval."""

    ratio: float
    """More than 1: the submission is faster."""
    interval: tuple[float, float]
    """From its lower to its upper end."""

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 1, so that the two times can be told apart."""
        return not self.interval[0] <= 1.0 <= self.interval[1]


class Baseline(Timing, frozen=True, kw_only=True):
    """A baseline's time on a case and the submission's speedup over it."""

    speedup: Speedup
    """The submission's over this baseline."""
    version: str = ""
    """The package behind it and its version; empty for what is made from the reference."""


class Conditions(Struct, frozen=True, kw_only=True):
    """What NVML saw of the GPU before and after each round that counts; None stands for what it did not tell."""

    sm_mhz: tuple[int, int] | None
    """Lowest and highest."""
    memory_mhz: tuple[int, int] | None
    """Lowest and highest."""
    temperature_c: int | None
    """The highest."""
    power_w: float | None
    """The highest, of the whole card."""
    power_limit_w: float | None
    """That the card is set to."""
    clock_limits: list[ClockLimit] | None
    """What held the clocks down at any time."""
    other_processes: list[int] | None
    """Numbers of processes that used the GPU and were none of the judge's."""
    sm_mhz_of_rounds: list[int | None]
    """The lowest in each round, in the order of `samples_us`."""
    discarded: int
    """How many sets of rounds were played again, since the GPU was throttled or others used it meanwhile."""
    discarded_throttled: list[ClockLimit]
    """What throttled it then."""
    discarded_beside: list[int]
    """The other processes then."""

    @property
    def throttled(self) -> list[ClockLimit]:
        """What throttled the GPU in rounds that count."""
        return [limit for limit in self.clock_limits or () if limit.is_throttling]


class CaseTiming(Timing, frozen=True, kw_only=True):
    """The submission's time on a case beside its floor and its baselines."""

    floor_us: float
    """Least time: each input, parameter and output moved once at the measured copy bandwidth."""
    floor_fraction: float
    """floor_us over median_us: 1 is the speed of light."""
    bytes_min: int
    """What `floor_us` moves."""
    launch_bound: bool
    """The call's time is Python and launch, not the kernel."""
    baselines: dict[str, Baseline]
    """By their names, as `eager`."""
    speedup_over_best: Speedup | None = None
    """Against the fastest baseline of this case."""
    conditions: Conditions | None = None
    """None on a CPU, and where NVML cannot be asked."""
    captured: CaseTiming | None = None
    """The same calls as CUDA graphs, the submission's and the baselines'; None on a CPU, for a backward alone, and for
    calls that cannot be captured."""


class CodeLine(Struct, frozen=True, kw_only=True):
    """A line of the submission, without what moves a terminal's cursor."""

    number: int
    """From 1."""
    text: str
    """Without its end of line."""


class Mark(Struct, frozen=True, kw_only=True):
    """The part of a line that a message is about."""

    line: int
    """Its `number` among the frame's lines."""
    column: int
    """From 0, in characters."""
    length: int
    """In characters."""
    label: str = ""
    """What happens there, such as "reads"."""


class CodeFrame(Struct, frozen=True, kw_only=True):
    """Lines of the submission around those that a message is about. Numbers may leave some out."""

    file: str
    """The submission's, without its folder."""
    lines: list[CodeLine]
    """In order."""
    marks: list[Mark]
    """Where in them."""


class Printed(Struct, frozen=True, kw_only=True):
    """What a submission printed, from the host or a kernel: its words, without what moves a terminal's cursor."""

    lines: list[str]
    """The last that it printed."""
    left_out: int
    """Lines before them."""
    case: str = ""
    """While this case was judged; empty for all of its process's life until it was."""


class Worst(Struct, frozen=True, kw_only=True):
    """The element that is furthest from the oracle."""

    output: int
    """Which of the outputs, from 0; behind them come gradients."""
    index: list[int]
    """Its place in that output."""
    got: float | None
    """None where it was read from JSON, which has no infinity and no NaN; so `expected`."""
    expected: float | None
    """What the float64 reference gives."""


class CasePassed(Struct, frozen=True, kw_only=True, tag_field="status", tag="passed"):
    name: str
    """The case's, as the problem gives it."""
    shape: str
    """Of each input, such as `16×64×256×256` or `8×4, 4`; `scalar` without dimensions."""
    scaled: bool
    """The case ran on a smaller stand-in, because the device is a CPU."""
    error: float
    """The largest, against the float64 reference."""
    tolerance: float
    """What it may be."""
    error_ratio: float
    """The largest error over that of the reference run in the case's own dtype on this device."""
    dtype: str = ""
    """Of the inputs, by torch's name, several with commas; empty in results that do not say it."""
    timing: CaseTiming | None = None
    """Of the whole call: the forward, or the training step where the problem has gradients."""
    parts: dict[str, CaseTiming] = {}
    """Of a training step's `forward` and `backward`, each timed alone."""
    counts: list[KernelCounts] = []
    """Of each kernel, with --check on the emulator."""
    message: str = ""
    """Always empty."""


class CaseFailed(Struct, frozen=True, kw_only=True, tag_field="status", tag="failed"):
    name: str
    """The case's, as the problem gives it."""
    shape: str
    """Of each input, such as `16×64×256×256` or `8×4, 4`; `scalar` without dimensions."""
    scaled: bool
    """As a passed case's."""
    reason: Reason
    """What is wrong."""
    message: str
    """A sentence: what was found, and what to do."""
    repeat: str
    """A command that runs this case again on the same data."""
    dtype: str = ""
    """As a passed case's."""
    error: float | None = None
    """The largest, against the float64 reference; None where nothing could be compared."""
    tolerance: float | None = None
    """What it may be."""
    error_ratio: float | None = None
    """As a passed case's."""
    worst: Worst | None = None
    """Where the largest error is."""
    frame: CodeFrame | None = None
    """The submission's own lines, where the message is about some."""
    also: list[str] = []
    """Further defects that a device saw in the same call, a sentence each that begins with its reason."""
    explanation: Explanation | None = None
    """Why it is wrong; None where nobody looked."""
    timing: None = None


class CaseNotRun(Struct, frozen=True, kw_only=True, tag_field="status", tag="not_run"):
    name: str
    """The case's, as the problem gives it."""
    shape: str
    """Of each input, such as `16×64×256×256` or `8×4, 4`; `scalar` without dimensions."""
    scaled: bool
    """As a passed case's."""
    message: str
    """Why it was not run."""
    dtype: str = ""
    """As a passed case's."""
    error_ratio: None = None
    timing: None = None


Case = CasePassed | CaseFailed | CaseNotRun


class Geomeans(Struct, frozen=True, kw_only=True):
    """Speedups of one kind of times: geometric means of the timed cases with their 95% intervals; None where a case
    lacks the baseline."""

    geomean_speedup: float | None = None
    """Over eager."""
    geomean_interval: tuple[float, float] | None = None
    """Of `geomean_speedup`."""
    geomean_speedup_over_best: float | None = None
    """Over the fastest baseline of each case."""
    geomean_over_best_interval: tuple[float, float] | None = None
    """Of `geomean_speedup_over_best`."""


class Build(Struct, frozen=True, kw_only=True):
    """What `load_inline` cost and gave."""

    seconds: float
    """That the build took; 0 or little where it was cached."""
    cached: bool
    """Nothing had to be built."""
    kernels: list[KernelResources] = []
    """What the compiler said of each; empty without a GPU."""


class _Evaluation(Struct, frozen=True, kw_only=True, tag_field="status"):
    """What one submission got for one problem on one device."""

    problem: str
    """Its name, as `layernorm`."""
    submission: str
    """The file's name without .py."""
    source_sha256: str
    """Of the submission's file."""
    device: str
    """cuda, cpu or emulator."""
    seed: int
    """Every random number of the run follows from it, but for the clock's secrets."""
    effort: str = "usual"
    """How long was timed: `quick`, when one case may stand for all, `usual`, `thorough`, or `decisive`."""
    cases: list[Case]
    """In the problem's order; empty where none was run."""
    problem_sha256: str = ""
    """Of the problem's file; empty in results that do not say it."""
    chosen_cases: str = ""
    """A digest of the chosen cases' names (`digest_of_cases`), also where none was run."""
    build: Build | None = None
    """None where it came to none."""
    notes: list[Note] = []
    """What was left out or is worth knowing."""
    frame: CodeFrame | None = None
    """As a case's, of what failed before any case: building and loading."""
    finding: CaseFailed | None = None
    """What all detectors saw in the case that the message is about, where it was run again with them."""
    printed: Printed | None = None
    """What a rejected submission printed, and any with --show-output."""
    kept_from: str = ""
    """When it was made, ISO 8601, where a run found it in the store and did not judge anew."""


class Accepted(_Evaluation, frozen=True, kw_only=True, tag="accepted"):
    geomean_speedup: float | None = None
    """Over eager, geometric mean of the timed cases; None where nothing was timed."""
    not_timed: NotTimed = NotTimed.NOT_ASKED
    """Why nothing was timed, or not every case, where times were asked for."""
    geomean_interval: tuple[float, float] | None = None
    """95% confidence interval of `geomean_speedup`."""
    geomean_speedup_over_best: float | None = None
    """Over the fastest baseline of each case."""
    geomean_over_best_interval: tuple[float, float] | None = None
    """95% confidence interval of `geomean_speedup_over_best`."""
    captured: Geomeans | None = None
    """The same of captured times; None where not every timed case has one."""
    reason: None = None
    message: str = ""
    """Always empty."""

    @property
    def was_stopped(self) -> bool:
        """Whether the run ended while it was timed."""
        return self.not_timed is NotTimed.STOPPED

    @property
    def is_ranked(self) -> bool:
        """Whether it has a place among others: it has a speedup that is known, and none of its times is in doubt."""
        doubted = any(isinstance(note, FasterThanMemory) or _spoils_rank(note) for note in self.notes)
        return self.geomean_speedup is not None and not doubted and not self.is_too_noisy

    @property
    def is_too_noisy(self) -> bool:
        """Whether it has a speedup that is not known well enough, or one of a case that is not."""
        return self.has_wide_speedup or any(isinstance(note, TooNoisyToRank) for note in self.notes)

    @property
    def has_wide_speedup(self) -> bool:
        """Whether the interval of what decides a rank reaches further than KNOWN_WITHIN."""
        speedup, interval = self.geomean_speedup, self.geomean_interval
        return speedup is not None and interval is not None and reach(speedup, interval) > KNOWN_WITHIN


def _spoils_rank(note: Note) -> bool:
    """Whether the times that decide a rank were taken under conditions in which they say little."""
    return isinstance(note, Disturbed) and note.is_of_rank


class Rejected(_Evaluation, frozen=True, kw_only=True, tag="rejected"):
    reason: Reason
    """Of the first failure."""
    message: str
    """A sentence: what was found, and what to do."""
    failing: FailingCases | None = None
    """Which cases fail, where some were judged; empty in results that do not say it."""
    geomean_speedup: None = None


class Errored(_Evaluation, frozen=True, kw_only=True, tag="error"):
    """Nothing is said about the submission: the harness, the device or the emulator could not judge it."""

    reason: Reason
    """Why it could not be judged."""
    message: str
    """A sentence: what stood in the way, and what to do."""
    geomean_speedup: None = None


Evaluation = Accepted | Rejected | Errored


def status_of(evaluation: Evaluation) -> str:
    """The variant's name as JSON has it."""
    return str(evaluation.__struct_config__.tag)


class Results(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of `eval.py`: what `--json` writes."""

    schema: str
    """Its family and version. A field of another version may mean something else."""
    environment: dict[str, Any]
    """The machine, its software and the judge's version, as `eval.py env --json` prints them, and the command."""
    evaluations: list[Evaluation]
    """One for each submission, problem and device."""
    unfinished: int = 0
    """How many more were asked for: the run was stopped before. Absent where it was not."""
