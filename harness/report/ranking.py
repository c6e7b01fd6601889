"""Several evaluations of one problem beside each other, whatever the format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from harness.report.figures import over_eager, over_fastest
from harness.report.tables import Column
from harness.report.verdicts import STATUS_STYLE
from harness.verdict import Accepted, Evaluation, Geomeans, Rejected, status_of

# The p of fast_p that are shown.
FAST = (1.0, 1.5, 2.0)


def rivals_of(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, list[Evaluation]]]:
    """Each problem that several evaluations are of, and these."""
    for problem in dict.fromkeys(evaluation.problem for evaluation in evaluations):
        rivals = [evaluation for evaluation in evaluations if evaluation.problem == problem]
        if len(rivals) > 1:
            yield problem, rivals


def ranking(evaluations: Sequence[Evaluation]) -> list[Column]:
    """Accepted submissions to one problem by speedup over eager, then the others, device by device: eager is another
    there. Who has no speedup has no place."""
    devices = list(dict.fromkeys(evaluation.device for evaluation in evaluations))

    def key(evaluation: Evaluation) -> tuple[int, int, float]:
        order = 0 if isinstance(evaluation, Accepted) else 1 if isinstance(evaluation, Rejected) else 2
        return devices.index(evaluation.device), order, -(evaluation.geomean_speedup or 0.0)

    places = dict.fromkeys(devices, 0)
    rows = []
    for evaluation in sorted(evaluations, key=key):
        placed = isinstance(evaluation, Accepted) and evaluation.is_ranked
        places[evaluation.device] += placed
        rows.append(_ranking_cells(evaluation, places[evaluation.device] if placed else None))
    headings = ["#", "submission", "device", "verdict", "over eager [95%]", "over the fastest baseline [95%]"]
    if any(isinstance(evaluation, Accepted) and evaluation.captured for evaluation in evaluations):
        headings += ["captured, over eager", "captured, over the fastest"]
    columns = zip(headings, list(zip(*rows, strict=True))[: len(headings)], strict=True)
    return [Column(heading, cells, "right" if "over" in heading else "left") for heading, cells in columns]


def scores(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """Of submissions to several problems: which share of all of them is correct, wherever each was judged, and what
    share of those on each device is fast. What has no verdict does not count, which is said."""
    judged = [evaluation for evaluation in evaluations if isinstance(evaluation, Accepted | Rejected)]
    problems = {evaluation.problem for evaluation in judged}
    if len(problems) < 2:
        return
    devices = list(dict.fromkeys(evaluation.device for evaluation in judged))
    correct = sum(isinstance(evaluation, Accepted) for evaluation in judged)
    line = f"{len(judged)} submissions to {len(problems)} problems on {', '.join(devices)}: "
    line += f"{correct / len(judged):.0%} correct ({correct} of {len(judged)})"
    errors = len(evaluations) - len(judged)
    yield line + (f"; {errors} without a verdict {'is' if errors == 1 else 'are'} not counted" if errors else "")
    for device in devices:
        if said := _fast([evaluation for evaluation in judged if evaluation.device == device]):
            yield f"On {device}: {said}"


def _fast(judged: Sequence[Accepted | Rejected]) -> str:
    """The fast_p of KernelBench (Ouyang et al. 2025, arXiv:2502.10517) on one device, where a speedup over eager counts
    with the whole interval; nothing where none was timed. Of the correct ones those that are not ranked are left out,
    which is said."""
    correct = [evaluation for evaluation in judged if isinstance(evaluation, Accepted)]
    timed = [evaluation for evaluation in correct if evaluation.geomean_interval]
    if not timed:
        return ""
    lows = [each.geomean_interval[0] for each in timed if each.geomean_interval and each.is_ranked]
    noisy = sum(evaluation.is_too_noisy for evaluation in timed)
    left_out = {
        "too noisy to count": noisy,
        "with times in doubt": len(timed) - len(lows) - noisy,
        "not timed": len(correct) - len(timed),
    }
    parts = [f"{count} {why}" for why, count in left_out.items() if count]
    if lows:
        of = len(judged) - len(correct) + len(lows)
        shares = ", ".join(f"fast_{p:g} {sum(low > p for low in lows) / of:.0%}" for p in FAST)
        parts.insert(0, f"{shares} of {of} (correct, and over p times as fast as eager)")
    return "; ".join(parts)


def _ranking_cells(evaluation: Evaluation, place: int | None) -> tuple[Text, ...]:
    status = status_of(evaluation)
    if isinstance(evaluation, Accepted):
        captured = evaluation.captured or Geomeans()
        verdict = status
        speedups = [over_eager(evaluation), over_fastest(evaluation), over_eager(captured), over_fastest(captured)]
    else:
        verdict = f"{status}: {evaluation.reason}"
        speedups = [""] * 4
    return (
        Text("–" if place is None else str(place)),
        Text(evaluation.submission),
        Text(evaluation.device),
        Text(verdict, style=STATUS_STYLE[status]),
        *map(Text, speedups),
    )
