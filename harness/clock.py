"""The clock that scores: it runs in the judge, outside every process that it times.

A round: the judge puts data into shared memory, starts its own monotonic clock, changes secret elements
of all of it, and says 'go'. The worker runs the slots that it is handed one after the other. The clock
stops only after the judge itself has read randomly chosen elements of every output out of the worker's
memory; a worker that has not finished, or that answered with something else, then holds wrong values.
What a round costs beside the calls is measured with a stub, a worker of ours that obeys the same protocol
and does nothing, and is taken off:

    time of a call = (time of the round - what the stub's round of as many calls cost) / calls

No slot is run twice in a round, and the cache is overwritten before it, so that inputs come from memory.
What was read is compared afterwards, and one call of each round in every element (see harness.dealing).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from harness import oracle, stats
from harness.dealing import Dealer
from harness.device.base import Device, Reader
from harness.errors import HarnessError, SubmissionError
from harness.form import check_form
from harness.sandbox import Worker
from harness.wire import Clear, Failed, OutputRef, Play, Prepare, Ran

# Slots beyond the calls of a round, as a share of them and at least: which are run, and how many, is not known.
SPARE_SHARE = 0.25
MIN_SPARE_SLOTS = 2

# The first call of a round is slower than the others by 30 to 190 µs on an H200, and not by the same in every
# process: it must not be all that there is.
MIN_CALLS = 3
MAX_CALLS = 256

# A call through Python takes at least so long, however little it does.
SHORTEST_CALL_US = 8.0

# The calls of the first rounds, from which the number of calls is chosen. All outputs of the first are compared.
FIRST_CALLS = 3
PROBE_CALLS = 16

# A slow contender's rounds may be this many times longer than wanted, to have as many calls as the others'.
LONGEST_ROUND = 4

# Read in every output of a round: so many elements in each of so many rows.
SAMPLED_ROWS = 2
SAMPLES_PER_ROW = 4

# Calls of a round that are compared where the reference does not treat its rows independently, as in the gradients
# of parameters. Of two calls of which one was left out they miss it once in eight rounds, and there are nine.
WHOLE_CALLS = 3

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
class _Question:
    """What a round is asked: its slots, the rows to look at in each call, and for each output the elements of
    those rows, of shape (calls, rows, elements). The call `full` is compared in all its elements."""

    slots: list[int]
    rows: np.ndarray
    elements: list[np.ndarray]
    full: int


@dataclass(frozen=True)
class _Round:
    """One round as it was seen: seconds, the worker's reply, and for each output what stood at the elements
    that were asked for."""

    elapsed_s: float
    reply: Ran
    question: _Question
    seen: list[np.ndarray]


class Clock:
    """Times contenders on one case whose inputs are staged in the dealer's slots."""

    def __init__(self, device: Device, dealer: Dealer, stub: Contender, seed: int, timeout_s: float) -> None:
        self._device = device
        self._dealer = dealer
        self._stub = stub
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._timeout_s = timeout_s

    # ------------------------------------------------------------------ one round

    def _ask(self, calls: int, among: Sequence[int]) -> _Question:
        rows = np.stack([self._some(self._dealer.rows, SAMPLED_ROWS) for _ in range(calls)])
        elements = [
            self._numbers.integers(max(self._dealer.row_length(i), 1), size=(*rows.shape, SAMPLES_PER_ROW))
            for i in range(len(self._dealer.forms))
        ]
        slots = self._random.sample(among, calls)
        return _Question(slots, rows, elements, self._random.randrange(calls))

    def _some(self, rows: int, count: int) -> np.ndarray:
        return self._numbers.choice(rows, size=min(rows, count), replace=False)

    def _round(self, contender: Contender, question: _Question, begin: Callable[[], None]) -> _Round:
        """Run one round on dealt data; `begin` changes it. Raises SubmissionError when the worker fails."""
        offsets = [self._offsets(question, i) for i in range(len(self._dealer.forms))]
        contender.worker.ask(Clear(), self._timeout_s)
        request = Play(turn=contender.worker.turns.number)
        started = time.perf_counter()
        begin()
        contender.worker.tell(request)
        contender.worker.hand_out(question.slots, self._timeout_s)
        reply = contender.worker.hear(self._timeout_s, self._device.spin_s)
        if not isinstance(reply, Ran):
            raise _failure(reply)
        self._require_calls(reply, len(question.slots))
        seen = [
            contender.reader.sample([outputs[i] for outputs in reply.outputs], reply.handles, offsets[i], form.dtype)
            for i, form in enumerate(self._dealer.forms)
        ]
        elapsed = time.perf_counter() - started
        return _Round(elapsed, reply, question, seen)

    def _offsets(self, question: _Question, position: int) -> np.ndarray:
        """Where the asked elements of an output lie, in elements from its first, shape (calls, asked)."""
        form = self._dealer.forms[position]
        length = self._dealer.row_length(position)
        if not length:
            return np.zeros((len(question.slots), 0), dtype=np.int64)
        flat = (question.rows[:, :, None] * length + question.elements[position]).reshape(len(question.slots), -1)
        index = np.unravel_index(flat, form.shape or (1,))
        strides = form.stride or (1,)
        return np.asarray(sum(i * s for i, s in zip(index, strides, strict=True)), dtype=np.int64)

    def _require_calls(self, reply: Ran, calls: int) -> None:
        counts = {len(outputs) for outputs in reply.outputs}
        if len(reply.outputs) != calls or counts != {len(self._dealer.forms)}:
            raise SubmissionError(
                "wrong_output", f"{calls} calls gave {len(reply.outputs)} results of {counts} tensors each."
            )

    def _judge(self, contender: Contender, played: _Round) -> None:
        """Compare what was seen, and one call in full. Raises SubmissionError when something is wrong."""
        if played.reply.forbidden:
            raise SubmissionError("forbidden_op", f"{played.reply.forbidden[0]} ran in a timed call.")
        for outputs in played.reply.outputs:
            check_form(outputs, self._dealer.forms, self._device.torch_device.type, emulated=False)
        question = played.question
        everything = list(range(self._dealer.rows))
        calls = self._calls_to_compare(question)
        expected = self._dealer.expected_rows(
            [question.slots[call] for call in (*calls, question.full)],
            [*(question.rows[call].tolist() for call in calls), everything],
        )
        for position, (seen, wanted) in enumerate(zip(played.seen, expected, strict=True)):
            if not self._as_expected(seen[calls], wanted[:-1], question.elements[position][calls], position):
                raise SubmissionError(
                    "wrong_when_timed",
                    f"{contender.name} gave a wrong element in a timed call, on data that it had not seen before.",
                )
            self._judge_fully(contender, played.reply, question.full, position, wanted[-1])

    def _calls_to_compare(self, question: _Question) -> list[int]:
        """All calls; where a call's expected values can only be computed as a whole, a few that nobody knew."""
        calls = range(len(question.slots))
        if self._dealer.rows > 1:
            return list(calls)
        return self._random.sample(calls, min(len(calls), WHOLE_CALLS))

    def _as_expected(self, seen: np.ndarray, rows: Sequence[torch.Tensor], elements: np.ndarray, position: int) -> bool:
        if not seen.size:
            return True
        where = torch.from_numpy(elements).to(rows[0].device)
        wanted = torch.stack(list(rows)).gather(2, where).reshape(len(rows), -1).cpu().numpy()
        with np.errstate(invalid="ignore"):
            near = np.abs(seen - wanted) <= self._dealer.tolerances[position]
        return bool((near | (seen == wanted) | (np.isnan(seen) & np.isnan(wanted))).all())

    def _judge_fully(self, contender: Contender, reply: Ran, call: int, position: int, values: torch.Tensor) -> None:
        form = self._dealer.forms[position]
        wanted = oracle.Expected(values.reshape(form.shape), form, self._dealer.tolerances[position], 0.0)
        comparison = oracle.compare(self._read(contender, reply.outputs[call][position], reply), wanted)
        if not comparison.ok:
            raise SubmissionError("wrong_when_timed", f"{contender.name}, in a timed call: {comparison.message}.")

    def _read(self, contender: Contender, ref: OutputRef, reply: Ran) -> torch.Tensor:
        return contender.reader.read(ref, reply.handles)

    def _play(self, contender: Contender, calls: int) -> _Round:
        """A round on fresh data, judged."""
        ready = self._deal_for(contender, calls)
        played = self._round(contender, self._ask(calls, ready), self._dealer.change)
        self._judge(contender, played)
        return played

    def _deal_for(self, contender: Contender, calls: int) -> Sequence[int]:
        """Fresh data in all slots; the slots of which `calls` can be run.

        Where only a backward is timed, `contender` does some slots' forward here, before the upstream gradients are
        there."""
        self._dealer.deal()
        everything = range(self._dealer.slot_count)
        if not self._dealer.has_late_part:
            return everything
        ready = self._random.sample(everything, min(len(everything), with_spare(calls)))
        reply = contender.worker.ask(Prepare(slots=ready), self._timeout_s)
        if isinstance(reply, Failed):
            raise _failure(reply)
        self._dealer.deal_late()
        return ready

    def _play_stub(self, calls: int) -> float:
        """Seconds that a round of `calls` costs beside its calls.

        Where the device works while the worker's Python goes on, handing out turns is hidden behind kernels in
        all but the shortest calls, and is not taken off. The stub's own word on that can be believed."""
        question = self._ask(calls, range(self._dealer.slot_count))
        played = self._round(self._stub, question, self._dealer.change_nothing)
        return played.elapsed_s - (0.0 if self._device.is_cpu else played.reply.issue_us / 1e6)

    # ------------------------------------------------------------------ many rounds

    def _choose_calls(self, contender: Contender) -> None:
        """As many calls a round as fill the device's round length; the first rounds also warm up."""
        most = most_calls(self._dealer.slot_count)
        for calls in (min(FIRST_CALLS, most), min(PROBE_CALLS, most)):
            busy_us = (self._play(contender, calls).elapsed_s - self._play_stub(calls)) * 1e6
            contender.call_us = max(busy_us / calls, 1.0)
            if busy_us > self._device.round_us:
                break
        contender.calls = max(min(MIN_CALLS, most), min(most, round(self._device.round_us / contender.call_us)))

    def _align_calls(self, contenders: Sequence[Contender]) -> None:
        """Give contenders the same number of calls where their rounds allow it, so that what the first calls
        of a round cost weighs alike on all."""
        largest = max(contender.calls for contender in contenders)
        for contender in contenders:
            allowed = int(LONGEST_ROUND * self._device.round_us / contender.call_us)
            contender.calls = max(contender.calls, min(largest, allowed))

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
            drop_if_failing(contender, self._choose_calls)
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

    def _warm_up(self, contender: Contender) -> None:
        self._play(contender, contender.calls)

    def _measure_once(self, contender: Contender) -> None:
        for _ in range(MAPPING_TRIES):
            opened = contender.reader.opened
            ready = self._deal_for(contender, contender.calls)
            stub_s = self._play_stub(contender.calls)
            self._dealer.flush()
            played = self._round(contender, self._ask(contender.calls, ready), self._dealer.change)
            self._judge(contender, played)
            if contender.reader.opened == opened:  # else a mapping was made inside the round: again
                break
        contender.stub_s.append(stub_s)
        contender.round_s.append(played.elapsed_s)
        contender.issue_us.append(played.reply.issue_us / contender.calls)


def _known(contender: Contender) -> bool:
    return stats.relative_half_width(contender.samples_us()) <= TARGET_HALF_WIDTH


def _failure(reply: object) -> Exception:
    if isinstance(reply, Failed):
        return SubmissionError(reply.reason, reply.message)
    return HarnessError(f"A worker answered a round with {type(reply).__name__}.")


def slot_count(device: Device, floor_us: float, call_bytes: int, result_bytes: int) -> int:
    """Slots for a case whose calls take at least `floor_us`, read `call_bytes` and write `result_bytes`."""
    wanted = min(MAX_CALLS, max(MIN_CALLS, int(device.round_us / max(floor_us, SHORTEST_CALL_US))))
    room = min(device.input_bytes // max(call_bytes, 1), device.result_bytes // max(result_bytes, 1))
    calls = max(1, min(wanted, room))
    return with_spare(calls)


def with_spare(calls: int) -> int:
    """How many slots are made ready for so many calls."""
    return calls + max(MIN_SPARE_SLOTS, int(calls * SPARE_SHARE))


def most_calls(slots: int) -> int:
    """The most calls that a round may have with so many slots: some stay unused."""
    return max(1, min(slots - MIN_SPARE_SLOTS, int(slots / (1 + SPARE_SHARE))))
