"""What each rung of a ladder of submissions gained: the tables and the figures of docs/path, from committed results."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from documents.age import TIMING, older
from harness.report.figures import duration, ratio
from harness.verdict import Accepted, CasePassed, CaseTiming, Results, Speedup, Timing

BASELINES = {"eager": "nn.LayerNorm", "compile": "torch.compile"}


class Rung(Struct, frozen=True):
    """One implementation's times on the timed cases, by the case's name."""

    name: str
    times: dict[str, Timing]


class Ladder(Struct, frozen=True):
    """The GPU's part of a results file: the baselines, then the submissions in the order of their names."""

    environment: dict[str, Any]
    shapes: dict[str, str]
    floors_us: dict[str, float]
    rungs: list[Rung]


class LadderError(Exception):
    """The results do not hold what a document shows of them."""


def ladder(results: Results) -> Ladder:
    """Raises LadderError when no submission was timed on a GPU."""
    timed = [e for e in results.evaluations if isinstance(e, Accepted) and e.device == "cuda" and _timings(e)]
    if not timed:
        raise LadderError("The results hold no submission that was timed on a GPU.")
    timed.sort(key=lambda e: e.submission)
    first = _timings(timed[0])
    names = list(dict.fromkeys(name for timing in first.values() for name in timing.baselines if name in BASELINES))
    rungs = [
        Rung(name, {case: timing.baselines[name] for case, timing in first.items() if name in timing.baselines})
        for name in names
    ]
    return Ladder(
        environment=results.environment,
        shapes={c.name: c.shape for c in timed[0].cases if c.name in first},
        floors_us={case: timing.floor_us for case, timing in first.items()},
        rungs=rungs + [Rung(e.submission, dict(_timings(e))) for e in timed],
    )


def _timings(evaluation: Accepted) -> dict[str, CaseTiming]:
    return {c.name: c.timing for c in evaluation.cases if isinstance(c, CasePassed) and c.timing}


def label(name: str) -> str:
    return BASELINES.get(name, name)


def _marked(name: str) -> str:
    return f"*{BASELINES[name]}*" if name in BASELINES else f"`{name}`"


def _where(of: Ladder) -> str:
    facts = of.environment
    return f"{facts.get('gpu')}, torch {facts.get('torch')}, {facts.get('date')}"


def _heads(of: Ladder) -> list[str]:
    """Name and shape of each case, once where the name says the shape."""
    return [case if case == shape.replace("×", "x") else f"{case}, {shape}" for case, shape in of.shapes.items()]


def ladder_table(of: Ladder) -> str:
    """All rungs on all timed cases: the time of a call and its share of the floor's speed."""
    heads = _heads(of)
    lines = [
        f"{_where(of)}; median time of a call, and its share of the floor.{older(of.environment, TIMING)}",
        "",
        f"| | {' | '.join(heads)} |",
        f"|---|{'---|' * len(heads)}",
    ]
    for rung in of.rungs:
        cells = (_time_and_share(rung.times.get(case), of.floors_us[case]) for case in of.shapes)
        lines.append(f"| {_marked(rung.name)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _time_and_share(timing: Timing | None, floor_us: float) -> str:
    return "–" if timing is None else f"{duration(timing.median_us)}, {floor_us / timing.median_us:.0%}"


def rung_table(of: Ladder, name: str, before: str) -> str:
    """One rung beside the one before it. Raises LadderError when the results lack one of the two."""
    here, there = _rung(of, name), _rung(of, before)
    lines = [
        f"{_where(of)}; `~` is no difference.{older(of.environment, TIMING)}",
        "",
        f"| case | {_marked(before)} | {_marked(name)} | gain | of the floor |",
        "|---|---|---|---|---|",
    ]
    for case, head in zip(of.shapes, _heads(of), strict=True):
        if case in here.times and case in there.times:
            now, then = here.times[case], there.times[case]
            lines.append(
                f"| {head} | {duration(then.median_us)} | {duration(now.median_us)} "
                f"| {ratio(gain(then, now))} | {of.floors_us[case] / now.median_us:.0%} |"
            )
    return "\n".join(lines) + "\n"


def gain(then: Timing, now: Timing) -> Speedup:
    """The ratio of two times that were measured apart: its interval is as wide as both of theirs make it."""
    interval = (then.interval_us[0] / now.interval_us[1], then.interval_us[1] / now.interval_us[0])
    return Speedup(ratio=then.median_us / now.median_us, interval=interval)


def _rung(of: Ladder, name: str) -> Rung:
    for rung in of.rungs:
        if rung.name == name:
            return rung
    raise LadderError(f"The results have no {name} timed on a GPU; they have {', '.join(r.name for r in of.rungs)}.")


class Figures(Struct, frozen=True):
    """All that the plot shows."""

    gpu: str
    cases: list[str]
    shares: dict[str, list[float | None]]
    """Floor over time for each case, by implementation."""

    @property
    def digest(self) -> str:
        """What a plot drawn from these figures carries in its metadata."""
        return "sha256:" + hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def figures(of: Ladder) -> Figures:
    return Figures(
        gpu=str(of.environment.get("gpu")),
        cases=_heads(of),
        shares={rung.name: [_share(rung, case, of) for case in of.shapes] for rung in of.rungs},
    )


def _share(rung: Rung, case: str, of: Ladder) -> float | None:
    timing = rung.times.get(case)
    return None if timing is None else round(of.floors_us[case] / timing.median_us, 4)
