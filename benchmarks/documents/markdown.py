"""What documents hold of other files, made anew (benchmarks/write_documents.py).

A document holds a pair of comments, the second `<!-- end of table -->` or
`<!-- end of quote -->`; what stands between them is replaced:

- `<!-- table: results/x.json -->`: the first timed case of one problem, and the means over all of them;
- `<!-- cases: results/x.json -->`: every timed case of that problem;
- `<!-- summary: results/x -->`: a line for each problem that has results in the folder;
- `<!-- problems: results/x -->`: a section for each of them, with both of its tables;
- `<!-- ladder: results/x.json -->`: every submission on every timed case of a GPU;
- `<!-- rung: results/x.json: NAME after BEFORE -->`: what one submission gained over another, or over `eager`;
- `<!-- measured: results/x: NAME -->`: what benchmarks/ left there: one of documents.measurements.TABLES;
- `<!-- agreement: results/x: NAME -->`: the emulator beside that GPU: one of documents.agreement.TABLES;
- `<!-- reasons -->`: every reason that a verdict can have, with its meaning (documents.reasons);
- `<!-- hypotheses -->`: every hypothesis on a wrong result, from its docstring (documents.hypotheses);
- `<!-- formats -->`: every format of reports, from its module (documents.formats);
- `<!-- fields -->`: every field of results as JSON, from its record (documents.fields);
- `<!-- corpus table -->`, to `<!-- end of corpus table -->`: every file of tests/hostile;
- `<!-- quote: FILE: NAME; NAME… -->`: definitions of a Python file or its CUDA source, or lines of a text.

`<!-- plot: results/x.json FILE.svg -->` stands alone: that file, beside the document, is drawn from the results
when they have changed (documents.plot). So does `<!-- rooms: FILE.svg -->`: the harness's rooms and imports, drawn when
they have changed (documents.rooms), and `<!-- machine: FILE.svg -->`: a GPU's threads and memory (documents.machine).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from documents import agreement, fields, formats, hypotheses, machine, measurements, plot, reasons, rooms
from documents.age import OF_PROBLEMS, older
from documents.ladder import figures, ladder, ladder_table, rung_table
from documents.quotes import quote
from harness.paths import PROBLEMS, ROOT
from harness.problem import load_problem
from harness.report.figures import duration, over_eager, over_fastest
from harness.report.formats import json
from harness.submission import shipped_for
from harness.verdict import Accepted, CasePassed, CaseTiming, Geomeans, Results, Timing
from tests.hostile import corpus

_BLOCK = re.compile(
    r"^(?P<first><!-- (?P<what>table|cases|summary|problems|ladder|rung|measured|agreement|quote): "
    r"(?P<path>[^\s:]+/[^\s:]+):?(?P<more>[^\n]*) -->\n)"
    r".*?^(?P<last><!-- end of (?:table|quote) -->)$",
    re.DOTALL | re.MULTILINE,
)
_OF_CODE = re.compile(
    r"^(?P<first><!-- (?P<what>reasons|formats|fields|hypotheses) -->\n).*?^(?P<last><!-- end of table -->)$",
    re.DOTALL | re.MULTILINE,
)
_CORPUS = re.compile(r"^(<!-- corpus table -->\n).*?^(<!-- end of corpus table -->)$", re.DOTALL | re.MULTILINE)
_ROOMS = re.compile(r"^<!-- rooms: (?P<svg>\S+) -->$", re.MULTILINE)
_MACHINE = re.compile(r"^<!-- machine: (?P<svg>\S+) -->$", re.MULTILINE)
_PLOT = re.compile(r"^<!-- plot: (?P<path>\S+) (?P<svg>\S+) -->$", re.MULTILINE)


def table(results: Results) -> str:
    """For each device its accepted and timed submissions, fastest first, on the first timed case and over all. Those
    that have no rank come last."""
    tables = [_device_table(timed, results.environment) for timed in _by_device(results)]
    return "\n".join(tables) or "Nothing was timed.\n"


def _by_device(results: Results) -> list[list[Accepted]]:
    """The accepted and timed evaluations of each device, fastest first, the ranked before the others; cuda before
    cpu."""
    timed = [e for e in results.evaluations if isinstance(e, Accepted) and e.geomean_speedup is not None]
    timed.sort(key=lambda e: (not e.is_ranked, -(e.geomean_speedup or 0.0)))
    devices = sorted({e.device for e in timed}, reverse=True)
    return [[e for e in timed if e.device == device] for device in devices]


def cases_table(results: Results, part: str = "", *, captured: bool = False) -> str:
    """For each device every timed case: the floor, and the time of each implementation with its share of the floor.
    Of the whole call, or of a `part` of it, as `backward`; called, or as CUDA graphs."""
    tables = []
    for timed in _by_device(results):
        found = [dict(_timings(e, part, captured=captured)) for e in timed]
        cases = list(dict.fromkeys(case for times in found for case in times))
        if not cases:
            continue
        baselines = list(dict.fromkeys(name for times in found for t in times.values() for name in t.baselines))
        heads = [*(f"*{name}*" for name in baselines), *(f"`{e.submission}`" for e in timed)]
        lines = [f"| case | floor | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
        for case in cases:
            timing = next(times[case] for times in found if case in times)
            times: list[Timing | None] = [timing.baselines.get(name) for name in baselines]
            times += [of_one.get(case) for of_one in found]
            cells = [
                "–" if t is None else f"{duration(t.median_us)}, {timing.floor_us / t.median_us:.0%}" for t in times
            ]
            lines.append(f"| {case} | {duration(timing.floor_us)} | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def summary(folder: Path) -> str:
    """A line for each problem and device: its fastest submission, and whether its times were too noisy for a rank. A
    slower one that has a rank is not the fastest for that."""
    lines = [
        "| problem | fastest submission | of the floor, first case | over eager | over the fastest baseline "
        "| captured, of the floor | captured, over eager | captured, over the fastest captured | on |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, results in _problems(folder):
        for timed in _by_device(results):
            best = max(timed, key=lambda evaluation: evaluation.geomean_speedup or 0.0)
            device = "" if best.device == "cuda" else f" ({best.device})"
            lines.append(
                f"| {name}{device} | `{best.submission}`{_unranked(best)} | {_timings(best)[0][1].floor_fraction:.0%} "
                f"| {' | '.join(_means(best))} "
                f"| {' | '.join(_captured(best))} | {measurements.day(results.environment)} |"
            )
    lines += [f"| {name} | not measured yet | | | | | | | |" for name in _missing(folder)]
    return "\n".join(lines) + "\n"


def sections(folder: Path) -> str:
    """A section for each problem."""
    parts = [f"## {name}\n\n{table(results)}\n{_all_cases(results)}" for name, results in _problems(folder)]
    parts += [f"## {name}\n\n{measurements.how_to_measure(folder, name)}\n" for name in _missing(folder)]
    return "\n".join(parts)


def _all_cases(results: Results) -> str:
    """The table of cases, and one for each part that was timed alone."""
    names = {name: None for timed in _by_device(results) for c in timed[0].cases for name in getattr(c, "parts", {})}
    tables = [("", False), ("", True), *((name, captured) for name in names for captured in (False, True))]
    made = [(part, captured, cases_table(results, part, captured=captured)) for part, captured in tables]
    return "\n".join(f"{_heading(part, captured)}{text}" for part, captured, text in made if text)


def _heading(part: str, captured: bool) -> str:
    """What a table of cases is of; nothing for the whole call as it is called."""
    what = f"The {part} alone" if part else ""
    graphs = f"{what}, as CUDA graphs" if what else "As CUDA graphs"
    text = graphs if captured else what
    return f"{text}:\n\n" if text else ""


def _missing(folder: Path) -> list[str]:
    """Problems with submissions and without results."""
    names = [path.stem for path in sorted(PROBLEMS.glob("*.py")) if shipped_for(path.stem)]
    return [name for name in names if not (folder / f"{name}.json").exists()]


def _problems(folder: Path) -> list[tuple[str, Results]]:
    """The results in `folder` that are named like a problem."""
    return [(path.stem, json.load(path)) for path in sorted(folder.glob("*.json")) if _is_problem(path.stem)]


def _is_problem(name: str) -> bool:
    return (PROBLEMS / f"{name}.py").is_file()


def _device_table(timed: list[Accepted], environment: dict[str, Any]) -> str:
    first = _timings(timed[0])[0][0]
    where = environment.get("gpu") if timed[0].device == "cuda" else f"CPU, {environment.get('cpus')} cores"
    has_graphs = any(timing.captured for e in timed for _, timing in _timings(e))
    heads = [first, "of the floor", "speedup over eager, all timed cases", f"over {_fastest_of(timed)}"]
    heads += ["captured", "of the floor", "over eager", "over the fastest captured"] if has_graphs else []
    lines = [
        f"{where}, torch {environment.get('torch')}, {environment.get('date')}; seed {timed[0].seed}; "
        f"brackets are 95% intervals.{older(environment, OF_PROBLEMS, timed[0].problem)}{_later_cases(timed[0])}",
        "",
        f"| | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]
    called = _timings(timed[0])[0][1]
    for name, baseline in called.baselines.items():
        shown = _baseline_name(timed[0].problem, name, baseline.version)
        graph = called.captured.baselines.get(name) if called.captured else None
        cells = [_time(baseline), f"{called.floor_us / baseline.median_us:.0%}", "", ""]
        if has_graphs:
            cells += [_time(graph), f"{called.floor_us / graph.median_us:.0%}", "", ""] if graph else ["–", "", "", ""]
        lines.append(f"| *{shown}* | {' | '.join(cells)} |")
    for evaluation in timed:
        timing = _timings(evaluation)[0][1]
        cells = [_time(timing), f"{timing.floor_fraction:.0%}", *_means(evaluation)]
        cells += [_time(timing.captured) if timing.captured else "–", *_captured(evaluation)] if has_graphs else []
        lines.append(f"| `{evaluation.submission}`{_unranked(evaluation)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _later_cases(evaluation: Accepted) -> str:
    """Which timed cases the problem has that the evaluation has not."""
    problem = load_problem(PROBLEMS / f"{evaluation.problem}.py", random_seed=0)
    there = {case.name for case in evaluation.cases}
    later = [f"'{case.name}'" for case in problem.cases if case.timed and case.name not in there]
    return f" Without {', '.join(later)}, which came later." if later else ""


def _means(of: Accepted | Geomeans) -> list[str]:
    """Over eager, and over the fastest baseline."""
    return [over_eager(of), over_fastest(of)]


def _captured(evaluation: Accepted) -> list[str]:
    """As CUDA graphs: the first case's share of the floor, and both means."""
    first = _timings(evaluation)[0][1].captured
    return [f"{first.floor_fraction:.0%}" if first else "–", *_means(evaluation.captured or Geomeans())]


def _unranked(evaluation: Accepted) -> str:
    """What follows the name of a submission that has no place among others."""
    if evaluation.is_ranked:
        return ""
    return ", too noisy to rank" if evaluation.is_too_noisy else ", not ranked"


def _timings(evaluation: Accepted, part: str = "", *, captured: bool = False) -> list[tuple[str, CaseTiming]]:
    timed = [case for case in evaluation.cases if isinstance(case, CasePassed) and case.timing]
    called = [(case, case.parts.get(part) if part else case.timing) for case in timed]
    found = [(case, timing.captured if captured and timing else timing) for case, timing in called]
    return [(f"{c.name}{' (scaled)' if c.scaled else ''}, {c.shape}", timing) for c, timing in found if timing]


def _fastest_of(timed: list[Accepted]) -> str:
    names = {name for e in timed for _, timing in _timings(e) for name in timing.baselines}
    return "the faster of eager and compile" if names == {"eager", "compile"} else "the fastest of the baselines"


def _baseline_name(problem: str, name: str, version: str) -> str:
    reference = "nn.LayerNorm" if problem == "layernorm" else "reference"
    named = {
        "eager": f"{reference}, eager",
        "compile": f"{reference}, torch.compile",
        "reduce-overhead": f"{reference}, torch.compile with CUDA graphs",
    }
    return named.get(name) or (f"{name} ({version})" if version else name)


def _time(timing: Timing) -> str:
    low, high = timing.interval_us
    return f"{duration(timing.median_us)} [{duration(low)}, {duration(high)}]"


def refresh(text: str) -> str:
    """`text` with every table and quote made anew.

    Raises FileNotFoundError for a missing file, QuoteError and LadderError where a file lacks what is shown of it.
    """

    def replace(match: re.Match[str]) -> str:
        path = ROOT / match["path"]
        made = {
            "table": lambda: table(json.load(path)),
            "cases": lambda: cases_table(json.load(path)),
            "summary": lambda: summary(path),
            "problems": lambda: sections(path),
            "ladder": lambda: ladder_table(ladder(json.load(path))),
            "rung": lambda: rung_table(ladder(json.load(path)), *match["more"].strip().split(" after ")),
            "measured": lambda: measurements.table(match["more"].strip(), path),
            "agreement": lambda: agreement.table(match["more"].strip(), path),
            "quote": lambda: quote(path, match["more"].strip().split("; ")),
        }
        return match["first"] + made[match["what"]]() + match["last"]

    of_code = {
        "reasons": reasons.tables,
        "formats": formats.table,
        "fields": fields.tables,
        "hypotheses": hypotheses.table,
    }
    text = _OF_CODE.sub(lambda match: match["first"] + of_code[match["what"]]() + match["last"], text)
    text = _CORPUS.sub(lambda match: f"{match[1]}{corpus.table()}\n{match[2]}", text)
    return _BLOCK.sub(replace, text)


def stale_pictures(document: Path, text: str) -> dict[Path, Callable[[Path], None]]:
    """The pictures of a document that do not show what the files hold now, and what draws each."""
    stale: dict[Path, Callable[[Path], None]] = {}
    for match in _PLOT.finditer(text):
        path, drawn = document.parent / match["svg"], figures(ladder(json.load(ROOT / match["path"])))
        if not plot.is_drawn_from(path, drawn):
            stale[path] = partial(plot.draw, drawn)
    for match in _ROOMS.finditer(text):
        path, house = document.parent / match["svg"], rooms.rooms()
        if not rooms.is_drawn_from(path, house):
            stale[path] = partial(rooms.draw, house)
    for match in _MACHINE.finditer(text):
        if not machine.is_drawn(path := document.parent / match["svg"]):
            stale[path] = machine.draw
    return stale


def documents() -> list[Path]:
    """All that this project says of itself."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def refresh_document(path: Path, check: bool) -> list[str]:
    """Bring one document and its pictures up to date, unless only a check was asked for; returns what was not."""
    text = path.read_text()
    fresh, pictures = refresh(text), stale_pictures(path, text)
    if not check:
        if fresh != text:
            path.write_text(fresh)
        for svg, draw in pictures.items():
            draw(svg)
    return [str(path)] * (fresh != text) + [str(svg) for svg in pictures]
