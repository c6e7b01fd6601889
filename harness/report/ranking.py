"""Several evaluations of one problem beside each other, whatever the format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from harness.report.figures import over_eager, over_fastest
from harness.report.tables import Column
from harness.report.verdicts import STATUS_STYLE
from harness.verdict import Accepted, Evaluation, Geomeans, Rejected, status_of


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
