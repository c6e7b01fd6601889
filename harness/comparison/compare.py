"""Two evaluations beside each other: what was timed in both, and whether it differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.comparison import two_runs
from harness.comparison.doubts import doubt_of
from harness.comparison.floors import floor_for, is_launch_bound
from harness.comparison.two_runs import Shift
from harness.comparison.values import Comparison, Difference, Mean, Row, Side, shown
from harness.timed import Kind, timings_of
from harness.verdict import Accepted, CasePassed, CaseTiming, Evaluation, Speedup, Timing

EAGER = "eager"

TEST = (
    "Yuen's test of trimmed means of rounds' logarithms, over eager's of the same rounds unless launching decides its "
    "time, against the floor; Holm's correction over all, 5%"
)
# A case, its part and kind.
_Place = tuple[str, str, Kind]


@dataclass(frozen=True)
class _Timed:
    """One time of an evaluation."""

    timing: CaseTiming
    kind: Kind
    on_cpu: bool
    training: bool
    """It is one of a training step."""
    doubt: str

    @property
    def is_enough(self) -> bool:
        return len(self.timing.samples_us) >= two_runs.MIN_ROUNDS

    @property
    def launch_bound(self) -> bool:
        return self._bound(self.timing)

    @property
    def has_yardstick(self) -> bool:
        """Whether eager was timed in the same rounds, and its time is that of its kernels."""
        eager = self.timing.baselines.get(EAGER)
        if eager is None or len(eager.samples_us) != len(self.timing.samples_us):
            return False
        return not self._bound(eager)

    def logs(self, *, over_eager: bool) -> Sequence[float]:
        """The logarithm of each round's time; over eager's of the same round, whose machine was in the same state."""
        logs = np.log(self.timing.samples_us)
        return list(logs - np.log(self.timing.baselines[EAGER].samples_us) if over_eager else logs)

    def _bound(self, timing: Timing) -> bool:
        """On a CPU a call is what it takes to issue it, and a graph is launched once for all calls."""
        launched = self.kind is Kind.CALLED and not self.on_cpu
        return launched and is_launch_bound(timing, training=self.training)


@dataclass(frozen=True)
class _Pair:
    """What was timed in both runs, and by how much A takes longer."""

    place: _Place
    a: CaseTiming
    b: CaseTiming
    over_eager: bool
    launch_bound: bool
    doubt: str
    shift: Shift


def compare(a: Evaluation, b: Evaluation, sides: tuple[Side, Side], differs: Sequence[str] = ()) -> Comparison:
    """How B stands to A. Where either has no times that count there are no rows; `sides` say why."""
    in_a, in_b = _timings(a), _timings(b)
    both = [place for place in in_a if place in in_b and in_a[place].is_enough and in_b[place].is_enough]
    rows, means = _judged([_pair(place, in_a[place], in_b[place]) for place in both])
    only_in_a, only_in_b = (tuple(shown(*place) for place in found if place not in both) for found in (in_a, in_b))
    return Comparison(*sides, TEST, tuple(differs), rows, means, only_in_a, only_in_b)


def _timings(evaluation: Evaluation) -> dict[_Place, _Timed]:
    """What counts: the times of a wrong submission say nothing."""
    if not isinstance(evaluation, Accepted):
        return {}
    on_cpu = evaluation.device == "cpu"
    return {
        (case.name, part, kind): _Timed(
            timing, kind, on_cpu, bool(case.parts), doubt_of(evaluation, case.name, part, kind)
        )
        for case in evaluation.cases
        if isinstance(case, CasePassed)
        for part, kind, timing in timings_of(case)
    }


def _pair(place: _Place, a: _Timed, b: _Timed) -> _Pair:
    over_eager = a.has_yardstick and b.has_yardstick
    launch_bound = a.launch_bound or b.launch_bound
    shorter_us = min(a.timing.median_us, b.timing.median_us)
    floor = floor_for(shorter_us, on_cpu=a.on_cpu or b.on_cpu, launch_bound=launch_bound)
    shift = two_runs.shift(a.logs(over_eager=over_eager), b.logs(over_eager=over_eager), floor)
    return _Pair(place, a.timing, b.timing, over_eager, launch_bound, a.doubt or b.doubt, shift)


def _judged(pairs: Sequence[_Pair]) -> tuple[tuple[Row, ...], tuple[Mean, ...]]:
    """Rows and means, decided together. What is in doubt is not tested, nor a mean with it in it."""
    of_kinds = {kind: [pair for pair in pairs if pair.place[1:] == ("", kind)] for kind in Kind}
    whole = {kind: of_kind for kind, of_kind in of_kinds.items() if of_kind}
    shifts = [pair.shift for pair in pairs] + [two_runs.mean([pair.shift for pair in whole[kind]]) for kind in whole]
    doubted = [bool(pair.doubt) for pair in pairs] + [any(pair.doubt for pair in whole[kind]) for kind in whole]
    tested = [shift for shift, doubt in zip(shifts, doubted, strict=True) if not doubt]
    answers = iter(two_runs.which_differ(tested))
    judged = [
        _said(shift, None if doubt else len(tested), differs=not doubt and next(answers))
        for shift, doubt in zip(shifts, doubted, strict=True)
    ]
    rows = tuple(_row(pair, said) for pair, said in zip(pairs, judged[: len(pairs)], strict=True))
    means = zip(whole, judged[len(pairs) :], strict=True)
    return rows, tuple(Mean(kind=kind, cases=len(whole[kind]), **said) for kind, said in means)


def _said(shift: Shift, tests: int | None, *, differs: bool) -> dict[str, Any]:
    """The fields of `Judged`, as one of so many tests; None where it was not tested."""
    low, high = shift.interval
    which = Difference.FASTER if shift.log > 0 else Difference.SLOWER
    return {
        "speed": Speedup(ratio=math.exp(shift.log), interval=(math.exp(low), math.exp(high))),
        "difference": which if differs else Difference.NONE,
        "floor": math.expm1(shift.floor),
        "smallest_seen": math.expm1(shift.smallest_seen(tests)) if tests else None,
    }


def _row(pair: _Pair, said: dict[str, Any]) -> Row:
    case, part, kind = pair.place
    return Row(
        case=case,
        part=part,
        kind=kind,
        a_us=pair.a.median_us,
        b_us=pair.b.median_us,
        over_eager=pair.over_eager,
        launch_bound=pair.launch_bound,
        doubt=pair.doubt,
        **said,
    )
