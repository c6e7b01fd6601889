"""Tables of what benchmarks/ leaves in a folder of results, beside the problems' own: the clock, warm evaluations, the
corpus of hostile files, peers.

Each function takes the folder and gives Markdown. Where a file is missing, the table says how it is made.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from common import seconds_of, spread_by_way

from documents.age import KERNELS, SPEED, TIMING, VERDICTS, WARM_SPEED, older
from harness.paths import PROBLEMS, ROOT
from harness.report.figures import duration
from harness.verdict import Accepted, Baseline, CasePassed, CaseTiming, Results

# Below this a call is launch and Python, whose noise is not the clock's. Targets hold above it.
LONG_US = 50.0
ALLOWED_SHARE = 0.01

# The targets for a second, warm evaluation: seconds without a GPU; with one times what torch and a tensor alone take,
# by words in how benchmarks/warm_evaluation.py names it.
WARM_S = 3
WARM_TIMES = {"--no-timing": 1.3, "--quick": 2, "torch.compile": 5}


class NotMeasured(Exception):
    """A file of results that is not there; the text says how it is made."""


def measured(path: Path, step: str) -> dict[str, Any]:
    """The content of a file of results. Raises NotMeasured with the step of benchmarks/everything.py that makes it."""
    if not path.exists():
        raise NotMeasured(how_to_measure(path.parent, step))
    return json.loads(path.read_text())


def how_to_measure(folder: Path, step: str) -> str:
    more = " --plan cpu" if folder.name == "cpu" else ""
    return f"Not measured yet: `python benchmarks/everything.py {_relative(folder)}{more} --only {step}`."


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def machine(environment: dict[str, Any]) -> str:
    """Machine and versions in one line."""
    where = environment.get("gpu") or f"CPU, {environment.get('cpus')} cores"
    parts = [where, f"torch {environment.get('torch')}", environment.get("date")]
    if environment.get("compute_sanitizer"):
        parts.insert(2, f"compute-sanitizer {environment['compute_sanitizer']}")
    return ", ".join(str(part) for part in parts)


def day(environment: dict[str, Any]) -> str:
    """The date of a run, without the time."""
    return str(environment.get("date") or "")[:10]


def _rows(heads: str, rows: Iterator[list[str]] | list[list[str]]) -> str:
    lines = [f"| {heads} |", "|---" * (heads.count("|") + 1) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------- a submission against a copy of itself


def _twice(folder: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each A/A run: the submission, its environment and its evaluation. Raises NotMeasured for none."""
    found = []
    for path in sorted(folder.glob("same_twice_*.json")):
        content = json.loads(path.read_text())
        found += [(_named(e), content["environment"], e) for e in content["evaluations"]]
    if not found:
        step = "same_twice_cpu_vectorised" if folder.name == "cpu" else "same_twice_speed_of_light"
        raise NotMeasured(how_to_measure(folder, step))
    return found


def _named(evaluation: dict[str, Any]) -> str:
    """A submission's name; outside of LayerNorm's ladder with its problem's, since names come again there."""
    problem = evaluation["problem"]
    return evaluation["submission"] if problem == "layernorm" else f"{problem}/{evaluation['submission']}"


def _compared(evaluation: dict[str, Any], *, captured: bool) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Each case that was timed with its copy, called or as CUDA graphs: its name, its time in µs and the ratio."""
    for case in evaluation["cases"]:
        timing = case["timing"]
        timing = timing.get("captured") if captured and timing else timing
        for baseline in (timing or {"baselines": {}})["baselines"].values():
            yield f"{case['name']}, captured" if captured else case["name"], timing["median_us"], baseline["speedup"]


def same_twice(folder: Path) -> str:
    """Every case of every A/A run: its ratio, which must be 1."""
    tables = []
    for name, environment, evaluation in _twice(folder):
        rows = [
            [
                case,
                duration(us),
                f"{ratio['ratio']:.4f} [{ratio['interval'][0]:.4f}, {ratio['interval'][1]:.4f}]",
                _mark(evaluation["device"], us, ratio),
            ]
            for captured in (False, True)
            for case, us, ratio in _compared(evaluation, captured=captured)
        ]
        where = f"`{name}`, {machine(environment)}.{older(environment, TIMING)}"
        tables.append(f"{where}\n\n" + _rows("case | time | over its copy | ", rows))
    return "\n".join(tables)


def _mark(device: str, us: float, ratio: dict[str, Any]) -> str:
    if device == "cpu":
        return "" if ratio["interval"][0] <= 1 <= ratio["interval"][1] else "leaves out 1"
    return "further than 1% from 1" if us > LONG_US and abs(ratio["ratio"] - 1) > ALLOWED_SHARE else ""


def _twice_checks(folder: Path) -> Iterator[list[str]]:
    for name, environment, evaluation in _twice(folder):
        what = f"`{name}` against a copy of itself"
        compared = list(_compared(evaluation, captured=False))
        if evaluation["device"] == "cpu":
            covering = sum(ratio["interval"][0] <= 1 <= ratio["interval"][1] for *_, ratio in compared)
            low, high = evaluation["geomean_over_best_interval"] or (float("nan"), float("nan"))
            shown = f"mean [{low:.3f}, {high:.3f}]; {covering} of {len(compared)} cases cover 1"
            yield [what, "intervals cover 1", shown, environment["date"][:10]]
            continue
        for kind, of_kind in (("called", compared), ("captured", list(_compared(evaluation, captured=True)))):
            ratios = [ratio["ratio"] for _, us, ratio in of_kind if us > LONG_US]
            within = sum(abs(ratio - 1) <= ALLOWED_SHARE for ratio in ratios)
            shown = f"{within} of {len(ratios)} cases; {_furthest(ratios)}"
            if of_kind:
                yield [f"{what}, {kind}, over {LONG_US:g} µs", "within 1% of 1", shown, environment["date"][:10]]


def _furthest(ratios: list[float]) -> str:
    return f"furthest {max(ratios, key=lambda ratio: abs(ratio - 1)):.4f}" if ratios else "none"


# ---------------------------------------------------------------------- the clock against CUDA's events


def _accuracy(folder: Path) -> dict[str, Any]:
    return measured(folder / "clock_accuracy.json", "clock_accuracy")


@dataclass(frozen=True)
class _Events:
    """One way to run the calls between CUDA's events, and the keys of its row in the comparison."""

    name: str
    short: str
    us: str
    counted: str
    within: str


_GRAPH = _Events("one CUDA graph of all calls", "one graph", "device_us", "counted", "within")
_GRAPHS = _Events("a CUDA graph of each call", "graph of each", "graphs_us", "counted_graphs", "within_graphs")
_QUEUE = _Events("calls launched one by one", "one by one", "queued_us", "counted_queued", "within_queued")


def _ways(content: dict[str, Any]) -> list[_Events]:
    """Those that were measured: older results have fewer."""
    return [way for way in (_QUEUE, _GRAPHS, _GRAPH) if any(row.get(way.us) for row in content["rows"])]


def _agreement(rows: list[dict[str, Any]], events: _Events, long: bool) -> str:
    """How many of the long or short calls agree, and how far apart: relative where long, in µs where short."""
    counted = [row for row in rows if row.get(events.counted) and row["long"] == long]
    if not counted:
        return "none"
    apart = [(row["outer_us"] - row[events.us]) / (row[events.us] if long else 1) for row in counted]
    low, high = (f"{v:+.1%}" if long else f"{v:+.2f} µs" for v in (min(apart), max(apart)))
    return f"{sum(row[events.within] for row in counted)} of {len(counted)}; {low} to {high}"


def accuracy(folder: Path) -> str:
    """By case: how many implementations' times agree with CUDA's events, and how far apart they are."""
    content = _accuracy(folder)
    ways = [(events, long) for events in _ways(content) for long in (True, False)]
    names = list(dict.fromkeys((row["problem"], row["case"]) for row in content["rows"]))
    rows = []
    for problem, case in names:
        of_case = [row for row in content["rows"] if (row["problem"], row["case"]) == (problem, case)]
        cells = [_agreement(of_case, events, long) for events, long in ways]
        rows.append([f"{problem}: {case}", *cells, str(sum(row["launch_bound"] for row in of_case))])
    lengths = {True: "over 50 µs: within 2%; range", False: "shorter: within 1 µs; range"}
    heads = [f"{events.short}, {lengths[long]}" for events, long in ways]
    where = f"{machine(content['environment'])}.{older(content['environment'], TIMING)}"
    return f"{where}\n\n" + _rows(" | ".join(["case", *heads, "launch-bound, not counted"]), rows)


def _accuracy_checks(folder: Path) -> Iterator[list[str]]:
    content = _accuracy(folder)
    date = content["environment"]["date"][:10]
    for events in _ways(content):
        for long, what, target in ((True, "over 50 µs", "within 2%"), (False, "shorter", "within 1 µs")):
            shown = _agreement(content["rows"], events, long)
            yield [f"the clock against {events.name}, {what}", target, shown, date]


# ---------------------------------------------------------------------- from run to run


def _repeatability(folder: Path) -> dict[str, Any]:
    return measured(folder / "repeatability.json", "repeatability")


def repeatability(folder: Path) -> str:
    """How far the runs' results lie apart, largest less smallest over the median."""
    content = _repeatability(folder)
    rows = [
        [
            name,
            duration(statistics.median(case["median_us"])) if "median_us" in case else "",
            f"{case['spread']:.2%}" if "spread" in case else "",
            f"{statistics.median(case['speedups']):.3f}",
            f"{case['speedup_spread']:.2%}",
        ]
        for name, case in content["cases"].items()
    ]
    heads = "case | time, median of the runs | spread | over eager | spread"
    command = content["environment"]["command"].split(" --json ")[0]
    title = f"`{content['submission']}`, {content['runs']} runs, {machine(content['environment'])}, `{command}`."
    return f"{title}{older(content['environment'], TIMING)}\n\n{_rows(heads, rows)}"


def _repeatability_checks(folder: Path) -> Iterator[list[str]]:
    content = _repeatability(folder)
    spreads = {name: case["spread"] for name, case in content["cases"].items() if "spread" in case}
    worst = max(spreads, key=lambda name: spreads[name])
    shown = f"{sum(s < 0.02 for s in spreads.values())} of {len(spreads)} cases; widest {spreads[worst]:.2%}, {worst}"
    what = f"`{content['submission']}` evaluated {content['runs']} times, times from run to run"
    yield [what, "spread under 2%", shown, content["environment"]["date"][:10]]


def replayed(folder: Path) -> str:
    """What `eval.py compare` says of a submission beside itself, beside a copy and beside a slower one; then the board
    on which all of them stand."""
    content = measured(folder / "replay.json", "replay")
    rows = []
    for name, copy in content["copy"].items():
        unchanged = [pair[name] for pair in content["unchanged"] if name in pair]
        same = sum(row["difference"] == "no different" and not row["doubt"] for row in unchanged)
        rows.append([name, f"{same} of {len(unchanged)}", _beside(copy), _beside(content["slow"].get(name))])
    slower = f"{content['slower']:.0%} slower ({duration(content['wait_us'])} longer)"
    heads = f"case | unchanged runs that are no different | a copy is | one made {slower} is"
    board = [
        [f"`{entry['submission']}`", f"rank {entry['rank']}" if entry["rank"] else entry["standing"],
         str(entry["evaluations"]), f"{entry['speedup']:.3f}×" if entry["speedup"] else "–"]
        for entry in content["board"]
    ]  # fmt: skip
    command = content["environment"]["command"].split(" --json ")[0]
    title = f"`{content['submission']}`, {machine(content['environment'])}, `{command}`."
    return (
        f"{title}{older(content['environment'], TIMING)}{_early(content)}\n\n{_rows(heads, rows)}\n"
        f"{_rows('submission | on the board | evaluations | over eager', board)}"
    )


def _beside(row: dict[str, Any] | None) -> str:
    """How B stands to A, with the speeds' ratio; a time in doubt is not tested."""
    if row is None:
        return "not timed so"
    if row["doubt"]:
        return f"in doubt: {row['doubt']}"
    low, high = row["speed"]["interval"]
    return f"{row['difference']}, {row['speed']['ratio']:.3f}× [{low:.3f}, {high:.3f}]"


# ---------------------------------------------------------------------- warm evaluations


def _warm(folder: Path) -> dict[str, Any]:
    return measured(folder / "warm_evaluation.json", "warm_evaluation")


def warm(folder: Path) -> str:
    """Seconds of a second evaluation, process start included."""
    content = _warm(folder)
    rows = [
        [
            way,
            f"{entry['median_s']:.1f} s",
            ", ".join(f"{s:.1f}" for s in entry["seconds"]),
            f"{entry['ratio']:.2f} of {_range(entry['shortest_s'])}" if "ratio" in entry else "",
        ]
        for way, entry in content["ways"].items()
    ]
    what = f"`{content['submission']}` on {content['device']}, {content['cases']} cases, {content['timed_cases']} timed"
    changes = WARM_SPEED if content["device"] == "cuda" else ()
    where = f"{machine(content['environment'])}.{older(content['environment'], (*TIMING, *changes))}"
    return f"{what}; {where}\n\n" + _rows("evaluation | median | runs | times torch and a tensor alone", rows)


def _warm_checks(folder: Path) -> Iterator[list[str]]:
    content = _warm(folder)
    device, date = content["device"], content["environment"]["date"][:10]
    for way, entry in content["ways"].items():
        times = next(times for words, times in WARM_TIMES.items() if words in way)
        of_torch = f"at most {times:g} times torch and a tensor" if "ratio" in entry else ""
        target = of_torch if device == "cuda" else f"at most {WARM_S} s" if device == "emulator" else ""
        what = f"a warm evaluation of `{content['submission']}` on {device}, {content['cases']} cases, {way}"
        ratio = f", {entry['ratio']:.2f} times" if device == "cuda" and "ratio" in entry else ""
        yield [what, target, f"{entry['median_s']:.1f} s{ratio}", date]


def api_costs(folder: Path) -> str:
    """Seconds of each call of the Python API."""
    content = measured(folder / "api_costs.json", "api_costs")
    rows = [[way, f"{entry['median_s']:.2f} s", _range(entry["seconds"])] for way, entry in content["ways"].items()]
    what = f"`{content['submission']}` on {content['device']}, {content['cases']} cases, built before"
    where = f"{machine(content['environment'])}.{older(content['environment'], TIMING)}"
    return f"{what}; {where}\n\n" + _rows("call | median | of runs", rows)


def pool_of_faults(folder: Path) -> str:
    """What became of sources of all kinds, and of the judging processes' memory."""
    content = measured(folder / "pool_of_faults.json", "pool_of_faults")
    kinds = [f"{count} {kind}" for kind, count in content["kinds"].items()]
    memory = content["memory_mib_of_tenths"]
    said = {"right": "as they must be"}
    rows = [
        ["sources", f"{content['count']}: {', '.join(kinds)}"],
        ["processes killed meanwhile", str(content["killed"])],
        ["results", ", ".join(f"{count} {said.get(what, what)}" for what, count in content["outcomes"].items())],
        ["a second, with " + str(content["workers"]) + " workers", f"{content['count'] / content['seconds']:.1f}"],
        ["memory of a judging process in the first and the last tenth", f"{memory[0]} and {memory[-1]} MiB"],
    ]
    where = f"{machine(content['environment'])}.{older(content['environment'], TIMING)}"
    return f"{where}\n\n" + _rows("what | measured", rows)


def cluster_simulation(folder: Path) -> str:
    """What sending and gathering cost, where judging costs nothing."""
    content = measured(folder / "cluster_simulation.json", "cluster_simulation")
    memory = content["memory_mib_of_tenths"]
    rows = [
        ["submissions, all of them right", f"{content['right']} of {content['count']}, {content['cases']} cases each"],
        [f"a second, with {content['actors']} actors", f"{content['count'] / content['seconds']:.0f}"],
        ["under way at most", str(content["longest_queue"])],
        ["memory of eval.py's side in the first and the last tenth", f"{memory[0]} and {memory[-1]} MiB"],
        ["memory when a report has all of them", f"{content['memory_mib_at_end']} MiB"],
        ["the database", f"{content['database_mib']} MiB"],
    ]
    return f"{machine(content['environment'])}.\n\n" + _rows("what | measured", rows)


def full_machine(folder: Path, step: str = "full_machine") -> str:
    """Many submissions that nobody has built, in one run and one after another."""
    content = measured(folder / f"{step}.json", step)
    each_s = content["together_s"] / content["count"]
    rows = [[f"{content['count']} in one run, each", f"{each_s:.1f} s"]]
    if content["alone_s"]:
        rows.append(["one by one, each with a start of eval.py", _range(content["alone_s"])])
        rows.append(["as fast together", f"{statistics.mean(content['alone_s']) / each_s:.2f} times"])
    rows += [
        ["a build beside others", f"{content['build_s'] / content['count']:.1f} s"],
        ["of the run the device was idle", f"{1 - content['busy_s'] / content['lanes'] / content['together_s']:.0%}"],
    ]
    if several := content.get("several"):
        times = content["together_s"] / several["together_s"]
        rows.append([f"{several['count']} on {several['lanes']} GPUs", f"{several['together_s']:.0f} s"])
        rows.append(["times as fast as one GPU", f"{times:.2f}"])
    if content.get("timed"):
        bound = "all, and the larger of 1.2 times the device's busy time and 1.3 times the builds over the processors"
        rows.insert(1, [bound, f"{content['together_s']:.0f} s and {content['may_take_s']:.0f} s"])
    rows += [[f"timed {way}, times the one alone", shown] for way, shown in spread_by_way(content.get("times_us", {}))]
    what = f"{machine(content['environment'])}. Copies of `{content['submission']}` under names of their own."
    quick = " Timed as `--quick` does." if content.get("effort") == "quick" else ""
    if content["environment"].get("gpu"):
        quick += older(content["environment"], SPEED)
    return f"{what}{quick}\n\n" + _rows("what | measured", rows)


def build_speed(folder: Path) -> str:
    """Cold builds beside those of torch's load_inline."""
    content = measured(folder / "build_speed.json", "build_speed")
    rows = [
        [name, seconds_of(entry["seconds"]), seconds_of(entry["load_inline_s"]), f"{entry['ratio']:.2f}"]
        for name, entry in content.items()
        if name != "environment"
    ]
    return f"{machine(content['environment'])}\n\n" + _rows("sources | s | load_inline, s | ratio", rows)


def _range(seconds: list[float]) -> str:
    return f"{len(seconds)}: {min(seconds):.2f} to {max(seconds):.2f} s"


# ---------------------------------------------------------------------- pull requests through the gate


def gate_proof(folder: Path) -> str:
    """Each kind of pull request: how the gate ended, and how much slower than the stored best it was called."""
    content = measured(folder / "gate_proof.json", "gate_proof")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for run in content["runs"]:
        if run["name"] != "main":  # which no pull request is
            kinds.setdefault(run["name"].split()[0], []).append(run)
    rows = [[kind, str(len(runs)), *_gated(runs)] for kind, runs in kinds.items()]
    what = f"`{content['submission']}` on a case of {duration(content['median_us'] or float('nan'))}"
    where = f"{what}; {machine(content['environment'])}.{older(content['environment'], TIMING)}{_early(content)}"
    return f"{where}\n\n" + _rows("pull request | runs | must be | was | slower than the best | seconds of a run", rows)


def _early(content: dict[str, Any]) -> str:
    return "" if content["complete"] else " It was stopped before its last run."


def _gated(runs: list[dict[str, Any]]) -> list[str]:
    """What the runs of one kind must end with, how many did, how much slower the run that decided found them, and what
    they took."""
    right = sum(run["as_expected"] for run in runs)
    last = [(max(map(len, run["slower"].values()), default=0), run["slower"]) for run in runs]
    deciding = [(kind, of[-1]) for count, kinds in last for kind, of in kinds.items() if len(of) == count]
    if len(runs) == 1:
        slower = "; ".join(f"{kind} {share:+.1%} [{low:+.1%}, {high:+.1%}]" for kind, (share, low, high) in deciding)
    else:
        shares = [share for _, (share, _, _) in deciding]
        slower = f"{min(shares):+.1%} to {max(shares):+.1%}" if shares else ""
    seconds = statistics.median(run["seconds"] for run in runs)
    ends = "red" if runs[0]["expected"] else "green"
    return [ends, f"{right} of {len(runs)}", slower or "–", f"{seconds:.1f}"]


def cold_gate(folder: Path) -> str:
    """From checkout to verdict, step by step."""
    content = measured(folder / "cold_gate.json", "cold_gate")
    rows = [[step, f"{seconds:.1f} s"] for step, seconds in content["steps_s"].items()]
    rows.append([f"together; the target is {content['target_s']:.0f} s", f"{content['total_s']:.1f} s"])
    what = f"`{content['submission']}`, changed, on {content['cpus']} cores; {machine(content['environment'])}"
    return f"{what}.\n\n" + _rows("step | took", rows)


# ---------------------------------------------------------------------- hostile files and sanitizers


def _hostile(folder: Path) -> dict[str, Any]:
    return measured(folder / "hostile.json", "hostile")


def _counts(outcomes: list[dict[str, Any]]) -> list[str]:
    controls = [o for o in outcomes if "accepted" in o["must_get"]]
    return [
        str(len(outcomes)),
        str(sum(o["right"] for o in outcomes)),
        str(len(_fooled(outcomes))),
        f"{sum(o['got'] == 'accepted' for o in controls)} of {len(controls)}",
        str(sum(bool(o.get("judged_before")) for o in outcomes)),
    ]


def _fooled(outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [o for o in outcomes if o["got"] == "accepted" and "accepted" not in o["must_get"]]


def hostile(folder: Path) -> str:
    """By device and family: how many files were judged, and what of it was not as it must be."""
    content = _hostile(folder)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for outcome in content["outcomes"]:
        groups.setdefault((outcome["device"], outcome["family"]), []).append(outcome)
    heads = "device | family | judged | as named | hostile and accepted | honest and accepted | judged again, alone"
    rows = [[device, family, *_counts(of)] for (device, family), of in sorted(groups.items())]
    devices = [f"{device}: {machine(environment)}" for device, environment in _judged_on(content)]
    wrong = [
        f"- `{o['family']}/{o['name']}` on {o['device']} got {o['got']}, and must get {' or '.join(o['must_get'])}."
        for o in content["outcomes"]
        if not o["right"]
    ]
    text = f"{'; '.join(devices)}.{_oldest(content)}\n\n" + _rows(heads, rows)
    return text + ("\nNot as named:\n\n" + "\n".join(wrong) + "\n" if wrong else "")


def _judged_on(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each device and its environment."""
    environments = content["environment"].items()
    return [(device, of) for device, of in environments if isinstance(of, dict) and "torch" in of]


def hostile_counts(folder: Path) -> str:
    """By device: the isolation of its workers and how many files were judged."""
    content = _hostile(folder)
    rows = []
    for device, environment in _judged_on(content):
        outcomes = [o for o in content["outcomes"] if o["device"] == device]
        level = environment["isolation"][device]["level"]
        rows.append([device, level, *_counts(outcomes)[:4], machine(environment)])
    table = _rows("device | isolation | judged | as named | hostile and accepted | honest and accepted | on", rows)
    said = _oldest(content).strip()
    return f"{said}\n\n{table}" if said else table


def _made_by(command: str, path: Path) -> Any:
    """What `command` wrote to `path`. Raises NotMeasured with the command."""
    if not path.exists():
        raise NotMeasured(f"Not measured yet: `{command} --json {_relative(path)}`.")
    return json.loads(path.read_text())


def hostile_opened(folder: Path) -> str:
    """By device: how many files are accepted once what they attack is open to them, and which are not."""
    content = _made_by("python -m tests.hostile.opened", folder / "hostile_opened.json")
    rows = []
    for device, environment in content["environment"].items():
        outcomes = [o for o in content["outcomes"] if o["device"] == device]
        shut = [f"`{o['family']}/{o['name']}`" for o in outcomes if o["got"] != "accepted"]
        accepted = len(outcomes) - len(shut)
        rows.append([device, str(len(outcomes)), str(accepted), ", ".join(shut) or "–", machine(environment)])
    return _rows("device | judged with it open | accepted | refused all the same | on", rows)


def _oldest(content: dict[str, Any]) -> str:
    """What the oldest run among the devices is older than."""
    environments = [of for _, of in _judged_on(content)]
    return older(min(environments, key=lambda of: of.get("date", "")), VERDICTS) if environments else ""


def _hostile_checks(folder: Path) -> Iterator[list[str]]:
    content = _hostile(folder)
    for device in dict.fromkeys(o["device"] for o in content["outcomes"]):
        outcomes = [o for o in content["outcomes"] if o["device"] == device]
        judged, right, fooled, honest, _ = _counts(outcomes)
        shown = f"{judged} files: {fooled} hostile accepted, {honest} controls; {right} as named"
        date = content["environment"].get(device, {}).get("date", "")[:10]
        yield [f"the hostile corpus on {device}", "none accepted, all controls", shown, date]


def sanitized(folder: Path) -> str:
    """What compute-sanitizer said of submissions that were accepted before."""
    content = measured(folder / "sanitized.json", "sanitized")
    rows = [
        [f"`{name.removeprefix('submissions/').removesuffix('.py')}`", entry["status"], _said(entry)]
        for name, entry in content["verdicts"].items()
    ]
    where = f"{machine(content['environment'])}.{older(content['environment'], KERNELS)}"
    return f"{where}\n\n" + _rows("submission | verdict | compute-sanitizer", rows)


def _said(entry: dict[str, Any]) -> str:
    said = [note for note in entry.get("notes", []) if note.startswith("compute-sanitizer")]
    return " ".join(said or [entry.get("message") or ""]).replace("|", "\\|").replace("\n", " ")[:200]


# ---------------------------------------------------------------------- peers and launches


def _fastest(folder: Path) -> Iterator[tuple[str, str, Accepted]]:
    """Each problem, the day it was measured, and its fastest submission on a GPU, a ranked one if any is."""
    from harness.report.formats.json import load

    for path in sorted(folder.glob("*.json")):
        if (PROBLEMS / path.name).with_suffix(".py").exists():
            results: Results = load(path)
            timed = [e for e in results.evaluations if isinstance(e, Accepted) and e.device == "cuda"]
            timed = [e for e in timed if e.geomean_speedup is not None]
            if timed:
                best = max(timed, key=lambda e: (e.is_ranked, e.geomean_speedup or 0.0))
                yield path.stem, day(results.environment), best


def _timings(evaluation: Accepted) -> Iterator[tuple[str, dict[str, CaseTiming]]]:
    """The whole call under '', and each part that was timed alone: its cases."""
    timed = [case for case in evaluation.cases if isinstance(case, CasePassed) and case.timing]
    yield "", {case.name: case.timing for case in timed if case.timing}
    for part in dict.fromkeys(name for case in timed for name in case.parts):
        yield part, {case.name: case.parts[part] for case in timed if part in case.parts}


def peers(folder: Path) -> str:
    """Each problem's fastest submission against each baseline: the mean speedup over the cases where both ran, and
    where it is slower than the fastest of them."""
    timed = [(problem, on, e, part, of) for problem, on, e in _fastest(folder) for part, of in _timings(e)]
    names = list(dict.fromkeys(name for *_, timings in timed for t in timings.values() for name in t.baselines))
    rows = []
    for problem, on, evaluation, part, timings in timed:
        cells = [_mean([t.baselines[n] for t in timings.values() if n in t.baselines], len(timings)) for n in names]
        shares = [t.floor_fraction for t in timings.values()]
        slower = [case for case, t in timings.items() if t.speedup_over_best and t.speedup_over_best.interval[1] < 1]
        what = f"{problem}, {part}" if part else problem
        floor = f"{min(shares):.0%} to {max(shares):.0%}"
        rows.append([what, f"`{evaluation.submission}`", floor, *cells, ", ".join(slower) or "none", on])
    if not rows:
        return "Nothing was timed on a GPU.\n"
    heads = f"problem | submission | of the floor | {' | '.join(names)} | slower than the fastest of them in | on"
    return _rows(heads, rows)


def _mean(baselines: list[Baseline], cases: int) -> str:
    if not baselines:
        return "–"
    mean = statistics.geometric_mean([baseline.speedup.ratio for baseline in baselines])
    return f"{mean:.2f}×" + ("" if len(baselines) == cases else f" ({len(baselines)} of {cases} cases)")


def launches(folder: Path) -> str:
    """Cases whose time is Python and launch: how long a call takes to return, beside eager's."""
    rows = []
    for problem, on, evaluation in _fastest(folder):
        for case, timing in dict(_timings(evaluation))[""].items():
            eager = timing.baselines.get("eager")
            if timing.launch_bound and eager and timing.issue_us and eager.issue_us:
                share = f"{timing.issue_us / eager.issue_us:.2f}"
                times = [duration(us) for us in (timing.issue_us, eager.issue_us, timing.median_us, eager.median_us)]
                rows.append([problem, f"`{evaluation.submission}`", case, *times[:2], share, *times[2:], on])
    if not rows:
        return "No timed case was bound by its launch.\n"
    return _rows("problem | submission | case | returns after | eager | share | call | eager | on", rows)


# ---------------------------------------------------------------------- how all of it was made


def runs(folder: Path) -> str:
    """The commands of benchmarks/everything.py that were run, when, and how long they took."""
    path = folder / "run.json"
    if not path.exists():
        raise NotMeasured(f"No run has been recorded yet: `python benchmarks/everything.py {_relative(folder)}`.")
    rows = [
        [name, done["date"], f"{done['seconds']:.0f} s", done["outcome"], f"`{done['command']}`".replace("|", "\\|")]
        for name, done in json.loads(path.read_text()).items()
    ]
    return _rows("step | ended | took | outcome | command", rows)


# ---------------------------------------------------------------------- all at a glance

_CHECKS: dict[str, Callable[[Path], Iterator[list[str]]]] = {
    "a submission against a copy of itself": _twice_checks,
    "the clock against replays of a CUDA graph": _accuracy_checks,
    "one submission evaluated many times": _repeatability_checks,
    "a warm evaluation": _warm_checks,
    "the hostile corpus": _hostile_checks,
}
_ON_A_CPU = {_twice_checks, _warm_checks, _hostile_checks}


def checks(folder: Path) -> str:
    """The judge's own targets, and what was measured."""
    rows: list[list[str]] = []
    for what, check in _CHECKS.items():
        if folder.name == "cpu" and check not in _ON_A_CPU:
            continue
        try:
            rows += check(folder)
        except NotMeasured:
            rows.append([what, "", "not measured yet", ""])
    return _rows("what | target | measured | on", rows)


def audited(folder: Path) -> str:
    """Each problem of KernelBench's level 1 and the lazy answers that it would accept."""
    content = _made_by("python benchmarks/audit_folder.py FOLDER", folder / "audit_kernelbench_level1.json")
    done = [row for row in content["problems"] if not row["not_audited"]]
    weak = [row for row in done if row["accepted"]]
    heading = (
        f"{len(done)} of {len(content['problems'])} were audited; {len(weak)} of them accept a lazy answer. "
        f"{machine(content['environment'])}.\n\n"
    )
    rows = [[row["problem"], _audit_of(row), ", ".join(row["lowered"]) or "none"] for row in content["problems"]]
    return heading + _rows(f"problem | accepts | sizes that are {content['largest']} here", rows)


def mutants(folder: Path) -> str:
    """The faults that were made in each file of the judge, and how many of them a test saw."""
    content = _made_by("python benchmarks/mutants.py", folder / "mutants.json")
    made: dict[str, list[dict[str, Any]]] = {}
    for mutant in content["mutants"]:
        made.setdefault(mutant["name"].partition(": ")[0], []).append(mutant)
    killed = sum(mutant["what"] == "killed" for mutant in content["mutants"])
    heading = f"{killed} of {len(content['mutants'])} were seen. {machine(content['environment'])}.\n\n"
    return heading + _rows(
        "file | faults | seen | not seen", [_mutants_of(file, of_it) for file, of_it in made.items()]
    )


def _mutants_of(file: str, of_it: list[dict[str, Any]]) -> list[str]:
    survived = [m["name"].partition(": ")[2].replace("|", "\\|") for m in of_it if m["what"] != "killed"]
    return [f"`{file}`", str(len(of_it)), str(len(of_it) - len(survived)), ", ".join(f"`{s}`" for s in survived) or "–"]


def _audit_of(row: dict[str, Any]) -> str:
    return f"not audited: {row['not_audited']}" if row["not_audited"] else ", ".join(row["accepted"]) or "none"


TABLES: dict[str, Callable[[Path], str]] = {
    "checks": checks,
    "twice": same_twice,
    "accuracy": accuracy,
    "repeatability": repeatability,
    "replay": replayed,
    "warm": warm,
    "api costs": api_costs,
    "pool of faults": pool_of_faults,
    "cluster simulation": cluster_simulation,
    "build speed": build_speed,
    "full machine": full_machine,
    "full machine, as usual": partial(full_machine, step="full_machine_usual"),
    "gate proof": gate_proof,
    "cold gate": cold_gate,
    "hostile": hostile,
    "hostile counts": hostile_counts,
    "hostile opened": hostile_opened,
    "sanitized": sanitized,
    "peers": peers,
    "launches": launches,
    "runs": runs,
    "audit kernelbench level 1": audited,
    "mutants": mutants,
}


def table(name: str, folder: Path) -> str:
    """The table of that name, or how to measure what is missing."""
    try:
        return TABLES[name](folder)
    except NotMeasured as reason:
        return f"{reason}\n"
