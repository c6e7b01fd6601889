"""Tables in documents, generated from committed results: `python -m harness.report.markdown FILE…`.

A document holds a pair of comments, `<!-- table: results/x.json -->` and `<!-- end of table -->`; what
stands between them is replaced. `--check` changes nothing and exits with 1 when a table is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from harness.paths import ROOT
from harness.report import json
from harness.report.terminal import duration, with_interval
from harness.verdict import Accepted, CasePassed, CaseTiming, Results, Timing

_BLOCK = re.compile(r"(<!-- table: (?P<path>\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def table(results: Results) -> str:
    """For each device its accepted and timed submissions, fastest first, on the first timed case and over all."""
    timed = [e for e in results.evaluations if isinstance(e, Accepted) and e.geomean_speedup is not None]
    timed.sort(key=lambda e: -(e.geomean_speedup or 0.0))
    devices = sorted({e.device for e in timed}, reverse=True)  # cuda before cpu
    tables = [_device_table([e for e in timed if e.device == device], results.environment) for device in devices]
    return "\n".join(tables) or "Nothing was timed.\n"


def _device_table(timed: list[Accepted], environment: dict[str, Any]) -> str:
    first = _timings(timed[0])[0][0]
    where = environment.get("gpu") if timed[0].device == "cuda" else f"CPU, {environment.get('cpus')} cores"
    lines = [
        f"{where}, torch {environment.get('torch')}, {environment.get('date')}; seed {timed[0].seed}; "
        "brackets are 95% intervals.",
        "",
        f"| | {first} | of the floor | speedup over eager, all timed cases | over the faster of eager and compile |",
        "|---|---|---|---|---|",
    ]
    for name, baseline in _timings(timed[0])[0][1].baselines.items():
        lines.append(f"| *{_baseline_name(name)}* | {_time(baseline)} | {_share(timed[0], baseline):.0%} | | |")
    for evaluation in timed:
        timing = _timings(evaluation)[0][1]
        lines.append(
            f"| `{evaluation.submission}` | {_time(timing)} | {timing.floor_fraction:.0%} "
            f"| {with_interval(evaluation.geomean_speedup, evaluation.geomean_interval)} "
            f"| {with_interval(evaluation.geomean_speedup_over_best, evaluation.geomean_over_best_interval)} |"
        )
    return "\n".join(lines) + "\n"


def _timings(evaluation: Accepted) -> list[tuple[str, CaseTiming]]:
    return [
        (f"{case.name}{' (scaled)' if case.scaled else ''}, {case.shape}", case.timing)
        for case in evaluation.cases
        if isinstance(case, CasePassed) and case.timing
    ]


def _baseline_name(name: str) -> str:
    return {"eager": "nn.LayerNorm, eager", "compile": "nn.LayerNorm, torch.compile"}.get(name, name)


def _time(timing: Timing) -> str:
    low, high = timing.interval_us
    return f"{duration(timing.median_us)} [{duration(low)}, {duration(high)}]"


def _share(evaluation: Accepted, baseline: Timing) -> float:
    return _timings(evaluation)[0][1].floor_us / baseline.median_us


def refresh(text: str) -> str:
    """`text` with every table made anew. Raises FileNotFoundError for missing results."""

    def replace(match: re.Match[str]) -> str:
        return match[1] + table(json.load(ROOT / match["path"])) + match[3]

    return _BLOCK.sub(replace, text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.report.markdown", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for path in options.files:
        text = path.read_text()
        fresh = refresh(text)
        if fresh != text:
            stale.append(str(path))
            if not options.check:
                path.write_text(fresh)
    if options.check and stale:
        print(f"Out of date: {', '.join(stale)}. Run python -m harness.report.markdown on them.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
