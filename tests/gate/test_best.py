"""What runs beside the stored best, which stored evaluation that is, and when slower is an alarm."""

import hashlib
import re

import msgspec
import numpy as np
import pytest

from harness import notes
from harness.comparison.floors import BETWEEN_RUNS
from harness.exits import Exit
from harness.gate import best, slower
from harness.gate.config import Config
from harness.gate.targets import find_targets
from harness.gate.values import Ran
from harness.report.formats import json as results_json
from harness.store import open_store, stored_of
from harness.store.rows import board_of
from harness.timed import Kind
from harness.timing.stats import median_interval, speedup
from harness.verbs.gating.runner import Runner
from harness.verdict import Baseline, CasePassed, CaseTiming, digest_of_cases
from tests.helpers import ROOT
from tests.sample_results import FAST, WRONG

H200 = ROOT / "results" / "h200"


# ---------------------------------------------------------------------- beside the best


def times(samples):
    return dict(median_us=float(np.median(samples)), interval_us=median_interval(samples), samples_us=list(samples),
                calls_per_round=10, fixed_us=1.0, issue_us=2.0)  # fmt: skip


def beside(mine, one, copy=None, name="case", captured=None):
    """A case on which `mine` ran beside the best and its copy, each as times of rounds."""
    others = {"best": one, **({} if copy is None else {"copy": copy})}
    baselines = {key: Baseline(**times(value), speedup=speedup(value, mine)) for key, value in others.items()}
    timing = CaseTiming(**times(mine), floor_us=1.0, floor_fraction=0.5, bytes_min=1, launch_bound=False,
                        baselines=baselines, captured=captured)  # fmt: skip
    return CasePassed(name=name, shape="8×8", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.0, timing=timing)


def accepted(*cases, **more):
    return msgspec.structs.replace(FAST, cases=list(cases), notes=[], **more)


def rounds(rng, median_us=150.0, scatter=0.008, process=0.003, count=9):
    """Of one process: rounds scatter, and each process differs from the next by a little."""
    return median_us * np.exp(rng.normal(0, process) + rng.normal(0, scatter, count))


def run_of(rng, ratio=1.0, cases=8, **more):
    return accepted(*(beside(ratio * rounds(rng, **more), rounds(rng, **more), rounds(rng, **more), str(number))
                      for number in range(cases)))  # fmt: skip


def alarms_of(seed, ratio, **more):
    """Of a usual run and a decisive one."""
    rng = np.random.default_rng(seed)
    suspects = slower.suspected(run_of(rng, ratio, **more), "best", "copy")
    return slower.repeated(suspects, slower.slower_than(run_of(rng, ratio, **more, count=80), "best", "copy"))


# As rounds of a kernel with large parameters scatter on an H100.
SCATTERED = {"scatter": 0.03, "cases": 1}


def test_what_is_unchanged_raises_no_alarm():
    assert [alarms_of(seed, 1.0) for seed in range(40)] == [()] * 40
    assert [alarms_of(seed, 1.0, **SCATTERED) for seed in range(40)] == [()] * 40


def test_five_percent_more_on_150_us_is_an_alarm():
    assert all(alarms_of(seed, 1.05) for seed in range(40))


def test_where_rounds_scatter_many_of_them_show_what_few_cannot():
    usual = [slower.slower_than(run_of(np.random.default_rng(seed), 1.05, **SCATTERED), "best", "copy")
             for seed in range(40)]  # fmt: skip
    assert sum(map(bool, usual)) < 20
    assert sum(bool(alarms_of(seed, 1.05, **SCATTERED)) for seed in range(40)) >= 38


def test_one_run_of_two_is_no_alarm():
    slow, same = (slower.slower_than(run_of(np.random.default_rng(1), ratio), "best", "copy") for ratio in (1.1, 1.0))
    assert slow and not same
    assert slower.repeated(slow, same) == slower.repeated(same, slow) == ()


def test_what_the_copy_differs_by_is_noise():
    steady = np.full(9, 150.0) * (1 + np.linspace(-0.001, 0.001, 9))
    slow = accepted(beside(1.05 * steady, steady, steady))
    (alarm,) = slower.slower_than(slow, "best", "copy")
    assert alarm.noise == pytest.approx(BETWEEN_RUNS)  # what quiet processes differ by, of which the copy shows less
    assert slower.slower_than(accepted(beside(1.05 * steady, steady, 1.06 * steady)), "best", "copy") == ()
    (alarm,) = slower.slower_than(accepted(beside(1.05 * steady, steady, 1.03 * steady)), "best", "copy")
    assert alarm.noise == pytest.approx(0.03, abs=0.003)


def test_what_launching_decides_is_compared_by_its_graph():
    steady = np.full(9, 150.0) * (1 + np.linspace(-0.001, 0.001, 9))
    captured = beside(1.05 * steady, steady, steady).timing
    (case,) = [beside(1.5 * steady, steady, steady, captured=captured)]
    bound = msgspec.structs.replace(case.timing, issue_us=220.0)
    found = slower.slower_than(accepted(msgspec.structs.replace(case, timing=bound)), "best", "copy")
    assert [(alarm.case, alarm.kind) for alarm in found] == [("case", Kind.CAPTURED)]


def test_a_faster_one_and_a_rejected_one_raise_none():
    steady = np.full(9, 150.0) * (1 + np.linspace(-0.001, 0.001, 9))
    assert slower.slower_than(accepted(beside(0.9 * steady, steady, steady)), "best", "copy") == ()
    assert slower.slower_than(WRONG, "best", "copy") == ()


def test_times_in_doubt_raise_no_alarm_and_are_named():
    steady = np.full(9, 150.0) * (1 + np.linspace(-0.001, 0.001, 9))
    slow = accepted(beside(1.5 * steady, steady, steady))
    busy = msgspec.structs.replace(slow, notes=[notes.BusyMachine(case="case", share=0.4)])
    assert slower.slower_than(slow, "best", "copy") and not slower.slower_than(busy, "best", "copy")
    assert slower.doubted(busy) == ("'case': busy machine",) and slower.doubted(slow) == ()


RECORDED = [e for name in ("rung5_split_rows", "speed_of_light")
            for e in results_json.load(H200 / f"same_twice_{name}.json").evaluations]  # fmt: skip


def scaled(evaluation, ratio):
    """As if each of its calls had taken `ratio` times as long, and its baselines' had not."""
    return msgspec.structs.replace(evaluation, cases=[
        beside(ratio * np.array(case.timing.samples_us), other.samples_us, name=case.name)
        for case in evaluation.cases if case.timing for other in case.timing.baselines.values()
    ])  # fmt: skip


@pytest.mark.parametrize("evaluation", RECORDED, ids=lambda e: e.submission)
def test_recorded_runs_of_a_submission_beside_its_copy(evaluation):
    """On an H200: none is called slower, and of those above 100 µs all are that are made 5% slower."""
    assert slower.slower_than(scaled(evaluation, 1.0), "best", "") == ()
    long = {case.name for case in evaluation.cases if case.timing and case.timing.median_us > 100}
    found = {alarm.case for alarm in slower.slower_than(scaled(evaluation, 1.05), "best", "")}
    assert long and long <= found


# ---------------------------------------------------------------------- the stored best

MACHINE = {"gpu": "NVIDIA H200", "torch": "2.11.0", "driver": "570.1", "date": "2026-01-01T00:00:00+00:00"}


def stored(source, over_eager, submission="mine", machine=MACHINE, **more):
    evaluation = msgspec.structs.replace(FAST, source_sha256=source * 64, geomean_speedup=over_eager, notes=[],
                                         geomean_interval=(over_eager * 0.99, over_eager * 1.01),
                                         submission=submission, **more)  # fmt: skip
    return stored_of(evaluation, machine)


HERE = board_of(FAST, MACHINE)


def test_the_fastest_source_is_the_best_by_its_mean():
    found = [stored("a", 2.0), stored("b", 3.0), stored("b", 1.0), stored("c", 1.9)]
    chosen = best.choose(found, HERE)
    assert chosen.stored.evaluation.source_sha256[0] == "a"
    assert chosen.words == "mine, source aaaaaaaaaa, stored 2026-01-01"


def test_what_was_rejected_or_withdrawn_since_is_none():
    rejected = stored_of(msgspec.structs.replace(WRONG, source_sha256="a" * 64, device="cuda", problem_sha256="",
                                                 cases=FAST.cases), MACHINE)  # fmt: skip
    found = [stored("a", 3.0), rejected, stored("b", 2.5), stored("c", 2.0)]
    assert best.choose(found, HERE, withdrawn={"b" * 64}).stored.evaluation.source_sha256[0] == "c"
    assert "rejected or withdrawn" in best.choose(found[:3], HERE, withdrawn={"b" * 64}).why_not


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"gpu": "NVIDIA A100"}, "model of the device: NVIDIA A100 there, NVIDIA H200 here"),
        ({"driver": "580.2"}, "versions: torch 2.11.0, driver 580.2 there, torch 2.11.0, driver 570.1 here"),
        ({"torch": "2.13.0"}, "versions: torch 2.13.0, driver 570.1 there"),
    ],
)
def test_another_gpu_driver_or_torch_is_not_comparable(other, said):
    chosen = best.choose([stored("a", 9.0, machine=MACHINE | other)], HERE)
    assert chosen.stored is None
    assert chosen.why_not.startswith("not comparable with what is stored: ") and said in chosen.why_not


def test_another_content_of_the_problem_is_not_comparable_and_another_judge_is():
    assert "content of the problem's file" in best.choose([stored("a", 9.0, problem_sha256="f" * 64)], HERE).why_not
    assert best.choose([stored("a", 9.0, machine=MACHINE | {"judge": "another"})], HERE).stored is not None
    assert "nothing" in best.choose([], HERE).why_not


class OnGpu(Runner):
    """Runs give the evaluations that it is told; all else is the gate's own."""

    def __init__(self, rules, db, evaluations):
        super().__init__(rules, db, keeps=False, color="never", quiet=True)
        self.evaluations, self.beside, self.efforts = list(evaluations), [], []

    def _devices(self, target):
        return ["cuda"]

    @staticmethod
    def _environment():
        return MACHINE

    def _run(self, job, beside=None, effort="usual"):
        self.efforts.append(effort)
        self.beside.append(beside and [path.read_bytes() for path in (beside.best, beside.copy)])
        made = self.evaluations.pop(0)(beside.best.stem if beside else "", beside.copy.stem if beside else "")
        self._found[job.targets[0]].ran.append(Ran(made))
        return [made]


BEST = b"class ModelNew: ..."


def gated(repository, runs, machine=MACHINE, source=BEST, **asked):
    """What the gate says of mine.py, whose runs give `runs`, beside a stored best that was made on `machine`."""
    sha256 = hashlib.sha256(BEST).hexdigest()
    problem = repository / "problems" / "tiny.py"
    kept = accepted(
        beside([1.0] * 9, [2.0] * 9, name="small"), problem="tiny", submission="mine", source_sha256=sha256,
        problem_sha256=hashlib.sha256(problem.read_bytes()).hexdigest(), geomean_speedup=2.0,
        geomean_interval=(1.99, 2.01),
        chosen_cases=digest_of_cases(["small", "odd"]),
    )  # fmt: skip
    db = repository / "results.db"
    with open_store(db) as store:
        store.add([kept], machine, {sha256: source} if source else {})
    rules = Config(**asked)
    runner = OnGpu(rules, db, runs)
    return runner.judge(find_targets([], rules, repository)).outcome, runner


def runs_of(*ratios):
    """A run for each: mine.py takes `ratio` times as long as the best."""
    steady = np.full(9, 150.0) * (1 + np.linspace(-0.001, 0.001, 9))

    def made(ratio, one, copy):
        case = beside(ratio * steady, steady, steady, "small")
        named = {one: case.timing.baselines["best"], copy: case.timing.baselines["copy"]} if one else {}
        timing = msgspec.structs.replace(case.timing, baselines=named)
        return accepted(msgspec.structs.replace(case, timing=timing), problem="tiny", submission="mine")

    return [lambda one, copy, ratio=ratio: made(ratio, one, copy) for ratio in ratios]


def test_the_best_runs_beside_it_twice_and_its_source_is_what_was_stored(repository):
    outcome, runner = gated(repository, runs_of(1.0))
    assert runner.beside == [[BEST, BEST]]
    assert (outcome.exit, outcome.remarks) == (Exit.ACCEPTED, ())


def test_a_slower_one_is_run_again_with_more_rounds_before_it_is_an_alarm(repository):
    outcome, runner = gated(repository, runs_of(1.05, 1.05))
    assert (len(runner.beside), runner.efforts) == (2, ["usual", "decisive"])
    assert outcome.exit is Exit.TOO_SLOW
    assert re.search(r"'small' is 5\.0% slower .* than mine, source \w{10}, stored 2026-01-01", outcome.broken[0].line)


def test_where_the_deciding_run_is_in_doubt_that_is_said(repository):
    suspected, slow = runs_of(1.05, 1.05)
    busy = [notes.BusyMachine(case="small", share=0.4)]
    outcome, _ = gated(repository, [suspected, lambda *names: msgspec.structs.replace(slow(*names), notes=busy)])
    assert outcome.exit is Exit.ACCEPTED
    assert any("times in doubt are not compared: 'small': busy machine" in remark.line for remark in outcome.remarks)


def test_what_only_one_run_found_slower_is_no_alarm(repository):
    outcome, runner = gated(repository, runs_of(1.05, 1.0))
    assert (len(runner.beside), outcome.exit) == (2, Exit.ACCEPTED)
    assert "in one run, and not in the longer one after it" in outcome.remarks[0].line


@pytest.mark.parametrize("other", [{"gpu": "NVIDIA A100"}, {"driver": "580.2"}, {"torch": "2.13.0"}])
def test_on_another_machine_nothing_is_compared_and_nothing_is_red(repository, other):
    outcome, runner = gated(repository, runs_of(2.0), machine=MACHINE | other)
    assert (runner.beside, outcome.exit) == ([None], Exit.ACCEPTED)
    assert "no-slower-than-best left out: not comparable with what is stored" in outcome.remarks[0].line


def test_without_its_source_stored_figures_warn_and_do_not_fail(repository):
    outcome, runner = gated(repository, runs_of(2.0), source=None)
    assert (runner.beside, outcome.exit) == ([None], Exit.ACCEPTED)
    assert "which could not be run beside it: a warning, not an alarm." in outcome.remarks[0].line
