"""The clock that scores: it runs in the judge, outside every process that it times.

A round: the judge puts freshly dealt inputs into shared memory, says which slots to run, and stops its
own monotonic clock only after it has itself read randomly chosen elements of every output out of the
worker's memory. A worker that has not finished, or that answered with something else, is then holding
wrong values. What a round costs beside the calls is measured with a stub, a worker of ours that obeys
the same protocol and does nothing, and is taken off:

    time of a call = (time of the round - time of the stub's round of as many calls) / calls

Which data lies in which slot changes from round to round, so that a result remembered by address is
wrong, and the slots together exceed the last-level cache, so that inputs come from memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from harness import oracle, stats
from harness.device.base import Device, Reader
from harness.errors import HarnessError, SubmissionError
from harness.form import check_form
from harness.sandbox import Worker
from harness.wire import Clear, Failed, Ran, Run, TensorRef

# The slots' inputs and outputs together are this many times the last-level cache.
COLD_FACTOR = 3
MIN_SLOTS = 2
MAX_SLOTS = 12

# Data sets beyond the number of slots, so that dealing always changes something.
SPARE_SETS = 1

MAX_CALLS = 256

# How the number of calls a round is found: rounds of more and more calls until one takes half of what is
# wanted. One call alone says little: the first of a round is the slowest.
PROBE_GROWTH = 4
PROBE_REPEATS = 2

# A slow contender's rounds may be this many times longer than wanted, to have as many calls as the others'.
LONGEST_ROUND = 4

SAMPLES_PER_OUTPUT = 4

MIN_ROUNDS = 9
MAX_ROUNDS = 200

# A round in which the judge had to map new memory of the worker is slow through no fault of its own and is run
# again; a submission that gives its memory back in every call makes every round such a round.
MAPPING_TRIES = 3

# A time is known well enough when its interval is within this share of it on either side.
TARGET_HALF_WIDTH = 0.01

# A call that is at least this share Python and launch is labelled launch-bound.
LAUNCH_BOUND_SHARE = 0.9


@dataclass
class DataSet:
    """Inputs and what must come out of them, both private to the judge."""

    inputs: list[torch.Tensor]
    expected: list[oracle.Expected]


@dataclass
class Contender:
    """An implementation being timed: its worker, and its rounds so far in the order they were run."""

    name: str
    worker: Worker
    reader: Reader
    calls: int = 1
    call_us: float = 0.0
    """A first estimate, which decides how many calls a round has."""
    round_s: list[float] = field(default_factory=list)
    stub_s: list[float] = field(default_factory=list)
    issue_us: list[float] = field(default_factory=list)
    finished: bool = False

    def samples_us(self) -> list[float]:
        """Time of a call in each round, microseconds; never below a nanosecond."""
        fixed_us = self.fixed_us()
        return [max((t * 1e6 - fixed_us) / self.calls, 1e-3) for t in self.round_s]

    def fixed_us(self) -> float:
        """What a round costs beside its calls, microseconds."""
        return float(np.median(self.stub_s)) * 1e6

    def launch_bound(self, median_us: float) -> bool:
        return float(np.median(self.issue_us)) >= LAUNCH_BOUND_SHARE * median_us


@dataclass(frozen=True)
class _Sample:
    """Where to look after a round, and what must stand there: for each output of the problem the element
    offsets and the float64 values, of shape (calls, SAMPLES_PER_OUTPUT), and the tolerances, (calls, 1)."""

    offsets: list[np.ndarray]
    expected: list[np.ndarray]
    tolerances: list[np.ndarray]


class Clock:
    """Times contenders on one case whose inputs are staged in the slots of the arena."""

    def __init__(
        self,
        device: Device,
        slots: Sequence[Sequence[TensorRef]],
        sets: Sequence[DataSet],
        stub: Contender,
        seed: int,
        timeout_s: float,
    ) -> None:
        self._device = device
        self._slots = slots
        self._sets = sets
        self._expected = sets[0].expected  # shape, strides and dtype are those of every set
        self._stub = stub
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._timeout_s = timeout_s
        self._dealt: list[int] = []
        size = max(2 * device.cache_bytes, 1)
        self._flush = torch.empty(size, dtype=torch.uint8, device=device.torch_device)

    # ------------------------------------------------------------------ one round

    def _deal(self) -> None:
        """Put data sets into slots at random and leave none of it in the cache."""
        self._dealt = self._random.sample(range(len(self._sets)), len(self._slots))
        for slot, chosen in zip(self._slots, self._dealt, strict=True):
            for ref, tensor in zip(slot, self._sets[chosen].inputs, strict=True):
                self._device.arena.view(ref).copy_(tensor)
        self._flush.fill_(self._random.randrange(256))
        self._device.synchronize()

    def _pick(self, slots: Sequence[int]) -> _Sample:
        dealt = np.array([self._dealt[slot] for slot in slots])
        offsets, expected, tolerances = [], [], []
        for position, output in enumerate(self._expected):
            count = SAMPLES_PER_OUTPUT if output.values.numel() else 0
            flat = self._numbers.integers(max(output.values.numel(), 1), size=(len(slots), count))
            index = np.unravel_index(flat, output.form.shape or (1,))
            offsets.append(
                sum(i * s for i, s in zip(index, output.form.stride or (1,), strict=True)) + np.zeros_like(flat)
            )
            values, tolerance = np.empty(flat.shape), np.empty((len(slots), 1))
            for chosen in set(dealt.tolist()):
                wanted = self._sets[chosen].expected[position]
                where = torch.from_numpy(flat[dealt == chosen]).to(wanted.values.device)
                values[dealt == chosen] = wanted.values.reshape(-1)[where].cpu().numpy()
                tolerance[dealt == chosen] = wanted.tolerance
            expected.append(values)
            tolerances.append(tolerance)
        return _Sample(offsets, expected, tolerances)

    def _slots_for(self, calls: int) -> list[int]:
        """Every slot equally often, in an order that nobody knows."""
        repeated = list(range(len(self._slots))) * -(-calls // len(self._slots))
        self._random.shuffle(repeated)
        return repeated[:calls]

    def round(self, contender: Contender, calls: int, stub: bool = False) -> tuple[float, Ran]:
        """Seconds of one round of `calls`, and the worker's reply. Raises SubmissionError when the worker
        fails, or when a sampled element is wrong (not for the stub, which computes nothing)."""
        slots = self._slots_for(calls)
        if not stub or not self._dealt:
            self._deal()
        sample = self._pick(slots)
        request = Run(slots=slots)
        contender.worker.ask(Clear(), self._timeout_s)
        started = time.perf_counter()
        contender.worker.tell(request)
        reply = contender.worker.hear(self._timeout_s, self._device.spin_s)
        if not isinstance(reply, Ran):
            raise _failure(reply)
        self._require_calls(reply, calls)
        right = self._sampled_right(contender.reader, reply, sample)
        elapsed = time.perf_counter() - started
        self._check_forms(reply)
        if not stub:
            self._require(contender.name, right, reply)
        return elapsed, reply

    def _require_calls(self, reply: Ran, calls: int) -> None:
        counts = {len(outputs) for outputs in reply.outputs}
        if len(reply.outputs) != calls or counts != {len(self._expected)}:
            raise SubmissionError(
                "wrong_output", f"{calls} calls gave {len(reply.outputs)} results of {counts} tensors each."
            )

    def _check_forms(self, reply: Ran) -> None:
        for outputs in reply.outputs:
            check_form(outputs, self._expected, self._device.torch_device.type, emulated=False)

    def _sampled_right(self, reader: Reader, reply: Ran, sample: _Sample) -> bool:
        """Read the sampled elements out of the worker's memory and compare them."""
        for position, output in enumerate(self._expected):
            refs = [outputs[position] for outputs in reply.outputs]
            got = reader.sample(refs, reply.handles, sample.offsets[position], output.form.dtype)
            wanted = sample.expected[position]
            with np.errstate(invalid="ignore"):
                near = np.abs(got - wanted) <= sample.tolerances[position]
            if not (near | (got == wanted) | (np.isnan(got) & np.isnan(wanted))).all():
                return False
        return True

    def _require(self, name: str, right: bool, reply: Ran) -> None:
        if reply.forbidden:
            raise SubmissionError("forbidden_op", f"{reply.forbidden[0]} ran in a timed call.")
        if not right:
            raise SubmissionError(
                "wrong_when_timed",
                f"{name} gave a wrong element in a timed call, on data that it had not seen in that place before.",
            )

    def verify(self, contender: Contender) -> None:
        """Run every slot once and compare every element, outside the clock; also the warm-up.

        Raises SubmissionError with the reason wrong_when_timed for a wrong element."""
        self._deal()
        reply = contender.worker.ask(Run(slots=list(range(len(self._slots)))), self._timeout_s)
        if not isinstance(reply, Ran):
            raise _failure(reply)
        self._require_calls(reply, len(self._slots))
        self._check_forms(reply)
        for slot, outputs in enumerate(reply.outputs):
            for ref, wanted in zip(outputs, self._sets[self._dealt[slot]].expected, strict=True):
                comparison = oracle.compare(contender.reader.read(ref, reply.handles), wanted)
                if not comparison.ok:
                    raise SubmissionError("wrong_when_timed", f"{contender.name}: {comparison.message}.")

    # ------------------------------------------------------------------ many rounds

    def choose_calls(self, contender: Contender) -> None:
        """As many calls a round as fill the device's round length within its memory for results."""
        result_bytes = sum(output.values.numel() * output.form.dtype.itemsize for output in self._expected)
        most = max(1, min(MAX_CALLS, self._device.result_bytes // max(result_bytes, 1)))
        calls = min(PROBE_GROWTH, most)
        while True:
            self.round(contender, calls)  # opens what there is to open, and fills the allocator
            elapsed = min(self.round(contender, calls)[0] for _ in range(PROBE_REPEATS))
            busy_us = max((elapsed - self._stub_round(calls)) * 1e6, 1.0)
            if calls == most or busy_us > self._device.round_us / 2:
                break
            calls = min(most, PROBE_GROWTH * calls)
        contender.call_us = busy_us / calls
        contender.calls = max(1, min(most, round(self._device.round_us / contender.call_us)))

    def _align_calls(self, contenders: Sequence[Contender]) -> None:
        """Give contenders the same number of calls where their rounds allow it, so that what the first calls
        of a round cost weighs alike on all."""
        largest = max(contender.calls for contender in contenders)
        for contender in contenders:
            allowed = int(LONGEST_ROUND * self._device.round_us / contender.call_us)
            contender.calls = max(contender.calls, min(largest, allowed))

    def _stub_round(self, calls: int) -> float:
        return self.round(self._stub, calls, stub=True)[0]

    def measure(self, contenders: Sequence[Contender], budget_s: float) -> list[str]:
        """Fill the contenders' rounds, interleaved, until their times are known well or the budget is spent.

        Returns a note for each baseline that failed and was left out; raises SubmissionError when the
        first contender, the submission, fails.
        """
        notes: list[str] = []
        running = list(contenders)

        def drop_if_failing(contender: Contender, step: Callable[[Contender], None]) -> None:
            try:
                step(contender)
            except SubmissionError as error:
                if contender is contenders[0]:
                    raise
                running.remove(contender)
                notes.append(f"{contender.name} was left out: {error.message}")

        for contender in contenders:
            drop_if_failing(contender, self._prepare)
        self._align_calls(running)
        for contender in list(running):
            drop_if_failing(contender, self._warm_up)
        deadline = time.monotonic() + budget_s
        for done in range(MAX_ROUNDS):
            spent = time.monotonic() > deadline
            if done >= MIN_ROUNDS and (spent or all(_known(c) for c in running)):
                break
            for contender in self._random.sample(running, len(running)):
                drop_if_failing(contender, self._measure_once)
        for contender in contenders:
            contender.finished = contender in running
        return notes

    def _prepare(self, contender: Contender) -> None:
        self.verify(contender)
        self.choose_calls(contender)

    def _warm_up(self, contender: Contender) -> None:
        self.round(contender, contender.calls)

    def _measure_once(self, contender: Contender) -> None:
        contender.stub_s.append(self._stub_round(contender.calls))
        for _ in range(MAPPING_TRIES):
            opened = contender.reader.opened
            elapsed, reply = self.round(contender, contender.calls)
            if contender.reader.opened == opened:  # else a mapping was made inside the round: again
                break
        contender.round_s.append(elapsed)
        contender.issue_us.append(reply.issue_us / contender.calls)


def _known(contender: Contender) -> bool:
    return stats.relative_half_width(contender.samples_us()) <= TARGET_HALF_WIDTH


def _failure(reply: object) -> Exception:
    if isinstance(reply, Failed):
        return SubmissionError(reply.reason, reply.message)
    return HarnessError(f"A worker answered a run with {type(reply).__name__}.")


def slot_count(device: Device, call_bytes: int) -> int:
    """How many slots leave the cache cold for calls that move `call_bytes`."""
    return max(MIN_SLOTS, min(MAX_SLOTS, -(-COLD_FACTOR * device.cache_bytes // max(call_bytes, 1))))
