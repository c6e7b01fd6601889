"""Whether a case fits into memory, and what is done where it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from harness import memory
from harness.device.base import Device
from harness.fitting.sizes import Sizes, like_inputs, sizes
from harness.notes import SmallerBatch
from harness.oracle.further import MOST_BYTES
from harness.problem import Case, Problem
from harness.problem.smaller import with_batch
from harness.timing.data.data_set import DATA_SETS
from harness.timing.data.exact import TOGETHER_BYTES
from harness.timing.rounds.calls import MAX_CALLS, with_spare

# What a reference makes of its inputs is looked at only where so many times the inputs are more than what is free: it
# takes seconds, and few make outputs that are eight times as large.
PLAINLY_ENOUGH = 200

# A product of inputs may be larger; so many times it stand in memory.
PRODUCTS = 60

# Of what is free so much may be planned with; of a case that is made smaller, the rest is for others that come.
PLANNED_SHARE, SMALLER_SHARE = 0.9, 0.75

# Where kernels are emulated a batch that is made smaller anyway has no more samples than this.
EMULATED_BATCH = 2

# Buffers in timing of a case whose calls are long.
BUFFERS = with_spare(1)


@dataclass(frozen=True)
class Fitted:
    """A case as it is judged here: itself, or with `note` a smaller one in its place; not at all where `refusal`, a
    sentence, says why."""

    case: Case
    note: SmallerBatch | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Need:
    """Bytes that a case takes at its peak, beside what idle processes do."""

    together: int
    """The judge with all workers."""
    worker: int
    """One worker, beside the arena."""


@dataclass(frozen=True)
class Room:
    """What there is, in bytes."""

    together: int
    worker: int

    def holds(self, need: Need, share: float = PLANNED_SHARE) -> bool:
        return need.together <= share * self.together and need.worker <= self.worker


def room_on(device: torch.device) -> Room:
    """What is free on the device that the judge computes on, for itself and its workers."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        return Room(free, total)
    return Room(memory.free_bytes(), memory.worker_limit(memory.smallest().total))


def fit(problem: Problem, case: Case, device: Device, contenders: int, room: Room) -> Fitted:
    """What of `case` is judged on `device` where there is `room`. `contenders` are timed on it, 0 for none.

    Nothing is drawn. On a GPU what is timed does not count: where it does not fit CUDA says so, and nobody is killed.
    """
    shown = case.on(device.name)
    timed = contenders if device.is_cpu else 0
    if _fits_plainly(shown, timed, room):
        return Fitted(case)
    need = needed(sizes(problem, shown), timed)
    if room.holds(need):
        return Fitted(case)
    for smaller in _smaller(problem, shown, device, need, room):
        found = sizes(problem, smaller)
        if found.known and room.holds(needed(found, timed), SMALLER_SHARE):
            batch, whole = smaller.shapes[0][0], shown.shapes[0][0]
            note = SmallerBatch(
                case=case.name, batch=batch, whole=whole, bytes_needed=need.together, bytes_free=room.together
            )
            return Fitted(replace(case, scaled=smaller, emulated=smaller), note)
    return Fitted(case, refusal=_refusal(need, room))


def needed(found: Sizes, contenders: int) -> Need:
    """What judging takes at its peak, and timing where there are `contenders`.

    The oracle holds what it was given, as it is and as it lies, the reference's own outputs, and in float64 inputs,
    parameters, outputs and all that a second, perturbed run works with. Calls on further data keep seven outputs at
    both ends. Measured with RMSNorm on (96, 64, 128, 128): 9.7 times the input, and the formula says 9; with
    further data 25 times, and it says 25 and what one reference works with; the data in other memory are one more, and
    up to five as parts of larger tensors, which cases of at most MOST_BYTES_OTHERWISE have."""
    one_call = 2 * found.outputs + _own(found, found.working_exact)
    expecting = (
        2 * found.given + found.outputs + found.parameters
        + found.given_exact + found.outputs_exact + found.parameters_exact + found.working_exact
    )  # fmt: skip
    arena = found.given + found.parameters
    worker = found.parameters + one_call
    calling = found.given + found.outputs_exact + arena + 2 * found.outputs + worker
    if found.given + found.outputs_exact <= MOST_BYTES:  # then there are further data (oracle.further)
        worker = 2 * found.parameters + 5 * found.outputs + one_call
        further = 4 * found.given + 3 * found.outputs_exact + 2 * (arena + found.parameters) + 7 * found.outputs
        calling = further + worker + found.working_exact
    together = max(expecting, calling)
    if contenders:
        together = max(together, _timing(found, contenders, worker))
    return Need(together, worker)


def _timing(found: Sizes, contenders: int, worker: int) -> int:
    """With RMSNorm on inputs of 64 to 256 MiB the judge held 3.6 GiB and 12.4 times the input."""
    exactly = found.given_exact + found.outputs_exact + found.working_exact
    rows = 2 * min(TOGETHER_BYTES, MAX_CALLS * found.given_exact)
    judge = 2 * DATA_SETS * found.given + found.outputs_exact + exactly + rows
    others = contenders * (2 * found.outputs + _own(found, found.working_exact) + found.parameters)
    return judge + BUFFERS * found.given + worker + others


def _own(found: Sizes, exact: int) -> int:
    """`exact` bytes in float64, in the case's own dtype."""
    return exact * found.outputs // max(found.outputs_exact, 1)


def _smaller(problem: Problem, case: Case, device: Device, need: Need, room: Room) -> Iterator[Case]:
    """`case` with ever smaller batches, powers of two, so that little decides which; none on a GPU, where times are to
    be those of the case itself."""
    if not (device.is_cpu and case.shapes and case.shapes[0]):
        return
    share = min(SMALLER_SHARE * room.together / need.together, room.worker / max(need.worker, 1), 0.5)
    batch = int(case.shapes[0][0] * share)
    if device.name == "emulator":
        batch = min(batch, EMULATED_BATCH)
    # A size of 1 goes with any other. In (N, N) times (N), which is along the last dimension, it would go as a batch.
    least = 1 if sum(shape[:1] == case.shapes[0][:1] for shape in case.shapes) == 1 else 2
    while batch >= least:
        batch = 1 << (batch.bit_length() - 1)
        if smaller := with_batch(problem, case, batch):
            yield smaller
        batch //= 2


def _fits_plainly(case: Case, timed: int, room: Room) -> bool:
    """Whether a look at the reference can be spared. Who writes CASES knows the machine and the reference."""
    guessed = like_inputs(case)
    if not case.from_functions:
        return room.holds(needed(guessed, timed))
    largest = max(PLAINLY_ENOUGH * guessed.given, PRODUCTS * _largest_product_bytes(case))
    return room.holds(Need(largest, 0))


def _largest_product_bytes(case: Case) -> int:
    """What the largest product of two inputs takes at the most: each without its shortest dimension."""
    rows = sorted(math.prod(shape) // max(min(shape, default=1), 1) for shape in case.shapes)
    return math.prod(rows[-2:]) * case.dtype.itemsize if len(rows) > 1 else 0


def _refusal(need: Need, room: Room) -> str:
    if need.worker > room.worker and need.together <= PLANNED_SHARE * room.together:
        what = f"a process that runs it needs some {_gib(need.worker)}, and may hold {_gib(room.worker)}"
    else:
        what = f"the judge and its workers need some {_gib(need.together)}, and {_gib(room.together)} are free"
    return f"{what}. Choose other cases with -k, give smaller shapes in CASES, or use a machine with more memory"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
