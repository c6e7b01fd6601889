"""The clock that scores: it runs in the judge, outside every process that it times.

A round: the judge puts data into shared memory, starts its own monotonic clock, changes secret elements
of all of it, and says 'go'. The worker runs the buffers that it is handed one after the other. The clock
stops only after the judge itself has read randomly chosen elements of every output out of the worker's
memory; a worker that has not finished, or that answered with something else, then holds wrong values.
What a round costs beside the calls is measured with a null, a worker of ours that obeys the same protocol, and is
taken off:

    time of a call = (time of the round - what the null kernel's round of as many calls cost beside its calls) / calls

On a CPU the null kernel's calls do nothing. On a GPU they negate, and events say how long the device worked on them in that
very round: a round of real kernels costs something else than one without any, for contexts change and caches of
addresses are cold. Its rounds last as long as those that they are compared with: on an H200 what comes after the wait
took 0.29 ms in rounds of 1 ms, 0.40 in rounds of 7 and 0.43 in rounds of 17.

No buffer is run twice in a round, and the cache is overwritten before it, so that inputs come from memory.
What was read is compared afterwards, and one call of each round in every element (see harness.timing.input_pool).
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from harness.device.base import Device, Reader
from harness.errors import Inconclusive, Stopped, SubmissionError, of_the_judge
from harness.isolation.sandbox import Worker
from harness.protocol.handshake import no_garbage_collection
from harness.protocol.replies import required
from harness.protocol.wire import Done, Name, Named, Play, Played, Prepare
from harness.reasons import Reason
from harness.timing.calls import LONGEST_ROUND, choose_calls, most_calls, with_spare
from harness.timing.contender import Contender
from harness.timing.input_pool import Changes, InputPool, SamplePlan
from harness.timing.inspection import Inspector, Round

NULL_KERNEL = "The null, which the judge's clock is compared with,"

# The calls of the first rounds, from which the number of calls is chosen; of the later ones where the first was long.
# The fastest counts: a round on a busy machine would have a contender run few calls, and few say little.
FIRST_CALLS = 2
PROBE_CALLS = 16
PROBES = 2

# When a contender would get so many times the calls by the median of so many rounds or more, all start again.
TOO_FEW = 2
ROUNDS_TO_CHOOSE_AGAIN = 3

# Once is enough for who was slow at first. Who becomes faster again and again would have all its rounds run again each
# time, and a round may take as long as several timeouts; it is not told a time.
TIMES_TO_CHOOSE_AGAIN = 2

# Calls before the clock starts: those that follow a pause are slow in Python and in the launch, by 30 to 190 µs on the
# machine with the H200, and not by the same in every process. Calls over the first limit are made once, over the second
# not at all: what takes long anyway is not worth the wait.
WARM_UP_CALLS = 2
LONG_WARM_UP_US = 1000.0
LONGEST_WARM_UP_US = 20_000.0

# What a longer wait adds to a round's end does not grow beyond.
LONGEST_NULL_US = 20_000.0

# Read in each output of a round when it ends: so many rows in all, however many calls there are, at least one of each,
# and so many elements of a row; more where an output is one row. What is finished after a reply must be so little that
# these miss it in every round.
SAMPLED_ROWS = 64
SAMPLES_PER_ROW = 8
SAMPLES_OF_ONE_ROW = 64

# Calls of a round that are compared where the reference does not treat its rows independently, as in the gradients
# of parameters. Of two calls of which one was left out they miss it once in eight rounds, and there are nine at the
# least, those included from which the number of calls is chosen.
WHOLE_CALLS = 3

MAX_ROUNDS = 200

# What the rounds of a contender that is not ours may take in all, in timeouts: each has a limit for every answer, and a
# submission can sleep up to it in calls that are not timed.
TIMEOUTS_IN_ALL = 5

# A round in which the judge had to map new memory of the worker is slow through no fault of its own and is run
# again; a submission that gives its memory back in every call makes every round such a round.
MAPPING_TRIES = 3


class Clock:
    """Times contenders on one case whose inputs are staged in the pool's buffers."""

    def __init__(self, device: Device, pool: InputPool, null: Contender, timeout_s: float, round_us: float) -> None:
        """`round_us` is how long rounds should be. What a round looks at, and which buffers it runs, comes from the
        system's entropy: no worker can know it from the data of earlier rounds, and no seed repeats it."""
        self._device = device
        self._pool = pool
        self._null = null
        self._random = random.SystemRandom()
        self._numbers = np.random.default_rng(secrets.randbits(128))
        self._timeout_s = timeout_s
        self._round_us = round_us
        self._running: list[Contender] = []
        self._first = null
        self._null_s = 0.0  # what its last round cost
        self._in_play: Sequence[int] = range(pool.buffer_count)
        self._chosen_again = 0
        self._left_out: dict[str, str] = {}
        self._inspector = Inspector(device, pool)

    # ------------------------------------------------------------------ one round

    def _play(self, contender: Contender, calls: int, lasts_us: float = 0.0) -> Round:
        """A round on data that changes when it begins; `lasts_us` is the null kernel's, see wire.Play."""
        ready = self._ready_buffers(contender, calls)
        return self._round(contender, ready, calls, self._pool.prepare(ready), lasts_us)

    def _ready_buffers(self, contender: Contender, calls: int) -> Sequence[int]:
        """The buffers of which `calls` can be run.

        Where only a backward is timed, `contender` does some buffers' forward here, before the upstream gradients are
        there."""
        if not self._pool.has_late_part:
            return self._in_play
        ready = self._random.sample(self._in_play, min(len(self._in_play), with_spare(calls)))
        self._pool.hide_late()
        required(contender.worker.ask(Prepare(buffers=ready), self._timeout_s), Done)
        self._pool.fill_late()
        return ready

    def _null_cost(self, calls: int, elapsed_s: float) -> float:
        """Seconds that a round of `calls` costs beside its calls: a round of the null kernel's, less what the device worked on
        its calls, which a worker of ours can be believed. It takes about `elapsed_s`."""
        with of_the_judge(NULL_KERNEL):
            lasts_us = min((elapsed_s - self._null_s) * 1e6, LONGEST_NULL_US)
            played = self._play_mapped(self._null, calls, lasts_us)
        self._null_s = played.elapsed_s - played.named.device_us / 1e6
        return self._null_s

    def _round(
        self, contender: Contender, ready: Sequence[int], calls: int, changes: Changes, lasts_us: float
    ) -> Round:
        """Run `calls` of the buffers that are ready. Raises SubmissionError when the worker fails."""
        buffers = self._random.sample(ready, calls)
        rows = self._numbers.integers(self._pool.rows, size=(calls, self._rows_of_a_call(calls)))
        elements = [self._elements(rows, i) for i in range(len(self._pool.forms))]
        offsets = [self._offsets(rows, asked, i) for i, asked in enumerate(elements)]
        worker, reader, begun = contender.worker, contender.reader, time.monotonic()
        if contender.trusted:  # the submission is held
            worker.regain_processors()
        worker.tell(Play(worker.handshake.number, self._warm_up(contender, ready, buffers), lasts_us))
        worker.wait_for_warm_up(self._timeout_s)
        reader.warm_up()
        started = time.perf_counter()
        self._pool.change(changes)
        worker.hand_out(buffers, self._timeout_s)
        reply = required(worker.hear(self._timeout_s, self._device.spin_s), Played)
        addresses = self._addresses(reply, calls)
        seen = [self._sample(reader, addresses, offsets, i) for i in range(len(self._pool.forms))]
        elapsed = time.perf_counter() - started
        named = self._names(worker, addresses)
        mapped = reader.learn([ref for outputs in named.outputs for ref in outputs], named.handles)
        if not mapped:
            seen = [self._sample(reader, addresses, offsets, i) for i in range(len(self._pool.forms))]
        if not contender.trusted:
            self._hold(contender, buffers)
            self._spend(contender, time.monotonic() - begun)
        compared, full = self._calls_to_compare(calls), self._random.randrange(calls)
        asked = [of_an_output[compared] for of_an_output in elements]
        wholly = None if contender.trusted else buffers[full]
        plan = SamplePlan([buffers[call] for call in compared], rows[compared], asked, wholly)
        return Round(contender, plan, compared, full, changes, elapsed, reply.issue_us, named, seen, mapped)

    def _warm_up(self, contender: Contender, ready: Sequence[int], buffers: Sequence[int]) -> list[int]:
        """Buffers to begin with outside the clock, of those that the round leaves out."""
        if contender.call_us > LONGEST_WARM_UP_US:
            return []
        used = set(buffers)
        calls = WARM_UP_CALLS if contender.call_us <= LONG_WARM_UP_US else 1
        return self._random.sample([buffer for buffer in ready if buffer not in used], calls)

    def _addresses(self, reply: Played, calls: int) -> np.ndarray:
        """Where the outputs begin, shape (calls, outputs). Raises SubmissionError when some are missing."""
        counts = {len(outputs) for outputs in reply.addresses}
        if len(reply.addresses) != calls or counts != {len(self._pool.forms)}:
            raise SubmissionError(
                Reason.WRONG_OUTPUT, f"{calls} calls gave {len(reply.addresses)} results of {counts} tensors each."
            )
        return np.array(reply.addresses, dtype=np.int64).reshape(calls, -1)

    def _sample(
        self, reader: Reader, addresses: np.ndarray, offsets: Sequence[np.ndarray], position: int
    ) -> np.ndarray:
        return reader.sample(addresses[:, position], offsets[position], self._pool.forms[position].dtype)

    def _names(self, worker: Worker, addresses: np.ndarray) -> Named:
        """What the outputs are whose addresses were given while the clock ran."""
        named = required(worker.ask(Name(), self._timeout_s), Named)
        forms = self._pool.forms
        filled = [i for i, form in enumerate(forms) if 0 not in form.shape]
        again = [[outputs[i].address for i in filled] for outputs in named.outputs if len(outputs) == len(forms)]
        if again != addresses[:, filled].tolist():
            raise SubmissionError(Reason.BAD_MESSAGE, "The outputs lie elsewhere than was said while the clock ran.")
        return named

    def _hold(self, contender: Contender, buffers: Sequence[int]) -> None:
        """Stop a contender that is not ours until it is told something: nothing of it runs while others are timed.

        Raises SubmissionError when it has changed an input, of its own round or of another's."""
        contender.worker.pause()
        looked_at: Iterable[int] = {self._random.choice(buffers), self._random.randrange(self._pool.buffer_count)}
        if sum(not other.trusted for other in self._running) > 1:  # else one could have another found wrong
            looked_at = range(self._pool.buffer_count)
        if self._pool.written_by_others(looked_at):
            raise SubmissionError(Reason.INPUT_MODIFIED, f"{contender.name} changed an input in a timed call.")

    def _spend(self, contender: Contender, seconds: float) -> None:
        """Raises SubmissionError when it has taken too long in all."""
        contender.spent_s += seconds
        limit_s = TIMEOUTS_IN_ALL * self._timeout_s
        if contender.spent_s > limit_s:
            contender.worker.end()
            raise SubmissionError(
                Reason.TIMED_OUT,
                f"{contender.name} took {contender.spent_s:.0f} s for its timed rounds, those calls included that are "
                f"not timed; {limit_s:g} s is the limit for a case, which --timeout makes longer.",
            )

    def _calls_to_compare(self, calls: int) -> list[int]:
        """All of them; where a call's expected values can only be computed as a whole, a few that nobody knew."""
        if self._pool.rows > 1:
            return list(range(calls))
        return self._random.sample(range(calls), min(calls, WHOLE_CALLS))

    def _rows_of_a_call(self, calls: int) -> int:
        """How many rows to look at in each call of a round."""
        return math.ceil(SAMPLED_ROWS / calls) if self._pool.rows > 1 else 1

    def _elements(self, rows: np.ndarray, position: int) -> np.ndarray:
        """Which elements of the rows to look at in an output, shape (calls, rows, elements)."""
        length = self._pool.row_length(position)
        samples = SAMPLES_PER_ROW if self._pool.rows > 1 else SAMPLES_OF_ONE_ROW
        return self._numbers.integers(max(length, 1), size=(*rows.shape, samples if length else 0))

    def _offsets(self, rows: np.ndarray, elements: np.ndarray, position: int) -> np.ndarray:
        """Where the asked elements of an output lie, in elements from its first, shape (calls, asked)."""
        form = self._pool.forms[position]
        flat = (rows[:, :, None] * self._pool.row_length(position) + elements).reshape(len(rows), -1)
        if not flat.size:
            return flat
        index = np.unravel_index(flat, form.shape or (1,))
        strides = form.stride or (1,)
        return np.asarray(sum(i * s for i, s in zip(index, strides, strict=True)), dtype=np.int64)

    # ------------------------------------------------------------------ judging what was seen

    def _judge(self, plays: Sequence[Round]) -> list[Round]:
        """Compare what was seen in rounds on one deal, and one call in full of each that is not ours. A contender that
        was wrong is dropped; the others' rounds are returned."""
        wanted = self._pool.expected([(played.plan, played.changes) for played in plays])
        return [
            p for p, w in zip(plays, wanted, strict=True) if self._or_drop(p.contender, self._inspector.judge, p, w)
        ]

    def _or_drop(self, contender: Contender, step: Callable[..., Round], *arguments: Any) -> Round | None:
        """What `step` gives. A contender that fails is dropped with a note, but for the first, the submission."""
        try:
            return step(*arguments)
        except Stopped as error:
            if contender is self._first:
                raise
            if contender.trusted and self._pool.written_by_others(range(self._pool.buffer_count)):
                message = f"{contender.name} failed in a timed round because somebody had written into its inputs."
                raise SubmissionError(Reason.INPUT_MODIFIED, message) from error
            self._running.remove(contender)
            self._left_out[contender.name] = error.message
            return None

    # ------------------------------------------------------------------ many rounds

    def _everyone(self, step: Callable[[Contender], Round]) -> list[Round]:
        """A round of each contender on one deal, in an order drawn anew, and judged together."""
        self._pool.fill()
        order = self._random.sample(self._running, len(self._running))
        plays = [self._or_drop(contender, step, contender) for contender in order]
        finished = [played for played in plays if played]
        return self._judge(finished) if finished else []

    def _choose_calls(self) -> None:
        """As many calls a round as fill the device's round length; these rounds also warm up."""
        most = most_calls(self._pool.buffer_count)
        first, probe = min(FIRST_CALLS, most), min(PROBE_CALLS, most)
        # The first round of all compiles, allocates and maps: it says little about time.
        plays = self._everyone(partial(self._play, calls=first))
        longest_s = LONGEST_ROUND * self._round_us / 1e6
        calls = {p.contender.name: first if p.elapsed_s > longest_s else probe for p in plays}
        for probe in range(PROBES):
            plays = self._everyone(lambda contender: self._play_mapped(contender, calls[contender.name]))
            fixed_s = self._null_costs(plays)
            for played in plays:
                contender = played.contender
                call_us = max((played.elapsed_s - fixed_s[contender.name]) * 1e6 / played.calls, 1.0)
                contender.call_us = min(contender.call_us, call_us) if probe else call_us
        chosen = self._chosen_calls()
        for contender in self._running:
            contender.calls = chosen[contender.name]
        self._keep_in_play(max(chosen.values()))

    def _choose_calls_again(self) -> None:
        """Start again where a contender was slow when calls were chosen and is no longer: its rounds are so short that
        what a round costs beside its calls decides what they seem to take."""
        done = min(len(contender.round_s) for contender in self._running)
        if done < ROUNDS_TO_CHOOSE_AGAIN or self._chosen_again == TIMES_TO_CHOOSE_AGAIN:
            return
        chosen, faster = self._became_faster()
        if faster:
            self._chosen_again += 1
            for contender in self._running:
                contender.start_again(max(chosen[contender.name], contender.calls))
            self._keep_in_play(max(contender.calls for contender in self._running))

    def _became_faster(self) -> tuple[dict[str, int], list[Contender]]:
        """How many calls each contender would have by its rounds so far, and whose rounds have too few."""
        for contender in self._running:
            contender.call_us = max(float(np.median(contender.net_us())), 1.0)
        chosen = self._chosen_calls()
        return chosen, [c for c in self._running if chosen[c.name] >= TOO_FEW * c.calls]

    def _leave_out_the_unsteady(self) -> None:
        """Who became faster once more than it could start again. What is below_noise in noise is found by others."""
        for contender in self._became_faster()[1]:
            # By its own time: with others' it would have more calls when one of them became faster.
            alone = choose_calls({"": contender.call_us}, self._round_us, most_calls(self._pool.buffer_count))[""]
            if alone >= TOO_FEW * contender.calls and not contender.below_noise():
                self._or_drop(contender, self._refuse_unsteady, contender)

    def _refuse_unsteady(self, contender: Contender) -> NoReturn:
        raise Inconclusive(
            Reason.TOO_NOISY,
            f"{contender.name} became faster again and again while it was timed: its rounds were too short at last to "
            "tell its time. Run it again, alone on the machine.",
        )

    def _chosen_calls(self) -> dict[str, int]:
        call_us = {contender.name: contender.call_us for contender in self._running}
        return choose_calls(call_us, self._round_us, most_calls(self._pool.buffer_count))

    def _keep_in_play(self, calls: int) -> None:
        """Go on with no more buffers than rounds of so many calls need: each is run again and again, so that a result
        that is kept from one round for another meets data that it does not belong to."""
        everything = range(self._pool.buffer_count)
        self._in_play = self._random.sample(everything, min(len(everything), with_spare(calls)))

    def measure(
        self, contenders: Sequence[Contender], budget_s: float, half_width: float, least_rounds: int
    ) -> dict[str, str]:
        """Fill the contenders' rounds, interleaved, until there are `least_rounds`, and the interval of every time is
        within the share `half_width` of it on either side or the budget is spent.

        Returns why each baseline that failed was left out, by its name; raises SubmissionError when the
        first contender, the submission, fails.
        """
        self._first, self._running, self._left_out = contenders[0], list(contenders), {}
        self._chosen_again = 0
        self._choose_calls()
        deadline = time.monotonic() + budget_s
        with no_garbage_collection():
            for left in reversed(range(MAX_ROUNDS)):
                done, spent = min(len(c.round_s) for c in self._running), time.monotonic() > deadline
                if done >= least_rounds and (spent or all(c.known_within(half_width) for c in self._running)):
                    break
                self._measure_once()
                if left >= least_rounds:  # who starts again needs so many
                    self._choose_calls_again()
        self._leave_out_the_unsteady()
        for contender in contenders:
            contender.finished = contender in self._running
        return self._left_out

    def _measure_once(self) -> None:
        plays = self._everyone(lambda contender: self._play_mapped(contender, contender.calls))
        fixed_s = self._null_costs(plays)
        for played in plays:
            contender = played.contender
            contender.round_s.append(played.elapsed_s)
            contender.null_s.append(fixed_s[contender.name])
            contender.issue_us.append(played.issue_us / max(played.calls - 1, 1))

    def _null_costs(self, plays: Sequence[Round]) -> dict[str, float]:
        """`_null_cost` for the contenders of these rounds, by name: one for those of as many calls, and on a GPU of
        about the same length, no round twice as long as another."""
        groups: dict[tuple[int, int], list[Round]] = {}
        for played in plays:
            length = 0 if self._device.is_cpu else round(math.log2(played.elapsed_s))
            groups.setdefault((played.calls, length), []).append(played)
        costs_s: dict[str, float] = {}
        for (calls, _), group in groups.items():
            cost_s = self._null_cost(calls, float(np.median([played.elapsed_s for played in group])))
            costs_s |= {played.contender.name: cost_s for played in group}
        return costs_s

    def _play_mapped(self, contender: Contender, calls: int, lasts_us: float = 0.0) -> Round:
        """A round in which nothing had to be mapped, if there is one."""
        for _ in range(MAPPING_TRIES):
            played = self._play(contender, calls, lasts_us)
            if played.mapped:
                break
        return played
