"""What a result is older than: changes of the judge and of the submissions, by which a table says how old it is.

A change stands here until no committed result is older.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """What was changed, in the words that follow 'Measured before', and when (ISO 8601, UTC)."""

    when: str
    what: str
    problems: tuple[str, ...] = ()
    """The names of those whose submissions were changed; empty for all."""


_LAYERNORM = ("layernorm", "layernorm_dtypes", "layernorm_shapes")
_TRAINING = ("rmsnorm_train", "layernorm_dropout", "bias_gelu_train", "layernorm_train_dtypes")

# These move both times and counts.
RING = Change("2026-11-26T10:03:45+00:00", "long rows of `layernorm/speed_of_light` went through a ring", _LAYERNORM)
CLUSTERS = Change(
    "2026-11-27T03:09:44+00:00",
    "`layernorm/speed_of_light` held long rows in clusters and asked for the weight of few rows with x",
    _LAYERNORM,
)
HELD = Change(
    "2026-11-28T11:35:00+00:00",
    "`layernorm/speed_of_light` held the first chunks of a long row in registers",
    _LAYERNORM,
)
LAST_BLOCKS = Change(
    "2026-11-29T00:46:30+00:00",
    "`layernorm/speed_of_light` let the next kernel begin from its last blocks alone",
    _LAYERNORM,
)
RING_IN_16_BITS = Change(  # moves no time of an older table: its rows in 16 bits are shorter
    "2026-11-29T08:50:00+00:00",
    "long rows of 16 bits in `layernorm/speed_of_light` went through its ring",
    _LAYERNORM,
)
RING_AND_WARPS = Change(
    "2026-11-30T03:16:00+00:00",
    "`layernorm/speed_of_light` gave a row of 1,024 in 16 bits to a warp, and many rows of 65,536 in fp32 to its ring",
    _LAYERNORM,
)
RING_OF_STEPS = Change(
    "2026-11-30T03:16:00+00:00",
    "backwards took rows through a ring of bulk copies",
    ("rmsnorm_train", "layernorm_train_dtypes"),
)
NO_HINTS = Change(
    "2026-11-30T11:47:00+00:00",
    "rows that fit a block were loaded and stored without streaming hints",
    ("rmsnorm", "add_layernorm", "bias_gelu"),
)
FEWER_PARTIALS = Change(
    "2026-11-30T23:00:00+00:00",
    "blocks of the backward left fewer partial sums of columns",
    ("bias_gelu_train",),
)
FEWER_INSTRUCTIONS = Change(
    "2026-11-30T23:18:00+00:00",
    "16 bits, or Philox, took fewer instructions, and rows were asked for before the first was used",
    ("bias_gelu", "bias_gelu_train", "layernorm_dropout"),
)
LAST_FIRST = Change(
    "2026-11-30T23:21:00+00:00",
    "two blocks shared a row of 16,384, and the second kernel of a longer one began with what the first had read last",
    ("rmsnorm_train",),
)
FEWER_THREADS = Change(
    "2026-12-01T00:08:00+00:00",
    "rows of 768 and 1,024 had fewer threads, with more of the row in each",
    ("rmsnorm_train", "layernorm_train_dtypes"),
)
RING_OF_OPTIONS = Change(
    "2026-11-29T05:00:00+00:00",
    "long rows of `layernorm_options/read_once` went through a ring",
    ("layernorm_options",),
)
SHORT_ROWS = Change(
    "2026-11-29T06:10:00+00:00",
    "rows of `layernorm_options/read_once` that fit a block took weight and bias under a condition again",
    ("layernorm_options",),
)
STEPS_OF_OTHERS = Change(
    "2026-11-29T09:25:00+00:00",
    "training steps were compared with the implementations of others that have a backward",
    ("layernorm_train", "layernorm_train_dtypes", "rmsnorm_train", "bias_gelu_train"),
)
QUACK = Change(
    "2026-11-29T19:45:00+00:00",
    "quack's LayerNorm took calls with gradients enabled on data that need none",
    ("layernorm_shapes", "layernorm_dtypes"),
)
AUTOGRAD = Change("2026-11-27T03:21:45+00:00", "fast training submissions reached autograd from C++", _TRAINING)
PARTIALS = Change(
    "2026-11-27T05:22:00+00:00",
    "few partial sums of columns were added by small blocks, and chunks of rows were loaded as rows are",
    ("rmsnorm_train", "layernorm_train_dtypes"),
)

UPSTREAM = Change(  # a called step takes 1.3 us more
    "2026-12-01T03:19:00+00:00",
    "steps copied gradients that lie in an upstream's memory",
    ("layernorm_train", "layernorm_train_dtypes", "rmsnorm_train", "bias_gelu_train"),
)

# Where calls, called or captured, take less than 23 us.
MORE_CALLS = Change(
    "2026-11-30T22:38:00+00:00",
    "a round could have more than 256 calls",
    (*_LAYERNORM, "layernorm_dropout", "layernorm_train", "add_layernorm", "rmsnorm", "rmsnorm_train"),
)
ROUNDS = Change(
    "2026-11-26T23:07:13+00:00", "captured calls were warm in the first round that counts, and fewer rounds were played"
)

# What moves times.
TIMING = (
    Change("2026-11-22T09:23:07+00:00", "rounds on a GPU were lengthened from 3 ms to 6 ms"),
    Change("2026-11-22T18:57:58+00:00", "round overhead was equalised across implementations"),
    Change("2026-11-22T23:02:17+00:00", "each row of fewer than 1,024 elements changed in one element per round"),
    Change("2026-11-25T02:32:08+00:00", "a round had as many calls as graphs and contexts leave memory for"),
    Change("2026-11-25T09:46:46+00:00", "parameters of 1 MiB or more lay elsewhere in each round"),
    RING,
    ROUNDS,
    CLUSTERS,
    HELD,
    LAST_BLOCKS,
    RING_AND_WARPS,
    MORE_CALLS,
)
# What moves the times of a problem's submissions.
OF_PROBLEMS = (
    *TIMING,
    AUTOGRAD,
    PARTIALS,
    RING_OF_STEPS,
    RING_OF_OPTIONS,
    SHORT_ROWS,
    STEPS_OF_OTHERS,
    QUACK,
    NO_HINTS,
    FEWER_PARTIALS,
    FEWER_INSTRUCTIONS,
    LAST_FIRST,
    FEWER_THREADS,
    UPSTREAM,
)
# What moves counts and what a sanitizer sees.
KERNELS = (
    Change(
        "2026-11-22T09:14:03+00:00",
        "`layernorm`, `rmsnorm`, `layernorm_options` and `add_layernorm` used programmatic dependent launch",
    ),
    RING,
    CLUSTERS,
    HELD,
    LAST_BLOCKS,
    AUTOGRAD,
    RING_OF_OPTIONS,
    SHORT_ROWS,
    RING_IN_16_BITS,
    RING_AND_WARPS,
    RING_OF_STEPS,
    NO_HINTS,
    FEWER_PARTIALS,
    FEWER_INSTRUCTIONS,
    LAST_FIRST,
    FEWER_THREADS,
)
# What moves verdicts.
VERDICTS = (
    Change(
        "2026-11-23T11:57:00+00:00",
        "each case was called more than once, findings were told at once, and the corpus grew by these attacks",
    ),
    Change("2026-11-25T02:30:09+00:00", "a stopped worker's time was read once its threads had left the processors"),
    Change("2026-11-26T10:57:38+00:00", "gradients in 16 bits and results of mixed types had tolerances of their own"),
    Change(
        "2026-11-27T14:44:39+00:00",
        "six ways past the dispatcher were closed, and masks of dropout were tested at more distances",
    ),
    Change("2026-11-27T18:01:00+00:00", "masks of two calls were compared at every shift"),
    Change(
        "2026-11-27T22:02:00+00:00",
        "models were called in evaluation, random ones in training on other data, and steps with fewer gradients; two "
        "more ways past the dispatcher were closed",
    ),
    Change(
        "2026-11-28T01:37:00+00:00",
        "steps had another forward before their backward, and three more ways past the dispatcher were closed",
    ),
    Change(
        "2026-11-28T15:50:00+00:00",
        "models and steps were called in evaluation outside of inference mode, and fifteen more ways past the "
        "dispatcher were closed",
    ),
    Change("2026-11-28T20:49:17+00:00", "a constructor might refuse the arguments of a case that is not its own"),
    Change("2026-11-30T12:59:00+00:00", "elements beside large constants had to be right"),
    Change(
        "2026-12-01T00:25:00+00:00",
        "the first data came again in other memory, and weights were set back in evaluation",
    ),
    Change(
        "2026-12-01T03:19:00+00:00",
        "a call had to leave settings as they were and outputs apart, weights were moved, and a step's outputs were "
        "overwritten before a backward that came twice; several right kinds of training steps were accepted",
    ),
    Change(
        "2026-12-01T10:00:00+00:00",
        "a training step's other weights had zeros among them, and inputs that are not contiguous came a second time, "
        "as parts of longer rows",
    ),
    Change(
        "2026-12-01T14:00:00+00:00",
        "each of several inputs, and upstream gradients, lay in further ways, and dropout was called under no_grad and "
        "with fewer gradients",
    ),
)
# What moves how long builds and evaluations take.
KEYSTREAM = Change(
    "2026-11-26T13:07:41+00:00", "a GPU drew a round's numbers by one kernel, and bytecode was kept in the cache"
)
LEAN = Change("2026-11-26T13:55:35+00:00", "sources of kernels were compiled with less of torch's headers")
TOGETHER = Change(
    "2026-11-26T16:16:58+00:00", "long rounds had one probe, and workers of the next submissions loaded together"
)
BUILDERS = Change("2026-11-26T20:40:48+00:00", "builds for a GPU made no CUDA context and loaded torch once")
GIVEN_BACK = Change(
    "2026-11-27T03:52:07+00:00", "all contenders gave back what PyTorch keeps of a case that left a GPU little room"
)
OTHERS = Change("2026-11-27T08:30:00+00:00", "others were built while a submission waits for its own build")
KEPT = Change("2026-11-27T08:30:00+00:00", "the judge kept memory that it frees where a CPU runs the kernels")
SPEED = (KEYSTREAM, LEAN, TOGETHER, BUILDERS, ROUNDS, GIVEN_BACK, OTHERS, KEPT)
WARM_SPEED = (KEYSTREAM, TOGETHER, GIVEN_BACK, KEPT)  # builds are there, and rounds are among what moves times


def older(environment: dict[str, Any], changes: Iterable[Change], problem: str = "") -> str:
    """` Measured before …` for the change after the run of `environment`, of those that the `problem` has a part in; of
    several how many there are, and the last. Empty for none.

    Dates of one form in UTC compare as strings.
    """
    date = environment.get("date") or ""
    concern = [change for change in changes if not (problem and change.problems) or problem in change.problems]
    later = sorted((change.when, change.what) for change in concern if date and date < change.when)
    if len(later) > 1:
        return f" Measured before {len(later)} changes that may move it; the last: {later[-1][1]}."
    return f" Measured before {later[0][1]}." if later else ""
