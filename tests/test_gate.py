"""The gate: its rules, what it compares with, what a change touches, and whole runs in a repository of its own."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from xml.etree import ElementTree

import msgspec
import numpy as np
import psutil
import pytest
from rich.console import Console

from harness import notes
from harness.comparison.floors import BETWEEN_RUNS
from harness.errors import UsageError
from harness.exits import Exit
from harness.gate import best, config, slower
from harness.gate.changes import changed_since
from harness.gate.config import Config
from harness.gate.rules import decide
from harness.gate.targets import (
    find_targets,
    in_place_of_shipped,
    moved_measures,
    passed_over,
    touched,
    without_folders_problem,
)
from harness.gate.values import Candidate, Compiled, NoVerdict, Ran, Slower
from harness.protocol.extension import SourceText
from harness.records import KernelResources
from harness.report.formats import json as results_json
from harness.report.gating import print_outcome
from harness.store import open_store, stored_of
from harness.store.rows import board_of
from harness.submission import read_submission
from harness.timed import Kind
from harness.timing.stats import median_interval, speedup
from harness.tools import compiling
from harness.verbs.gating.runner import Runner, choose_device
from harness.verdict import Baseline, CasePassed, CaseTiming, Speedup, digest_of_cases
from tests.helpers import ROOT, forked_eval, is_alive
from tests.sample_results import FAST, NOISY, UNTIMED, WRONG
from tests.test_workflow_log import commands, loud

H200 = ROOT / "results" / "h200"


def test_a_folder_without_submissions_is_no_gate(tmp_path):
    """Those that ship with the judge are not who is asked about."""
    with pytest.raises(UsageError, match="There is no folder submissions/ in"):
        find_targets([], Config(), tmp_path)


# ---------------------------------------------------------------------- kernelgate.toml


def written(tmp_path, text):
    path = tmp_path / "kernelgate.toml"
    path.write_text(text)
    return path


def test_every_key_can_be_said(tmp_path):
    text = """
        problems = ["layernorm", "problems/own.py"]
        devices = ["cuda", "emulator"]
        min-speedup = 1.2
        no-slower-than-best = "problem"
        max-spills = 0
        max-registers = 128
        require-check = false
        require-isolation = true
        compile-for = ["sm_80", "sm_90a"]
    """
    read = config.read(written(tmp_path, text))
    assert {key for key in config.KEYS if f"{key} =" in text} == set(config.KEYS)
    assert all(getattr(read, name) != getattr(Config(), name) for name in Config.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min-speedupp = 1.1", "the key 'min-speedupp', which is none. Did you mean 'min-speedup'?"),
        ("max_spills = 0", "Did you mean 'max-spills'?"),
        ("[gate]\nmax-spills = 0", "the key 'gate', which is none. Keys are problems, devices"),
        ("max-spills = -1", "max-spills: expected a whole number >= 0"),
        ("max-registers = 'few'", "max-registers: expected a whole number or nothing, got a text"),
        ("devices = ['gpu']", "each of devices is one of cuda, cpu, emulator, and 'gpu' was given"),
        ("compile-for = ['90']", "compile-for has '90', which is no architecture; write it as sm_80 or sm_90a"),
        ("min-speedup 1.1", "is no TOML: "),
    ],
)
def test_what_is_wrong_with_the_file_is_said(tmp_path, text, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        config.read(written(tmp_path, text))


def test_options_go_before_the_file(tmp_path):
    read = config.read(written(tmp_path, "max-spills = 0\nmax-registers = 64"))
    given = config.with_options(read, {"max-registers": 32, "require-check": False})
    assert (given.max_spills, given.max_registers, given.require_check) == (0, 32, False)
    with pytest.raises(UsageError, match="The command line: min-speedup: expected a number > 0"):
        config.with_options(read, {"min-speedup": -1.0})


# ---------------------------------------------------------------------- rules

FILE = "submissions/layernorm/mine.py"


def candidate(*evaluations, checked=True, **more):
    ran = tuple(Ran(e, checked=checked and e.device == "emulator") for e in evaluations)
    return Candidate(FILE, "layernorm", more.pop("needs_check", False), ran=ran, **more)


def broken(one, **asked):
    return decide([one], Config(**asked)).broken


def lines(one, **asked):
    return [found.line for found in broken(one, **asked)]


def test_what_holds_breaks_nothing():
    outcome = decide([candidate(FAST, UNTIMED, needs_check=True)], Config(min_speedup=2.7, devices=("cuda",)))
    assert (outcome.broken, outcome.remarks, outcome.exit, outcome.judged) == ((), (), Exit.ACCEPTED, 1)


def test_a_rejection_and_an_error_are_told_apart():
    (rejected,), (error,) = broken(candidate(WRONG)), broken(candidate(NOISY))
    assert rejected.line.startswith(f"{FILE}: verdict: rejected on emulator: wrong_output: ")
    assert "\n" not in rejected.line and rejected.line.endswith("; asked for: accepted")
    assert (rejected.exit, rejected.case) == (Exit.REJECTED, "large")
    assert error.line.startswith(f"{FILE}: verdict: error on cpu: too_noisy")
    assert error.exit is Exit.HARNESS


def test_the_worst_decides_the_exit_code():
    assert decide([candidate(NOISY), candidate(WRONG)], Config()).exit is Exit.REJECTED
    assert decide([candidate(FAST), candidate(NOISY)], Config(min_speedup=9)).exit is Exit.HARNESS
    assert decide([candidate(FAST)], Config(min_speedup=9)).exit is Exit.TOO_SLOW


@pytest.mark.parametrize("candidates", [[], [candidate()]])
def test_a_gate_without_any_result_is_closed(candidates):
    outcome = decide(candidates, Config())
    assert [found.rule for found in outcome.broken] == ["results"]
    assert outcome.exit is Exit.NOTHING


def test_a_device_that_is_required_must_have_given_a_verdict():
    assert lines(candidate(UNTIMED), devices=("cuda",)) == [f"{FILE}: devices: no verdict; asked for: cuda"]
    without = (NoVerdict("cuda", "There is no GPU here."),)
    assert lines(candidate(UNTIMED, without=without), devices=("cuda",)) == [
        f"{FILE}: devices: no verdict: There is no GPU here; asked for: cuda"
    ]


def test_a_device_that_cannot_run_it_need_not_have():
    assert broken(candidate(FAST, cannot=("emulator",)), devices=("cuda", "emulator")) == ()


def test_host_code_and_kernels_of_a_gpu_alone_are_judged_where_they_can(repository):
    text = "from torch.utils.cpp_extension import load_inline\nload_inline('x', cpp_sources='')\n"
    (repository / "submissions/tiny/mine.py").write_text(text)
    (repository / "submissions/tiny/triton.py").write_text("import triton\n")
    rules = Config(devices=("cuda", "emulator"))
    runner = Runner(rules, repository / "r.db", keeps=False, color="never", quiet=True)
    host, triton = find_targets([], rules, repository)
    assert [runner._devices(target) for target in (host, triton)] == [["cpu"], ["cuda"]]
    assert [runner._candidate(target).cannot for target in (host, triton)] == [("cuda", "emulator"), ("emulator",)]


def test_detectors_must_have_watched_what_they_can_watch():
    (found,) = broken(candidate(UNTIMED, needs_check=True, checked=False))
    assert (found.rule, found.exit) == ("require-check", Exit.HARNESS)
    assert broken(candidate(UNTIMED, needs_check=True)) == ()
    assert broken(candidate(UNTIMED, needs_check=False, checked=False)) == ()
    assert broken(candidate(UNTIMED, needs_check=True, checked=False), require_check=False) == ()


def test_the_whole_interval_must_reach_the_speedup():
    assert broken(candidate(FAST), min_speedup=2.71) == ()  # 2.79 [2.71, 2.86]
    assert lines(candidate(FAST), min_speedup=2.75) == [
        f"{FILE}: min-speedup: 2.79× [2.71, 2.86] on cuda; asked for: 2.75×"
    ]
    untimed = msgspec.structs.replace(FAST, geomean_speedup=None, geomean_interval=None)
    (found,) = broken(candidate(untimed), min_speedup=1)
    assert found.line.startswith(f"{FILE}: min-speedup: unknown on cuda") and found.exit is Exit.HARNESS


def test_without_times_a_speedup_is_left_out_and_said():
    outcome = decide([candidate(UNTIMED)], Config(min_speedup=2))
    assert outcome.passed
    assert [remark.line for remark in outcome.remarks] == [
        f"{FILE}: min-speedup left out: the emulator gives verdicts, never times."
    ]


KERNELS = (KernelResources("lean", 40, 0, 0, 0), KernelResources("rich<float>", 168, 1024, 8, 16))


def test_kernels_are_held_to_what_a_thread_may_need_on_each_architecture():
    compiled = (Compiled("sm_80", KERNELS[:1]), Compiled("sm_120", KERNELS))
    assert lines(candidate(UNTIMED, compiled=compiled), max_spills=23, max_registers=160) == [
        f"{FILE}: max-spills: rich<float> spills 24 bytes on sm_120; asked for: 23 bytes",
        f"{FILE}: max-registers: rich<float> needs 168 on sm_120; asked for: 160",
    ]
    assert lines(candidate(UNTIMED, compiled=compiled), max_spills=24, max_registers=168) == []


def test_the_build_for_a_gpu_counts_as_compiled():
    (found,) = broken(candidate(FAST), max_spills=0)
    assert found.line == f"{FILE}: max-spills: spilling spills 40 bytes on cuda; asked for: 0 bytes"


def test_kernels_that_were_compiled_for_nothing_are_left_out_and_said():
    outcome = decide([candidate(UNTIMED, needs_check=True)], Config(max_spills=0, max_registers=64))
    assert outcome.passed
    assert "max-spills and max-registers left out" in outcome.remarks[0].line


def test_a_compiler_that_refuses_an_architecture_rejects():
    (found,) = broken(candidate(UNTIMED, compiled=(Compiled("sm_80", error="mine.py:3: no such instruction"),)))
    assert found.line == f"{FILE}: compile-for: refused: mine.py:3: no such instruction; asked for: sm_80"
    assert found.exit is Exit.REJECTED


ALARM = Slower("headline", Kind.CAPTURED, Speedup(ratio=0.95, interval=(0.94, 0.96)), noise=0.012)


def test_a_case_that_is_slower_than_the_best_is_named_with_its_noise():
    one = candidate(FAST, slower=(ALARM,), best="best, source 0123456789, stored 2026-01-01")
    (found,) = broken(one)
    assert found.line == (
        f"{FILE}: no-slower-than-best: 'headline', captured is 5.3% slower [4.2%, 6.4%] than best, source 0123456789, "
        "stored 2026-01-01; asked for: 1.2%, the case's own noise"
    )
    assert found.exit is Exit.TOO_SLOW
    assert broken(one, no_slower_than_best="off") == ()


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


PROBLEM = """
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


CASES = [dict(name="small", init=[], shapes=[(4, 64)], timed=True), dict(name="odd", init=[], shapes=[(3, 33)])]
"""

BEST = b"class ModelNew: ..."


@pytest.fixture
def repository(tmp_path):
    for name, text in {"problems/tiny.py": PROBLEM, "submissions/tiny/mine.py": "import torch.cuda\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


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


# ---------------------------------------------------------------------- what a change touches


def git(folder, *words):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder, *words):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change", *words)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def history(repository):
    (repository / "submissions/tiny/other.py").write_text("ALSO_FOR = ['second']\n")
    (repository / "problems/second.py").write_text(PROBLEM)
    git(repository, "init", "-q", "-b", "main")
    commit(repository)
    return repository


def names(folder, since="HEAD"):
    targets = find_targets([], Config(), folder)
    changed = changed_since(since, folder)
    return [f"{t.submission.name} on {t.problem.stem}" for t in touched(targets, changed, folder / "kernelgate.toml")]


def test_only_what_differs_is_judged(history):
    assert names(history) == []
    (history / "README.md").write_text("words")
    assert names(history) == []
    (history / "submissions/tiny/mine.py").write_text("import torch\n")
    assert names(history) == ["mine on tiny"]
    commit(history)
    assert (names(history), names(history, "HEAD~1")) == ([], ["mine on tiny"])


def test_all_that_depends_on_a_changed_problem_is_judged(history):
    (history / "problems/second.py").write_text(PROBLEM + "\n")
    assert names(history) == ["other on second"]
    (history / "problems/tiny.py").write_text(PROBLEM + "\n")
    assert names(history) == ["mine on tiny", "other on tiny", "other on second"]


def test_a_new_file_counts_before_git_knows_it_and_a_removed_one_does_not(history):
    (history / "submissions/tiny/new one.py").write_text("import torch\n")
    (history / "submissions/tiny/mine.py").unlink()
    assert names(history) == ["new one on tiny"]


def test_other_rules_touch_all(history):
    (history / "kernelgate.toml").write_text("max-spills = 0\n")
    assert len(names(history)) == 3


def remarks(folder):
    """Of a gate on what differs from HEAD: the files, and the sentences."""
    configured = folder / "kernelgate.toml"
    changed = changed_since("HEAD", folder)
    targets = touched(find_targets([], Config(), folder), changed, configured)
    said = moved_measures(targets, changed, configured)
    return [(os.path.basename(remark.file), remark.text.partition(" decides ")[2].partition(".")[0]) for remark in said]


def test_a_change_that_moves_its_own_measure_is_told_to_whoever_merges_it(history):
    (history / "submissions/tiny/mine.py").write_text("import torch\n")
    assert remarks(history) == []
    (history / "problems/second.py").write_text(PROBLEM + "\n")
    assert remarks(history) == [("second.py", "what is right")]
    (history / "kernelgate.toml").write_text("max-spills = 0\n")
    assert remarks(history) == [("second.py", "what is right"), ("kernelgate.toml", "the rules")]


def test_a_problem_in_place_of_a_shipped_one_is_said(history):
    shutil.copy(ROOT / "problems/rmsnorm.py", history / "problems")
    (history / "submissions/rmsnorm").mkdir()
    (history / "submissions/rmsnorm/mine.py").write_text("import torch\n")
    assert in_place_of_shipped(find_targets([], Config(), history)) == []
    with open(history / "problems/rmsnorm.py", "a") as problem:
        problem.write("ATOL = 1.0\n")
    (remark,) = in_place_of_shipped(find_targets([], Config(), history))
    assert "differs from the rmsnorm that ships" in remark.text


@pytest.mark.parametrize("ignored", ["none", "all"])
def test_a_submission_in_a_submodule_is_judged_when_the_submodule_moves(history, tmp_path, ignored):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "far.py").write_text("import torch\n")
    git(theirs, "init", "-q", "-b", "main")
    commit(theirs)
    git(history, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(theirs), "submissions/second")
    git(history, "config", "-f", ".gitmodules", "submodule.submissions/second.ignore", ignored)
    commit(history)
    assert names(history) == []
    (history / "submissions/second/far.py").write_text("import torch, math\n")
    assert names(history) == ["far on second"]
    commit(history / "submissions/second")
    assert names(history) == ["far on second"]
    git(history, "add", "-f", "submissions/second")
    git(history, "commit", "-q", "-m", "moved")
    assert names(history, "HEAD~1") == ["far on second"]


def test_a_submission_that_is_a_link_is_judged_when_what_it_points_to_changes(history):
    (history / "kernels/tiny").mkdir(parents=True)
    (history / "kernels/tiny/shared.py").write_text("import torch\n")
    (history / "submissions/tiny/link.py").symlink_to("../../kernels/tiny/shared.py")
    commit(history)
    assert names(history) == []
    (history / "kernels/tiny/shared.py").write_text("import torch, math\n")
    assert names(history) == ["link on tiny"]


def test_a_branch_is_compared_from_where_it_parted(history):
    git(history, "checkout", "-q", "-b", "branch")
    (history / "submissions/tiny/mine.py").write_text("import torch\n")
    commit(history)
    git(history, "checkout", "-q", "main")
    (history / "submissions/tiny/other.py").write_text("import torch\n")
    commit(history)
    git(history, "checkout", "-q", "branch")
    assert names(history, "main") == ["mine on tiny"]


@pytest.mark.parametrize("ref", ["no-such-ref", "--output=x", "HEAD:kernelgate.toml"])
def test_a_commit_that_is_not_there_is_said_and_no_checkout_is_blamed(history, ref):
    with pytest.raises(UsageError, match=f"there is no commit or branch '{ref}' in ") as raised:
        changed_since(ref, history)
    assert "shallow" not in str(raised.value)


def test_a_shallow_checkout_is_said_with_what_helps(history, tmp_path):
    commit(history, "--allow-empty")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{history}", "shallow")
    with pytest.raises(UsageError, match=r"no commit or branch 'HEAD~1' in .* shallow checkout, .* fetch-depth: 0"):
        changed_since("HEAD~1", tmp_path / "shallow")


def test_branches_without_a_commit_in_common_are_what_git_says(history):
    git(history, "checkout", "-q", "--orphan", "apart")
    commit(history, "-m", "apart")  # else the same commit, if in the same second
    with pytest.raises(UsageError, match=r"--since: git merge-base in .* says: exit code 1\.$"):
        changed_since("main", history)


def test_listed_problems_leave_out_others_and_a_file_for_none_is_refused(history):
    assert [t.problem.stem for t in find_targets([], Config(problems=("second",)), history)] == ["second"]
    with pytest.raises(UsageError, match="problems lists 'third', and there is no file"):
        find_targets([], Config(problems=("third",)), history)
    (history / "submissions/stray").mkdir()
    (history / "submissions/stray/x.py").write_text("import torch\n")
    with pytest.raises(UsageError, match=r"Which problem is .*x\.py for\?"):
        find_targets([], Config(), history)


def test_what_is_passed_over_is_said(history):
    only = Config(problems=("second",))
    assert passed_over([], Config(), history) == []
    for name in "abcd":
        (history / f"submissions/tiny/{name}.py").write_text("import torch\n")
    one, folder = history / "submissions/tiny/mine.py", history / "submissions"
    one.write_text("ALSO_FOR = ['third']\n")
    assert [remark.line for remark in passed_over([one, folder], only, history)] == [
        f"{one} was passed over: it is for third, tiny, and problems lists second.",
        f"{folder}/tiny/a.py, {folder}/tiny/b.py, {folder}/tiny/c.py and 1 more were passed over: they are for tiny, "
        "and problems lists second.",
    ]


def test_a_folder_that_no_problem_is_called_like_is_said(history):
    (history / "submissions/many").mkdir()
    (history / "submissions/many/x.py").write_text("ALSO_FOR = ['second', 'tiny']\n")
    (remark,) = without_folders_problem(find_targets([], Config(), history), Config())
    assert remark.line == (
        f"{history}/submissions/many/x.py: No problem is named like its folder, 'many'; it is judged on second, tiny "
        "alone, as its ALSO_FOR says."
    )
    chosen = Config(problems=("second",))
    assert without_folders_problem(find_targets([], chosen, history), chosen) == []


# ---------------------------------------------------------------------- compilers

NVCC = """#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do case $word in -arch=*) arch=${{word#-arch=}};; esac; done
echo "ptxas info    : Compiling entry function '_Z5twicePKfPfi' for '$arch'"
echo "    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads"
echo "ptxas info    : Used 42 registers, used 1 barriers, 128 bytes smem"
"""


@pytest.fixture
def nvcc(tmp_path):
    path = tmp_path / "nvcc"
    path.write_text(NVCC.format(log=tmp_path / "log"))
    path.chmod(0o755)
    return path


def test_each_kernel_has_a_row_for_each_architecture(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    flags = ("-O3", "--use_fast_math", "-arch=sm_70", "-ccbin=/tmp/evil")
    source = SourceText("int a;", "x.py", 3)
    extension = compiling.Extension(name="x", cpp_sources=(), cuda_sources=(source,), extra_cuda_cflags=flags)
    renamed = replace(extension, cuda_sources=(replace(source, file="y.py"),))
    built = {"one": extension, "two": extension, "three": renamed}  # for two versions of a device, and as another file
    for folder, of in built.items():
        kept = compiling.build_cache("a" * 64) / folder / compiling.SOURCES
        kept.parent.mkdir(parents=True)
        kept.write_bytes(msgspec.json.encode(of))
    found = dict(compiling.compile_for(nvcc, "a" * 64, ["sm_80", "sm_120"]))
    assert list(found) == ["sm_80", "sm_120"]
    assert [(k.registers, k.shared_bytes, k.spill_store_bytes + k.spill_load_bytes)
            for kernels in found.values() for k in kernels.kernels] == [(42, 128, 12)] * 2  # fmt: skip
    said = (tmp_path / "log").read_text()
    assert "-O3 --use_fast_math" in said and "-arch=sm_80" in said
    assert "sm_70" not in said and "evil" not in said
    compiled = tuple(Compiled(name, kernels.kernels) for name, kernels in found.items())
    page = Console(width=200, file=io.StringIO())
    print_outcome(page, decide([candidate(UNTIMED, compiled=compiled)], Config()), quiet=False)
    assert re.search(r"sm_120 +42 +12 +128", page.file.getvalue())


def kept_build(extension):
    """As a submission's process may have left it: nobody knows that `load_inline` was given this."""
    path = compiling.build_cache("a" * 64) / "one" / compiling.SOURCES
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(extension))


@pytest.mark.parametrize("line", ['#include "/etc/hostname"', '#include "../../secret"', "#include NAME", "%: embed X"])
def test_a_build_that_a_submission_made_up_reads_no_file_of_the_runners(line, nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    kept_build(compiling.Extension(name="x", cpp_sources=(), cuda_sources=(SourceText(f"int a;\n{line}\n", "", 0),)))
    ((_, said),) = compiling.compile_for(nvcc, "a" * 64, ["sm_90"])
    assert said.error == f"`{line}` may read a file beside the submission, which is one file."
    assert not (tmp_path / "log").exists()


def test_nothing_is_left_of_a_compiler_that_takes_too_long(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "TIMEOUT_S", 1)
    slow = tmp_path / "nvcc"
    slow.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path / 'child'}\nsleep 600\n")
    slow.chmod(0o755)
    kept_build(compiling.Extension(name="x", cpp_sources=(), cuda_sources=(SourceText("int a;", "", 0),)))
    ((_, said),) = compiling.compile_for(slow, "a" * 64, ["sm_90"])
    assert said.error == "The compiler did not finish within 1 s."
    child = int((tmp_path / "child").read_text())
    _, alive = psutil.wait_procs([p for p in psutil.process_iter() if p.pid == child], timeout=20)
    assert not [p for p in alive if is_alive(p)]


@pytest.mark.parametrize(
    "flag",
    ["-ccbin=sh", "--compiler-bindir=sh", "-o/tmp/x", "--output-file=x", "-Xcompiler", "--options-file=x",
     "-include=/etc/passwd", "-DX='$(sh)'", "--run", "-MF", "-dryrun", "-std=c++14"],
)  # fmt: skip
def test_a_submissions_flags_start_and_write_nothing(flag):
    assert compiling.kept_flags([flag, "-DX=1", "-O2", "--maxrregcount=64"]) == ["-DX=1", "-O2", "--maxrregcount=64"]


@pytest.mark.skipif(compiling.find_nvcc() is None, reason="there is no nvcc here")
def test_nvcc_itself_says_what_a_kernel_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    text = """__global__ void twice(float* y) {
        __shared__ float last[32];
        last[threadIdx.x] = y[0];
        __syncthreads();
        y[threadIdx.x] = last[31 - threadIdx.x];
    }"""
    for name, source in (("a", text), ("b", "\n__global__ void wrong() { z = 1; }")):
        kept = compiling.build_cache(name * 64) / "one" / compiling.SOURCES
        kept.parent.mkdir(parents=True)
        located = SourceText(source, "mine.py", 7)
        plain = compiling.Extension(name="x", cpp_sources=(), cuda_sources=(located,), no_implicit_headers=True)
        kept.write_bytes(msgspec.json.encode(plain))
    ((_, right),) = compiling.compile_for(compiling.find_nvcc(), "a" * 64, ["sm_90"])
    ((_, wrong),) = compiling.compile_for(compiling.find_nvcc(), "b" * 64, ["sm_90"])
    assert [(k.kernel, k.shared_bytes, k.spill_store_bytes) for k in right.kernels] == [("twice", 128, 0)]
    assert right.kernels[0].registers > 0
    assert (wrong.kernels, wrong.error) == ((), 'mine.py:8: identifier "z" is undefined')


def test_nvcc_of_pypis_packages_is_found(tmp_path, monkeypatch):
    package = tmp_path / "nvidia" / "cu13" / "bin"
    package.mkdir(parents=True)
    (package / "nvcc").write_text("#!/bin/sh\n")
    (package / "nvcc").chmod(0o755)
    monkeypatch.setattr(compiling, "_packages", lambda: [str(package.parent)])
    monkeypatch.setattr(compiling, "USUAL_HOME", str(tmp_path / "none"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert compiling.find_nvcc() == package / "nvcc"
    monkeypatch.setattr(compiling, "_packages", list)
    assert compiling.find_nvcc() is None


# ---------------------------------------------------------------------- a repository of its own

CUDA = '''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    __shared__ float last[1];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""

extension = load_inline(
    name="tiny", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
'''

# What is put in place of what, and the reason and the line that CI must show.
FAULTS = {
    "race": ("    if (i < n)", "    last[0] = i;\n    if (i < n)", "data_race"),
    "beyond": ("if (i < n) y[i]", "y[i]", "out_of_bounds"),
    "broken": ("2 * x[i]", "2 * z[i]", "build_failed"),
    "double": ("return extension.run(x)", "return extension.run(x).double()", "wrong_output"),
}


def faulty(name):
    before, after, _ = FAULTS[name]
    assert CUDA.count(before) == 1
    return CUDA.replace(before, after)


def line_of_fault(name):
    """Where the changed text stands."""
    text = faulty(name)
    return text.count("\n", 0, text.index(FAULTS[name][1])) + 1


def eval_gate(folder, *words, code, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    given = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment
    done = forked_eval(["gate", "--db", folder / "results.db", *words], kept | given, folder=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A repository with a right kernel, a branch with wrong ones, and the reports of a gate on it."""
    folder = tmp_path_factory.mktemp("toy")
    files = {"problems/tiny.py": PROBLEM, "submissions/tiny/good.py": CUDA, "kernelgate.toml": "max-registers = 64\n"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".gitignore").write_text("results.db*\nreports\n")
    (folder / "reports").mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    for name in FAULTS:
        (folder / "submissions/tiny" / f"{name}.py").write_text(faulty(name))
    return folder


@pytest.fixture(scope="module")
def reports(toy):
    """Of one gate on what differs from main, as a workflow asks for them."""
    words = [word for name in ("junit=j.xml", "sarif=s.json", "comment=c.md")
             for word in ("--report", name.replace("=", "=reports/"))]  # fmt: skip
    summary = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(toy / "reports/summary.md"),
        "GITHUB_WORKSPACE": str(toy),
    }
    done = eval_gate(toy, "--since", "main", "--report", "github=-", *words, code=1, **summary)
    return done, toy / "reports"


def test_a_right_kernel_passes_and_what_was_not_looked_at_is_said(toy):
    done = eval_gate(toy, "submissions/tiny/good.py", code=0)
    assert "ACCEPTED  good" in done.stdout
    assert (
        "note: submissions/tiny/good.py: max-registers left out: its kernels were compiled for no GPU." in done.stdout
    )
    assert done.stdout.splitlines()[-1] == "gate: passed: 1 of 1 judged, no rule broken."


def test_wrong_kernels_fail_with_a_line_each(reports):
    done, _ = reports
    found = [line for line in done.stderr.splitlines() if line.startswith("BROKEN")]
    assert len(found) == len(FAULTS)
    for name, (*_, reason) in FAULTS.items():
        assert any(f"submissions/tiny/{name}.py: verdict: rejected on emulator: {reason}: " in line for line in found)
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("::")]
    assert said[-1] == "gate: failed: 4 of 4 judged, 4 rules broken."


@pytest.mark.parametrize("name", FAULTS)
def test_annotations_stand_at_the_faulty_line(reports, name):
    place = f"file=submissions/tiny/{name}.py,line={line_of_fault(name)},"
    (line,) = [line for line in reports[0].stdout.splitlines() if f"/{name}.py,line=" in line]
    assert line.startswith(f"::error {place}title=kernelgate%3A {FAULTS[name][2]}::"), line


@pytest.mark.parametrize("name", FAULTS)
def test_sarif_stands_at_the_faulty_line(reports, name):
    (run,) = json.loads((reports[1] / "s.json").read_text())["runs"]
    (found,) = [r for r in run["results"] if f"tiny/{name}.py" in json.dumps(r["locations"])]
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": f"submissions/tiny/{name}.py", "uriBaseId": "%SRCROOT%"}
    assert (place["region"]["startLine"], found["ruleId"]) == (line_of_fault(name), FAULTS[name][2])


def test_the_steps_summary_is_the_comment(reports):
    comment = (reports[1] / "c.md").read_text()
    assert (reports[1] / "summary.md").read_text() == comment + "\n"
    assert comment.startswith("<!-- kernelgate -->\n### kernelgate: failed: 4 of 4 judged, 4 rules broken.\n")


def test_junit_has_a_test_for_each_case(reports):
    root = ElementTree.parse(reports[1] / "j.xml").getroot()
    tests = {(t.get("classname"), t.get("name")): t for t in root.iter("testcase")}
    assert tests["tiny.emulator.beyond", "small"].find("failure") is None
    assert tests["tiny.emulator.beyond", "odd"].find("failure").get("type") == "out_of_bounds"
    assert tests["tiny.emulator.broken", "verdict"].find("failure").get("type") == "build_failed"


def test_a_submissions_words_command_no_runner(toy, tmp_path):
    path = loud(tmp_path)
    done = eval_gate(toy, str(path), "--no-require-check", code=1, GITHUB_ACTIONS="true")
    assert [commands(stream) for stream in (done.stdout, done.stderr)] == [[], []]
    assert "::error file=x::forged" in done.stdout


def test_where_nothing_that_is_judged_differs_the_gate_is_open(toy):
    done = eval_gate(toy, "submissions/tiny/good.py", "--since", "main", code=0)
    assert done.stdout.splitlines() == [
        "note: nothing that is judged differs since main.", "gate: passed: 0 of 0 judged, no rule broken.",
    ]  # fmt: skip


def test_a_file_for_a_problem_that_is_not_listed_is_named(toy):
    done = eval_gate(toy, "submissions/tiny/good.py", "--problems", "layernorm", code=5)
    said = "note: submissions/tiny/good.py was passed over: it is for tiny, and problems lists layernorm."
    assert said in done.stdout.splitlines()


def test_a_reference_that_nothing_can_be_judged_with_costs_other_problems_nothing(toy, tmp_path):
    for name, text in {"tiny": PROBLEM, "drawn": PROBLEM.replace("x * 2", "nn.functional.dropout(x, 0.5, True)")}.items():
        (tmp_path / f"problems/{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"problems/{name}.py").write_text(text)
        (tmp_path / f"submissions/{name}").mkdir(parents=True)
        (tmp_path / f"submissions/{name}/good.py").write_text(CUDA)
    done = eval_gate(tmp_path, "--no-store", code=3)
    assert "ACCEPTED  good" in done.stdout
    (broken,) = [line for line in done.stdout.splitlines() if line.startswith("BROKEN")]
    assert "submissions/drawn/good.py: devices: no verdict: " in broken and "draws random numbers" in broken
    assert done.stdout.splitlines()[-1] == "gate: failed: 1 of 2 judged, 1 rule broken."


def test_what_is_passed_over_is_said_where_nothing_else_differs(history):
    (history / "submissions/tiny/new.py").write_text("import torch\n")
    done = eval_gate(history, "--since", "main", "--problems", "second", code=0)
    assert "note: nothing that is judged differs since main." in done.stdout
    assert "submissions/tiny/new.py were passed over: they are for tiny, and problems lists second." in done.stdout


def test_a_gate_that_finds_no_submission_is_closed(toy, tmp_path):
    (tmp_path / "submissions").mkdir()
    done = eval_gate(tmp_path, code=5)
    assert "BROKEN  eval.py gate: results: nothing was judged; asked for: a verdict at least" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min-speedup", "-1"], "eval.py: The command line: min-speedup: "),
        (["--devices", "gpu"], "eval.py: The command line: each of devices is one of cuda, cpu, emulator, and 'gpu'"),
        (["--since", "nowhere"], "eval.py: --since: there is no commit or branch 'nowhere' in "),
        (["--config", "none.toml"], "eval.py: none.toml cannot be read: No such file or directory."),
        (["--report", "junit=no/such/folder.xml"], "there is no folder"),
        (["nothing.py"], "eval.py: There is no file or folder nothing.py."),
    ],
)
def test_what_cannot_be_is_a_sentence(toy, words, said):
    done = eval_gate(toy, *words, code=2)
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_device_that_is_not_here_closes_the_gate(toy):
    if choose_device(None, read_submission(toy / "submissions/tiny/good.py")) == "cuda":
        pytest.skip("there is a GPU here")
    done = eval_gate(toy, "submissions/tiny/good.py", "--devices", "cuda", code=3)
    assert "BROKEN  submissions/tiny/good.py: devices: no verdict: " in done.stdout
    assert "ACCEPTED  good" in done.stdout  # by the detectors, which are asked for as well
