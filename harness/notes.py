"""What was left out of a result or is worth knowing beside it: values with their numbers.

harness.report.words puts each into a sentence, and nothing else does.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

# What notes call the submission among its baselines.
SUBMISSION = "submission"

# So much is kept of what an implementation said, in characters; people are shown its first line.
MAX_WHY = 2000


class _Note(Struct, frozen=True, kw_only=True, tag_field="note"):
    pass


class OneCaseTimed(_Note, frozen=True, tag="one_case_timed"):
    """--quick timed the first of the cases that can be timed."""

    case: str
    untimed: int
    """How many could be timed after it."""


class BaselineLeftOut(_Note, frozen=True, tag="baseline_left_out"):
    """A baseline has no time, on one case or on any."""

    baseline: str
    why: str
    """A sentence, or what its process said, of which MAX_WHY characters are kept."""
    case: str = ""
    """Empty where it is none: the baseline was left out of all."""
    part: str = ""
    """`forward` or `backward`, where only that part of a training step is without it."""

    def __post_init__(self) -> None:
        force_setattr(self, "why", self.why[:MAX_WHY])


class BaselineBelowNoise(_Note, frozen=True, tag="baseline_below_noise"):
    """A baseline's calls cannot be told from a round without any."""

    baseline: str
    case: str
    part: str = ""


class BaselineEnded(_Note, frozen=True, tag="baseline_ended"):
    """A baseline was timed, and its process ended before it was told to let go of the case."""

    baseline: str
    case: str
    why: str
    """As of BaselineLeftOut."""

    def __post_init__(self) -> None:
        force_setattr(self, "why", self.why[:MAX_WHY])


class NotCaptured(_Note, frozen=True, tag="not_captured"):
    """An implementation has no captured time on some cases."""

    implementation: str
    """SUBMISSION, or a baseline's name."""
    why: str
    """A sentence, or CUDA's words."""
    cases: list[str]


class InputsUnchanged(_Note, frozen=True, tag="inputs_unchanged"):
    """No input can be changed when a round begins, so that kept results would not be found out."""

    case: str
    part: str = ""


class BusyMachine(_Note, frozen=True, tag="busy_machine"):
    """Other programs used the processors while something was timed on them."""

    case: str
    share: float
    """Of all processors, from 0 to 1."""
    part: str = ""


class FasterThanMemory(_Note, frozen=True, tag="faster_than_memory"):
    """A call took less time than moving its bytes takes, within its interval and when it was measured again. A
    submission with such a time has no place among others."""

    case: str
    part: str = ""


class Disturbed(_Note, frozen=True, tag="disturbed"):
    """Rounds were played while the GPU was throttled or others used it, again and again. A submission has no place
    among others by such times."""

    case: str
    part: str = ""
    captured: bool = False
    throttled: list[str] = []
    """What throttled it, as `harness.records.ClockLimit`."""
    processes: list[int] = []
    """Numbers of the others."""
    discarded: int = 0
    """How many sets of rounds were played again before."""

    @property
    def is_of_rank(self) -> bool:
        """Whether it is about times that decide a rank: of whole calls, as a program makes them."""
        return not self.part and not self.captured


class TooNoisyToRank(_Note, frozen=True, tag="too_noisy_to_rank"):
    """Intervals are so wide that a submission has no place among others."""

    reaches: dict[str, float]
    """How far they reach from their values on the farther side, as shares of these: in a case those of the times, by
    SUBMISSION and names of baselines; else that of the speedup over a baseline, over all cases."""
    case: str = ""


class SanitizerFound(_Note, frozen=True, tag="sanitizer_found"):
    """A finding of compute-sanitizer's beside the one that is the reason."""

    tool: str
    message: str


class SanitizerFailed(_Note, frozen=True, tag="sanitizer_failed"):
    """One of compute-sanitizer's tools could not finish."""

    tool: str
    why: str


class SanitizerSilent(_Note, frozen=True, tag="sanitizer_silent"):
    """What compute-sanitizer's tools that finished found: nothing."""

    tools: list[str]


class DetectorsSilent(_Note, frozen=True, tag="detectors_silent"):
    """A case that failed on the emulator was run again with all detectors, and they found nothing."""

    case: str


class MayRun(_Note, frozen=True, tag="may_run"):
    """Operators of the reference's that a submission may call: it is much more than they are, and the problem does not
    say what is to be replaced."""

    operators: list[str]


class NoKernel(_Note, frozen=True, tag="no_kernel"):
    """The file builds no extension, and imports no language of kernels that is known: others' operators do its work."""


class OtherDefaults(_Note, frozen=True, tag="other_defaults"):
    """Arguments whose defaults ModelNew's constructor writes otherwise than Model's, which no case shows whose `init`
    gives them."""

    arguments: list[str]
    """Each with both defaults, ModelNew's first."""


class SameInEachDraw(_Note, frozen=True, tag="same_in_each_draw"):
    """Inputs or weights whose numbers the problem's file fixes: a submission may leave out what is in them."""

    names: list[str]


class SameInEachElement(_Note, frozen=True, tag="same_in_each_element"):
    """An output of which the reference gives one number, in each element and in all cases."""

    output: str
    value: float


class SmallUnseen(_Note, frozen=True, tag="small_unseen"):
    """An output of which so many elements, in every case, are far below the error bound and not 0."""

    output: str
    share: float
    """Of the case that has the fewest."""


class TrainingAlone(_Note, frozen=True, tag="training_alone"):
    """The reference gives something else after eval(), as BatchNorm does. That is not judged, nor what a call leaves in
    buffers."""


class SmallerBatch(_Note, frozen=True, tag="smaller_batch"):
    """A case was judged with a smaller first dimension, since there is no room for all of it."""

    case: str
    batch: int
    whole: int
    """The first dimension that the problem gives the case."""
    bytes_needed: int
    """What all of it takes, the judge and its workers together."""
    bytes_free: int


class Sentence(_Note, frozen=True, tag="sentence"):
    """A note of a file that holds sentences alone."""

    text: str


Note = (
    OneCaseTimed
    | BaselineLeftOut
    | BaselineBelowNoise
    | BaselineEnded
    | NotCaptured
    | InputsUnchanged
    | BusyMachine
    | FasterThanMemory
    | Disturbed
    | TooNoisyToRank
    | SanitizerFound
    | SanitizerFailed
    | SanitizerSilent
    | DetectorsSilent
    | MayRun
    | NoKernel
    | OtherDefaults
    | SameInEachDraw
    | SameInEachElement
    | SmallUnseen
    | TrainingAlone
    | SmallerBatch
    | Sentence
)


class NotTimed(StrEnum):
    """Why nothing was timed, or not all that should be; JSON holds the words."""

    NOT_ASKED = ""
    EMULATED = "the emulator gives verdicts, never times"
    NO_CASE = "no case that was chosen is timed (timed=True in CASES)"
    STOPPED = "the run was stopped before all cases were timed"
