"""The clock that scores. It runs in the judge, outside every process that it times.

In a round the judge starts its own monotonic clock, changes secret elements of the inputs in shared memory and says
'go'. The worker runs the buffers that it is handed one after the other. The clock stops only after the judge itself has
read randomly chosen elements of every output from the worker's memory. A worker that has not finished, or that replied
with something else, holds wrong values then.

A round costs something beside its calls. That is measured with rounds of a null kernel, a worker of ours that obeys the
same protocol, and subtracted:

    time of a call = (time of the round - what a null round of as many calls cost beside its calls) / calls

On a CPU the null kernel's calls do nothing. On a GPU they negate their input, and events say how long the device worked
on them in that very round: a round with real kernels costs something else than one without, since contexts change and
address caches are cold. Null rounds last as long as the rounds that they are compared with: on an H200, what follows
the wait took 0.29 ms in rounds of 1 ms, 0.40 ms in rounds of 7 ms and 0.43 ms in rounds of 17 ms.

A captured round is one CUDA graph of its calls in a row, which the worker made before and launches when the judge says
'go': the time is the device's, without Python. The data change, and outputs are read and compared, as in any round. The
worker knows the round's buffers before it begins. A graph for each call, launched one by one, would not tell; but such
launches took 12 to 50 µs each in rounds on an H200, more than short kernels.

No buffer is run twice in a round, and the cache is overwritten before it, so that inputs come from memory. Large
parameters lie elsewhere in each round, since their place decides what of them the cache holds. The sampled
elements are compared afterwards, and one call of each round in every element (see harness.timing.rounds.inspection).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from harness import oracle
from harness.device.base import Device, Reader
from harness.errors import NotCaptured, SubmissionError
from harness.isolation.sandbox import Worker
from harness.protocol.replies import required
from harness.protocol.wire import Capture, Captured, Done, Name, Named, Play, Played, Prepare
from harness.reasons import Reason
from harness.timing.data.case_data import CaseData
from harness.timing.data.expected_rounds import ExpectedRound
from harness.timing.data.pooled_input import Contents
from harness.timing.data.sample_plan import Sampler, Samples, plan_comparison
from harness.timing.rounds.calls import with_spare
from harness.timing.rounds.conditions import Lookout, Looks
from harness.timing.rounds.contender import Contender, ProcessorTime
from harness.timing.rounds.idle import Idle
from harness.timing.rounds.inspection import Inspector
from harness.timing.rounds.round import Evidence, Round

# What messages call the null kernel.
NULL_KERNEL = "The null kernel, which the judge's clock is compared with,"

# Calls before the clock starts. The first calls after a pause are slow in Python and at launch, by 30 to 190 µs on the
# machine with the H200, and not equally in every process. A call over the first limit is made once, one over the second
# not at all: what takes long anyway is not worth the wait.
WARM_UP_CALLS = 2
LONG_WARM_UP_US = 1000.0
LONGEST_WARM_UP_US = 20_000.0

# Limit in timeouts on the sum of all rounds of a contender that is not ours. Each answer has a limit of its own, but a
# submission can sleep up to that limit in calls that are not timed.
TIMEOUTS_IN_ALL = 5

_Place = tuple[int, np.ndarray, torch.dtype]
"""The position of an output, the offsets to read of it (`Samples.offsets`), and its dtype."""


@dataclass(frozen=True)
class _Run:
    """What the clock saw of a round: when it began and how long it was, the worker's reply, where the outputs begin
    (int64, shape (calls, outputs)), and the sampled elements."""

    started_s: float
    elapsed_s: float
    reply: Played
    addresses: np.ndarray
    seen: list[np.ndarray]

    def read_again(self, reader: Reader, places: list[_Place]) -> _Run:
        """The same with what can be read now that the outputs' memory is mapped. It may have been written at any time
        until now, so until now the round lasted: who has new memory in each round pays for its mapping."""
        seen = _read(reader, self.addresses, places)
        return replace(self, elapsed_s=time.perf_counter() - self.started_s, seen=seen)


class Clock:
    """Plays timed rounds on one case, one round of one contender at a time, as a RoundPlayer."""

    def __init__(self, device: Device, data: CaseData, timeout_s: float) -> None:
        """The system's entropy decides which buffers a round runs, as it does what is sampled (see sample_plan)."""
        self._device = device
        self._pool = data.pool
        self._forms = data.outputs.forms
        self._expected = data.expected
        self._timeout_s = timeout_s
        self._idle = Idle(device)
        self._lookout = Lookout(device)
        self._random = random.SystemRandom()
        self._sampler = Sampler(data.outputs)
        self._inspector = Inspector(device, data.outputs)
        self._in_use: Sequence[int] = range(data.pool.buffer_count)

    @property
    def buffer_count(self) -> int:
        return self._pool.buffer_count

    def use_buffers_for(self, calls: int) -> None:
        """From now on use no more buffers than rounds of so many calls need. Each is then run again and again, so that
        a result that is kept from one round for another meets data that it does not belong to."""
        self._in_use = self._random.sample(range(self.buffer_count), min(self.buffer_count, with_spare(calls)))

    def fill(self) -> None:
        self._pool.fill()
        self._lookout.start()

    def seen(self) -> Looks:
        return self._lookout.looks

    def expected(self, rounds: Sequence[Round]) -> Iterator[ExpectedRound]:
        return self._expected.of([(played.evidence.plan, played.evidence.contents) for played in rounds])

    def judge(self, played: Round, expected: ExpectedRound) -> None:
        self._inspector.judge(played, expected)

    def inputs_were_written(self) -> bool:
        return self._pool.written_by_others(range(self.buffer_count))

    def play(self, contender: Contender, calls: int, lasts_us: float = 0.0, *, check_all_inputs: bool = False) -> Round:
        """See RoundPlayer.play."""
        was_idle = self._idle.wait()
        ready = self._ready_buffers(contender, calls)
        contents = self._pool.prepare(ready)
        buffers = self._random.sample(ready, calls)
        samples = self._sampler.draw(calls)
        places = _places(samples, self._forms)
        begun, used_s = time.monotonic(), [contender.worker.processor_s()]
        self._start(contender, self._warm_up(contender, ready, buffers), buffers, lasts_us)
        used_s.append(contender.worker.processor_s())
        run = self._run(contender, buffers, contents, places)
        full = None if contender.trusted else self._sampler.call_to_compare_fully(calls)
        whole = [] if full is None else self._hold_and_read(contender, run.addresses[full])
        used_s.append(contender.worker.processor_s())
        named = self._names(contender.worker, run.addresses)
        mapped = contender.reader.learn([ref for outputs in named.outputs for ref in outputs], named.handles)
        if not mapped:
            run = run.read_again(contender.reader, places)
        if not contender.trusted:
            self._hold(contender, buffers, check_all_inputs=check_all_inputs)
            self._spend(contender, time.monotonic() - begun)
            if was_idle:
                contender.left_device_busy.append(not self._idle.wait())
        used_s.append(contender.worker.processor_s())
        self._lookout.look()  # the contender is held, and has left the device idle or was found out
        compared = self._sampler.calls_to_compare(calls)
        plan = plan_comparison(samples, buffers, compared, full)
        evidence = Evidence(plan, compared, full, contents, named, run.seen, whole)
        processor_s = ProcessorTime(*np.diff(used_s))
        return Round(
            contender, calls, run.elapsed_s, run.reply.issue_us, named.device_us, mapped, evidence, processor_s
        )

    def _ready_buffers(self, contender: Contender, calls: int) -> Sequence[int]:
        """The buffers of which `calls` can be run.

        Where only a backward is timed, `contender` does the forward of some buffers here, before the upstream gradients
        are there; where it is captured, it makes its graphs here. Raises NotCaptured when it cannot."""
        if not self._pool.has_late_part and not contender.captured:
            return self._in_use
        if contender.captured:
            ready = list(self._in_use[: with_spare(calls)])  # the same again, so that graphs serve for several rounds
            made = required(contender.worker.ask(Capture(buffers=ready), self._timeout_s), Captured)
            if made.why:
                raise NotCaptured(made.why)
            contender.reader.learn([ref for outputs in made.outputs for ref in outputs], made.handles)
            return ready
        ready = self._random.sample(self._in_use, min(len(self._in_use), with_spare(calls)))
        self._pool.hide_late()
        try:
            required(contender.worker.ask(Prepare(buffers=ready), self._timeout_s), Done)
        finally:  # a baseline that fails must not leave inputs that look as if somebody had written them
            self._pool.fill_late()
        return ready

    def _warm_up(self, contender: Contender, ready: Sequence[int], buffers: Sequence[int]) -> list[int]:
        """Buffers to run before the clock starts, of those that the round leaves out."""
        if contender.call_us > LONGEST_WARM_UP_US and not contender.captured:
            return []
        used = set(buffers)
        calls = WARM_UP_CALLS if contender.call_us <= LONG_WARM_UP_US else 1
        return self._random.sample([buffer for buffer in ready if buffer not in used], calls)

    def _start(self, contender: Contender, warm_up: list[int], buffers: list[int], lasts_us: float) -> None:
        """Have the worker warm up and wait for its first buffer."""
        worker = contender.worker
        if contender.trusted:  # the submission is held
            worker.regain_processors()
        worker.tell(Play(worker.handshake.number, warm_up, lasts_us, buffers if contender.captured else []))
        worker.wait_for_warm_up(self._timeout_s)
        contender.reader.warm_up()

    def _run(self, contender: Contender, buffers: list[int], contents: Contents, places: list[_Place]) -> _Run:
        """The part of a round that the clock times."""
        pool, worker, reader, calls = self._pool, contender.worker, contender.reader, len(buffers)
        started = time.perf_counter()
        pool.change(contents)
        worker.hand_out(buffers[:1] if contender.captured else buffers, self._timeout_s)
        reply = required(worker.hear(self._timeout_s, self._device.spin_s), Played)
        addresses = self._addresses(reply, calls)
        seen = _read(reader, addresses, places)
        return _Run(started, time.perf_counter() - started, reply, addresses, seen)

    def _hold_and_read(self, contender: Contender, addresses: np.ndarray) -> list[torch.Tensor | None]:
        """Stop a contender that is not ours as soon as the clock has stopped, and read what one call returned, at
        `addresses`, before anything of it can run again."""
        contender.worker.pause()
        return [
            contender.reader.read_at(int(address), form.shape, form.stride, form.dtype)
            for address, form in zip(addresses, self._forms, strict=True)
        ]

    def _addresses(self, reply: Played, calls: int) -> np.ndarray:
        """Where the outputs begin, int64, shape (calls, outputs). Raises SubmissionError when some are missing."""
        counts = {len(outputs) for outputs in reply.addresses}
        if len(reply.addresses) != calls or counts != {len(self._forms)}:
            raise SubmissionError(
                Reason.WRONG_OUTPUT, f"{calls} calls gave {len(reply.addresses)} results of {counts} tensors each."
            )
        return np.array(reply.addresses, dtype=np.int64).reshape(calls, -1)

    def _names(self, worker: Worker, addresses: np.ndarray) -> Named:
        """What the outputs are whose addresses were given while the clock ran."""
        named = required(worker.ask(Name(), self._timeout_s), Named)
        forms = self._forms
        filled = [i for i, form in enumerate(forms) if 0 not in form.shape]
        again = [[outputs[i].address for i in filled] for outputs in named.outputs if len(outputs) == len(forms)]
        if again != addresses[:, filled].tolist():
            raise SubmissionError(Reason.BAD_MESSAGE, "The outputs lie elsewhere than was said while the clock ran.")
        return named

    def _hold(self, contender: Contender, buffers: Sequence[int], *, check_all_inputs: bool) -> None:
        """Stop a contender that is not ours until it is told something: nothing of it runs while others are timed.

        Raises SubmissionError when inputs were changed, its own or those of another contender."""
        contender.worker.pause()
        checked: Iterable[int] = {self._random.choice(buffers), self._random.randrange(self.buffer_count)}
        if check_all_inputs:
            checked = range(self.buffer_count)
        if self._pool.written_by_others(checked):
            raise SubmissionError(Reason.INPUT_MODIFIED, f"{contender.name} changed an input in a timed call.")

    def _spend(self, contender: Contender, seconds: float) -> None:
        """Raises SubmissionError when the contender's rounds have taken too long in all."""
        contender.spent_s += seconds
        limit_s = TIMEOUTS_IN_ALL * self._timeout_s
        if contender.spent_s > limit_s:
            contender.worker.end()
            raise SubmissionError(
                Reason.TIMED_OUT,
                f"{contender.name} took {contender.spent_s:.0f} s for its timed rounds, those calls included that are "
                f"not timed; {limit_s:g} s is the limit for a case, which --timeout makes longer.",
            )


def _places(samples: Samples, forms: Sequence[oracle.Form]) -> list[_Place]:
    """Made before the clock starts, so that reading takes no longer than it must."""
    pairs = zip(samples.offsets, forms, strict=True)
    return [(position, offsets, form.dtype) for position, (offsets, form) in enumerate(pairs)]


def _read(reader: Reader, addresses: np.ndarray, places: list[_Place]) -> list[np.ndarray]:
    """The sampled elements, float64, for each output of shape (calls, rows * elements)."""
    return [reader.sample(addresses[:, position], offsets, dtype) for position, offsets, dtype in places]
