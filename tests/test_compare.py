"""Whether two evaluations differ: the statistics, what real runs say, which two are meant, and how it is shown."""

import difflib
import hashlib
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from harness import notes
from harness.comparison import Difference, Side, compare, two_runs
from harness.comparison.floors import BETWEEN_RUNS
from harness.errors import UsageError
from harness.exits import Exit
from harness.reasons import Reason
from harness.report.comparison import difference, print_comparison, print_sources
from harness.report.formats import json as results_json
from harness.store import open_store
from harness.timed import Kind
from harness.verbs.compare import Asked, show
from harness.verbs.shared.sides import Wanted
from harness.verdict import SCHEMA, Accepted, Baseline, CasePassed, CaseTiming, Errored, Rejected, Results
from tests.helpers import ROOT
from tests.sample_results import passed, ratio_of
from tests.sites import KEPT

RESULTS = ROOT / "results"
H200 = RESULTS / "h200"
GOLD = ROOT / "tests" / "gold"

FLOOR = math.log1p(BETWEEN_RUNS)


def rounds(rng, median_us=150.0, scatter=0.01, count=9):
    """Times of rounds, with an outlier now and then as a shared host makes them."""
    outliers = np.where(rng.random(count) < 0.02, 1 + rng.random(count), 1.0)
    return median_us * np.exp(rng.normal(0, scatter, count)) * outliers


def shifts(rng, slower=1.0, tests=8, between_runs=0.003, **more):
    """Of as many cases, B's calls taking `slower` times as long, with what a run differs from the next."""
    found = []
    for _ in range(tests):
        a, b = (math.exp(rng.normal(0, between_runs)) * rounds(rng, **more) for _ in "ab")
        found.append(two_runs.shift(np.log(a), np.log(b * slower), FLOOR))
    return found


def share_of(condition, count=200):
    """How often `condition(rng)` holds, with `count` seeds."""
    return sum(condition(np.random.default_rng(seed)) for seed in range(count)) / count


# ---------------------------------------------------------------------- statistics


def test_what_is_unchanged_is_called_different_in_one_comparison_of_twenty_at_the_most():
    assert share_of(lambda rng: any(two_runs.which_differ(shifts(rng)))) <= 0.05


def test_the_floor_allows_what_runs_differ_by_and_without_it_they_would_be_told_apart():
    """Rounds that scatter by a thousandth, in runs that are 0.8% apart: each of them is a real difference, of runs."""
    a, b = ([150 * ratio * (1 + 0.0005 * step) for step in range(-4, 5)] for ratio in (1.0, 1.008))
    found = [two_runs.shift(np.log(a), np.log(b), floor) for floor in (FLOOR, 0.0)]
    assert [two_runs.which_differ([shift]) for shift in found] == [[False], [True]]


def test_a_copy_slowed_by_5_percent_is_found():
    def found(rng):
        one, *others = shifts(rng, 1.05)
        return two_runs.which_differ([one, *others])[0] and one.log < 0

    assert share_of(found) >= 0.95


def test_noise_hides_it_and_the_smallest_difference_says_so():
    noisy = shifts(np.random.default_rng(0), 1.05, scatter=0.1)
    assert not any(two_runs.which_differ(noisy))
    assert all(shift.smallest_seen(len(noisy)) > 0.1 for shift in noisy)


def test_the_smallest_difference_is_seen_four_times_of_five():
    expected = np.median([s.smallest_seen(1) for seed in range(50) for s in shifts(np.random.default_rng(seed))])

    def found(rng):
        (one,) = shifts(rng, math.exp(expected), tests=1, between_runs=0.0)
        return two_runs.which_differ([one])[0]

    assert 0.7 <= share_of(found) <= 0.9


def test_a_shift_is_what_scipys_test_against_the_floor_says():
    rng = np.random.default_rng(5)
    a, b = np.log(rounds(rng, 155.0)), np.log(rounds(rng, 150.0, scatter=0.02, count=14))
    found = two_runs.shift(a, b, FLOOR)
    scipys = stats.ttest_ind(a - FLOOR, b, equal_var=False, trim=0.2, alternative="greater")
    assert found.p == pytest.approx(2 * scipys.pvalue)
    assert found.interval == pytest.approx(stats.ttest_ind(a, b, equal_var=False, trim=0.2).confidence_interval(0.95))


def test_holms_correction_stops_at_the_first_that_does_not_hold():
    """0.005 and 0.01 are below 5%/4 and 5%/3; 0.03 is not below 5%/2, so that 0.04, which is below 5%, is not told."""
    found = [two_runs.Shift(float(stats.t.isf(p / 2, 16)), 1.0, 16.0, 0.0) for p in (0.01, 0.04, 0.03, 0.005)]
    assert two_runs.which_differ(found) == [True, False, False, True]


def test_rounds_that_are_all_equal_are_told_apart_where_they_are_beyond_the_floor():
    found = [two_runs.shift([5.0] * 6, [5.0 + log] * 6, FLOOR) for log in (0.0, FLOOR / 2, 2 * FLOOR)]
    assert two_runs.which_differ(found) == [False, False, True]
    with pytest.raises(ValueError, match="3 rounds give no variance"):
        two_runs.shift([5.0] * 3, [5.0] * 9, FLOOR)


# ---------------------------------------------------------------------- evaluations


def timed(samples_us, eager_us=None, issue_us=10.0, **more):
    """Of rounds of a submission and of eager."""

    def of(samples):
        return dict(median_us=float(np.median(samples)), interval_us=(float(min(samples)), float(max(samples))),
                    samples_us=[float(s) for s in samples], calls_per_round=32, fixed_us=250.0)  # fmt: skip

    eager = {} if eager_us is None else {"eager": Baseline(**of(eager_us), issue_us=10.0, speedup=ratio_of(2.0, 0.1))}
    return CaseTiming(**of(samples_us), issue_us=issue_us, floor_us=50.0, floor_fraction=0.5, bytes_min=1 << 20,
                      launch_bound=False, baselines=eager, **more)  # fmt: skip


def common(name, cases=(), device="cuda", **more):
    source = hashlib.sha256(name.encode()).hexdigest()
    return dict(problem="layernorm", problem_sha256="p" * 64, submission=name, source_sha256=source, device=device,
                seed=1, cases=list(cases), chosen_cases="all") | more  # fmt: skip


def accepted(name, *cases, **more):
    return Accepted(**common(name, cases, **more))


def side(evaluation):
    return Side(found_in="here", problem=evaluation.problem, submission=evaluation.submission, seed=1, date="",
                source_sha256=evaluation.source_sha256, device=evaluation.device, effort="usual",
                status="accepted", why_untimed="")  # fmt: skip


def compared(a, b):
    return compare(a, b, (side(a), side(b)))


def one_row(a, b, **more):
    """The row of a case of which `a` and `b` are the timings."""
    evaluations = [accepted(n, passed("headline", "8×8", timing=t), **more) for n, t in {"a": a, "b": b}.items()]
    (row,) = compared(*evaluations).rows
    return row


def drifting(rng, slow=1.0):
    """Rounds of a submission and of eager on a machine that is slower for both."""
    return slow * rounds(rng), slow * rounds(rng, 300.0)


def test_a_machine_that_is_slower_for_both_cancels():
    rng = np.random.default_rng(1)
    a, b = drifting(rng), drifting(rng, slow=1.2)
    row = one_row(timed(*a), timed(*b))
    assert (row.difference, row.over_eager) == (Difference.NONE, True)
    alone = one_row(timed(a[0]), timed(b[0]))
    assert (alone.difference, alone.over_eager) == (Difference.SLOWER, False)


def test_an_eager_that_is_launch_bound_is_no_yardstick():
    rng = np.random.default_rng(2)
    a, b = timed(rounds(rng), rounds(rng, 11.0)), timed(rounds(rng), rounds(rng, 22.0))
    row = one_row(a, b)
    assert (row.difference, row.over_eager, row.launch_bound) == (Difference.NONE, False, False)


def test_what_is_launch_bound_must_take_twice_as_long_and_its_captured_time_need_not():
    rng = np.random.default_rng(3)

    def launched(us):
        captured = timed(rounds(rng, us / 2), issue_us=us)
        return accepted(f"{us} µs", passed("x", "8", timing=timed(rounds(rng, us), issue_us=us, captured=captured)))

    called, captured = compared(launched(10), launched(16)).rows
    assert (called.difference, called.launch_bound, called.kind) == (Difference.NONE, True, Kind.CALLED)
    assert (captured.difference, captured.launch_bound, captured.kind) == (Difference.SLOWER, False, Kind.CAPTURED)
    assert compared(launched(10), launched(25)).rows[0].difference is Difference.SLOWER


def test_a_microsecond_is_no_difference_of_short_calls():
    rng = np.random.default_rng(9)
    assert one_row(timed(rounds(rng, 20)), timed(rounds(rng, 20.8))).difference is Difference.NONE
    assert one_row(timed(rounds(rng, 20)), timed(rounds(rng, 23))).difference is Difference.SLOWER


def test_parts_of_a_training_step_have_rows_of_their_own_and_only_whole_calls_a_mean():
    rng = np.random.default_rng(4)

    def step(slow):
        parts = {"forward": timed(rounds(rng)), "backward": timed(rounds(rng) * slow)}
        return accepted(f"x{slow}", passed("step", "8×8", timing=timed(rounds(rng)), parts=parts))

    found = compared(step(1.0), step(1.3))
    assert {row.name: row.difference.value for row in found.rows} == {
        "step": "no different", "step, forward": "no different", "step, backward": "slower",
    }  # fmt: skip
    assert [(mean.kind, mean.cases, mean.difference) for mean in found.means] == [("called", 1, Difference.NONE)]


@pytest.mark.parametrize(
    "note",
    [
        notes.TooNoisyToRank(case="headline", reaches={"submission": 0.4}),
        notes.BusyMachine(case="headline", share=0.4),
        notes.Disturbed(case="headline", discarded=5),
        notes.FasterThanMemory(case="headline"),
    ],
    ids=lambda note: type(note).__name__,
)
def test_times_that_the_judge_doubts_are_shown_and_not_tested(note):
    rng = np.random.default_rng(5)
    a, b = timed(rounds(rng)), timed(2 * rounds(rng))
    assert one_row(a, b).difference is Difference.SLOWER
    row = one_row(a, b, notes=[note])
    assert (row.difference, row.smallest_seen, bool(row.doubt)) == (Difference.NONE, None, True)
    assert row.speed.ratio == pytest.approx(0.5, rel=0.05)


def test_a_note_on_something_else_raises_no_doubt():
    rng = np.random.default_rng(6)
    others = [notes.BusyMachine(case="other", share=0.4), notes.Disturbed(case="headline", captured=True)]
    assert one_row(timed(rounds(rng)), timed(2 * rounds(rng)), notes=others).doubt == ""


def test_on_a_cpu_a_difference_must_be_larger():
    rng = np.random.default_rng(7)
    a, b, c = timed(rounds(rng)), timed(1.07 * rounds(rng)), timed(1.3 * rounds(rng))
    assert [one_row(a, x).difference for x in (b, c)] == ["slower", "slower"]
    assert [one_row(a, x, device="cpu").difference for x in (b, c)] == ["no different", "slower"]


def test_what_was_timed_in_one_alone_is_named():
    rng = np.random.default_rng(8)
    both, more = passed("both", "8×8", timing=timed(rounds(rng))), passed("more", "8×8", timing=timed(rounds(rng)))
    found = compared(accepted("a", both, more), accepted("b", both, passed("more", "8×8")))
    assert ([row.case for row in found.rows], found.only_in_a, found.only_in_b) == (["both"], ("more",), ())


# ---------------------------------------------------------------------- what real runs say


def of_baseline(evaluation, name):
    """A run of a baseline as if it were a submission, beside the eager of its rounds."""
    cases = []
    for case in evaluation.cases:
        timings = {part: as_submission(timing, name) for part, timing in parts_of(case).items()}
        cases.append(passed(case.name, case.shape, timing=timings.pop("", None), parts=timings))
    return accepted(name, *(case for case in cases if case.timing))


def parts_of(case):
    return {"": case.timing, **case.parts} if isinstance(case, CasePassed) and case.timing else {}


def as_submission(timing, name):
    if timing is None or name not in timing.baselines or "eager" not in timing.baselines:
        return None
    baseline, eager = timing.baselines[name], timing.baselines["eager"]
    fields = ("median_us", "interval_us", "samples_us", "calls_per_round", "fixed_us", "issue_us")
    return CaseTiming(**{field: getattr(baseline, field) for field in fields}, floor_us=1.0, floor_fraction=1.0,
                      bytes_min=1, launch_bound=False, baselines={} if name == "eager" else {"eager": eager},
                      captured=as_submission(timing.captured, name))  # fmt: skip


def runs_of_the_same(slower=1.0, machines="h*"):
    """Comparisons of every baseline with itself, timed anew beside another submission."""
    for path in sorted(RESULTS.glob(f"{machines}/*.json")):
        if b'"schema"' not in path.read_bytes()[:64]:
            continue
        evaluations = [e for e in results_json.load(path).evaluations if e.device == "cuda"]
        for name in ("eager", "compile", "unfused", "cudnn", "liger", "quack"):
            runs = [run for e in evaluations if (run := of_baseline(e, name)).cases]
            for a, b in itertools.combinations(runs, 2):
                yield compared(a, slowed(b, slower))


def slowed(evaluation, slower):
    def of(timing):
        samples = [slower * sample for sample in timing.samples_us]
        return msgspec.structs.replace(timing, samples_us=samples, median_us=slower * timing.median_us)

    cases = [
        msgspec.structs.replace(c, timing=of(c.timing), parts={n: of(t) for n, t in c.parts.items() if t})
        for c in evaluation.cases
    ]
    return msgspec.structs.replace(evaluation, cases=cases)


def test_the_same_code_is_no_different_in_19_of_20_runs():
    found = list(runs_of_the_same())
    rows = [row for comparison in found for row in comparison.rows]
    wrong = [c for c in found if any(line.difference is not Difference.NONE for line in (*c.rows, *c.means))]
    assert len(found) > 100 and len(rows) > 1000  # docs/comparing.md says so
    assert sum(row.kind is Kind.CAPTURED for row in rows) > 50
    assert len(wrong) <= 0.05 * len(found)


def slowed_by_5_percent(machines):
    return [
        row for comparison in runs_of_the_same(1.05, machines) for row in comparison.rows
        if 100 < row.a_us < 250 and not row.launch_bound and row.kind is Kind.CALLED
    ]  # fmt: skip


def test_the_same_code_slowed_by_5_percent_is_slower_around_150_us_or_the_report_doubts_that_it_would_be_seen():
    called = [row for row in slowed_by_5_percent("h200") if not row.part]
    assert len(called) > 50
    assert sum(row.difference is Difference.SLOWER for row in called) >= 0.9 * len(called)
    # docs/comparing.md says so. What four comparisons of five would show, one may miss.
    assert all(row.smallest_seen > 0.03 for row in called if row.difference is Difference.NONE)


def test_where_two_gpus_were_timed_at_once_fewer_are_seen():
    called = [row for row in slowed_by_5_percent("h100") if not row.part]
    assert len(called) > 60
    assert 0.55 * len(called) <= sum(row.difference is Difference.SLOWER for row in called)  # docs/comparing.md says so


def of_file(path, submission):
    (found,) = [e for e in results_json.load(path).evaluations if e.submission == submission]
    return found


@pytest.mark.parametrize("name", ["speed_of_light", "rung5_split_rows"])
def test_one_submission_on_two_days_is_no_different(name):
    found = compared(of_file(H200 / "layernorm.json", name), of_file(H200 / f"same_twice_{name}.json", name))
    assert {row.case: row.difference.value for row in found.rows if row.a_us > 50} == {
        case: "no different" for case in ("headline", "8192x4096", "4096x8192", "2048x16384")
    }


def test_two_rungs_of_the_ladder_differ_as_their_speedups_do():
    found = compared(*(of_file(KEPT, n) for n in ("rung3_warp_shuffle", "rung4_vectorised_registers")))
    assert {row.difference for row in found.rows if not row.launch_bound} == {Difference.FASTER}
    assert found.means[0].speed.ratio == pytest.approx(1.58144 / 0.93185, rel=0.02)  # of their means over eager


# ---------------------------------------------------------------------- which two are meant

ENVIRONMENT = {"date": "2026-01-01T00:00:00+00:00", "judge": "aaaa", "gpu": "A GPU", "torch": "2.11", "driver": "580"}


def of_speed(name, us=150.0, seed=1, **more):
    rng = np.random.default_rng(seed)
    case = passed("headline", "8×8", timing=timed(rounds(rng, us), rounds(rng, 300.0)))
    return accepted(name, case, **more | {"seed": seed})


def rejected(name):
    return Rejected(**common(name), reason=Reason.WRONG_OUTPUT, message="Wrong at [0, 0].")


@pytest.fixture
def db(tmp_path):
    return tmp_path / "results.db"


def keep(db, *evaluations, sources=(), **changed):
    texts = {hashlib.sha256(text).hexdigest(): text for text in sources}
    with open_store(db) as store:
        store.add(evaluations, ENVIRONMENT | changed, texts)


def file_of(path, *evaluations, **changed):
    results = Results(schema=SCHEMA, environment=ENVIRONMENT | changed, evaluations=list(evaluations))
    path.write_bytes(results_json.dumps(results))
    return path


@pytest.fixture
def told(db, capsys):
    """What a comparison prints."""

    def run(a, b, exit_code=Exit.ACCEPTED, problem=None, device=None, anyway=False, json=None):
        assert show(Asked(str(a), str(b), Wanted(problem, device), db, anyway, json)) is exit_code
        return capsys.readouterr().out

    return run


def test_by_name_the_latest_on_one_board_are_compared(db, told):
    keep(db, of_speed("a", 100.0), of_speed("b"), date="2026-01-01T00:00:00+00:00")
    keep(db, of_speed("a", 150.0, 2), date="2026-01-02T00:00:00+00:00")
    keep(db, of_speed("b", 50.0, 3), date="2026-01-03T00:00:00+00:00", judge="bbbb")
    text = told("a", "b")
    assert "2026-01-02" in text and "2026-01-01" in text and "2026-01-03" not in text
    assert "no different on 1 of 1 time" in text


def test_what_has_no_times_and_errors_are_passed_over(db, told):
    keep(db, of_speed("a"), of_speed("b"))
    error = Errored(**common("b"), reason=Reason.HARNESS_ERROR, message="It broke.")
    keep(db, accepted("a", passed("headline", "8×8")), error, date="2026-01-02T00:00:00+00:00")
    assert "2026-01-02" not in told("a", "b")


def test_a_submission_with_itself_is_its_latest_against_the_one_before(db, told):
    keep(db, of_speed("a", 150.0, 1), date="2026-01-01T00:00:00+00:00")
    with pytest.raises(UsageError, match="'a' and 'a' are one evaluation"):
        told("a", "a")
    keep(db, of_speed("a", 200.0, 2), date="2026-01-02T00:00:00+00:00")
    keep(db, of_speed("a", 300.0, 3), date="2026-01-03T00:00:00+00:00")
    lines = told("a", "a").splitlines()
    assert "2026-01-02" in lines[0] and "2026-01-03" in lines[1]
    assert "slower on 1 of 1 time." in "\n".join(lines)
    assert "Both are of the same source." in lines


def test_a_source_is_named_by_its_beginning_or_by_its_file(db, told, tmp_path):
    text = b"class ModelNew: ...\n"
    sha256 = hashlib.sha256(text).hexdigest()
    keep(db, of_speed("a"), of_speed("mine", source_sha256=sha256))
    file = tmp_path / "renamed.py"
    file.write_bytes(text)
    assert sha256[:10] in told("a", sha256[:6])
    assert sha256[:10] in told("a", file)
    file.write_bytes(text + b"# changed")
    with pytest.raises(UsageError, match=r"no evaluation of .*renamed\.py as it is now"):
        told("a", file)


def test_the_beginning_of_several_sources_names_none(db, told):
    keep(db, of_speed("a"), *(of_speed(f"s{n}", source_sha256="abc" + str(n) * 61) for n in range(2)))
    with pytest.raises(UsageError, match="'abc' begins several sources: abc0000000, abc1111111"):
        told("a", "abc")


def test_a_name_on_several_problems_needs_one(db, told):
    for problem in ("layernorm", "rmsnorm"):
        keep(db, of_speed("a", problem=problem), of_speed("b", problem=problem))
    with pytest.raises(UsageError, match="are both on layernorm, rmsnorm; choose one with --problem"):
        told("a", "b")
    assert "rmsnorm · a" in told("a", "b", problem="rmsnorm")


def test_nothing_of_that_name(db, told):
    with pytest.raises(UsageError, match="'a' is no file of results, and there is no database"):
        told("a", "b")
    assert not db.exists()
    keep(db, of_speed("a"))
    with pytest.raises(UsageError, match="has no evaluation of 'nobody' on layernorm on the device cpu"):
        told("nobody", "a", problem="layernorm", device="cpu")


def test_files_need_no_database_and_a_submission_where_they_hold_several(tmp_path, db, told):
    old = file_of(tmp_path / "old.json", of_speed("a"), of_speed("b", 300.0))
    new = file_of(tmp_path / "new.json", of_speed("a", 300.0, 2), date="2026-01-02T00:00:00+00:00")
    with pytest.raises(UsageError, match=r"several submissions: a, b. Name one: .*old.json:a"):
        told(old, new)
    assert "slower on 1 of 1 time" in told(f"{old}:a", new)
    assert "no different on 1 of 1 time" in told(f"{old}:b", new)
    with pytest.raises(UsageError, match="has no evaluation of 'c'; it has a on layernorm, b on layernorm"):
        told(f"{old}:c", new)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        told(tmp_path / "none.json", new)
    assert not db.exists()


def test_results_that_do_not_say_which_judge_made_them_say_that_it_may_differ(tmp_path, told):
    files = [file_of(tmp_path / f"{name}.json", of_speed(name), judge="") for name in "ab"]
    assert "Times may differ for this alone: version of the judge: unknown on both sides." in told(*files)


def test_a_file_and_the_database_are_compared(tmp_path, db, told):
    keep(db, of_speed("a"))
    text = told("a", file_of(tmp_path / "new.json", of_speed("b", 200.0, 2)))
    assert str(db) in text and "new.json" in text


OTHER_BOARDS = {
    "judge": ({"judge": "bbbb"}, {}, "version of the judge: aaaa and bbbb"),
    "gpu": ({"gpu": "Another GPU"}, {}, "model of the device: A GPU and Another GPU"),
    "versions": ({"driver": "590"}, {}, "versions: torch 2.11, driver 580 and torch 2.11, driver 590"),
    "content": ({}, {"problem_sha256": "q" * 64}, "content of the problem's file: pppppppppp and qqqqqqqqqq"),
    "cases": ({}, {"chosen_cases": "few"}, "set of cases: all and few"),
}


@pytest.mark.parametrize("other", OTHER_BOARDS)
def test_different_boards_are_refused_or_said(db, told, other):
    environment, evaluation, words = OTHER_BOARDS[other]
    keep(db, of_speed("a"))
    keep(db, of_speed("b", 200.0, **evaluation), **environment)
    with pytest.raises(UsageError, match=f"different boards.*{re.escape(words)}.*--anyway compares them"):
        told("a", "b")
    assert f"Times may differ for this alone: {words}." in told("a", "b", anyway=True)


def test_a_rejected_side_says_so_and_has_no_times(db, told):
    keep(db, of_speed("a"), rejected("wrong"))
    text = told("a", "wrong", Exit.REJECTED)
    assert "B has no times to compare: rejected: wrong_output. Wrong at [0, 0]." in text
    assert "µs" not in text


def test_what_was_not_timed_says_so(db, told):
    keep(db, of_speed("a"), accepted("b", passed("headline", "8×8")))
    assert "B has no times to compare: it was not timed" in told("a", "b", Exit.NOTHING)


def test_the_comparison_as_json(tmp_path, db, told):
    keep(db, of_speed("a"), of_speed("b", 200.0))
    told("a", "b", json=tmp_path / "c.json")
    read = json.loads((tmp_path / "c.json").read_text())
    (row,) = read["rows"]
    assert (row["case"], row["kind"], row["difference"]) == ("headline", "called", "slower")
    assert row["speed"]["interval"][0] < row["speed"]["ratio"] < row["speed"]["interval"][1] < 1
    assert (read["a"]["submission"], read["b"]["found_in"], read["differs"]) == ("a", str(db), [])
    with pytest.raises(UsageError, match="there is no folder"):
        told("a", "b", json=tmp_path / "none" / "c.json")


def test_the_command_line(tmp_path, db):
    def run(*words):
        command = [sys.executable, str(ROOT / "eval.py"), "compare", *map(str, words), "--db", str(db)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "200"}
        )

    layernorm = KEPT
    done = run(f"{layernorm}:rung3_warp_shuffle", f"{layernorm}:rung4_vectorised_registers")
    assert (done.returncode, done.stderr) == (0, "")
    assert "faster on 7, no different on 1 of 8 times" in done.stdout
    other = run(f"{layernorm}:rung3_warp_shuffle", f"{H200 / 'rmsnorm.json'}:read_once")
    assert other.returncode == 2
    assert "different boards" in other.stderr and "problem: layernorm and rmsnorm" in other.stderr
    nobody = run("nobody", layernorm)
    assert (nobody.returncode, db.exists()) == (2, False)


# ---------------------------------------------------------------------- how it is shown


BEFORE = b"import torch\n\nTHREADS = 128\nWARPS = 4\n"
AFTER = b"import torch\n\nTHREADS = 256  # \x1b[31mred\x1b[0m\nWARPS = 4\n"


def sample():
    """Faster, slower, no different, launch-bound and in doubt; called, captured and a part."""

    def of(name, seed, times_us, *more):
        rng = np.random.default_rng(seed)
        headline, long, short = times_us
        captured = timed(rounds(rng, headline * 0.95), rounds(rng, 300.0))
        return accepted(
            name,
            passed("headline", "8×8", timing=timed(rounds(rng, headline), rounds(rng, 305.0), captured=captured)),
            passed("a case with a long name", "8×4096", timing=timed(rounds(rng, long)),
                   parts={"backward": timed(rounds(rng, long / 2))}),
            passed("32x128x768", "8×8", timing=timed(rounds(rng, short), issue_us=short)),
            passed("noisy", "8×8", timing=timed(rounds(rng, long, scatter=0.4))),
            *more, notes=[notes.TooNoisyToRank(case="noisy", reaches={"submission": 0.5})],
        )  # fmt: skip

    a = of("speed_of_light", 1, (187.0, 2730.0, 9.7))
    b = of("speed_\x1b[2Jof_light", 2, (150.0, 3000.0, 12.1), passed("more", "8", timing=timed(range(5, 15))))
    return compare(a, b, (side(a), side(b)), ["version of the judge: aaaa and bbbb"])


def shown(width, *, colored=False):
    page = io.StringIO()
    console = Console(
        file=page, width=width, force_terminal=colored, no_color=not colored, highlight=False,
        color_system="standard" if colored else None,
    )  # fmt: skip
    print_comparison(console, sample())
    print_sources(console, sample(), BEFORE, AFTER)
    return page.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("colored", [False, True], ids=["plain", "colored"])
def test_a_comparison_is_its_gold_file(width, colored):
    """What differs is saved beside the gold file, which it replaces when it is right."""
    name = f"compare_{width}{'_colored' if colored else ''}.txt"
    path, actual, text = GOLD / name, GOLD / f"{name}.actual", shown(width, colored=colored)
    expected = path.read_text() if path.exists() else ""
    if text != expected:
        actual.write_text(text)
        lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), "gold", "actual", lineterm="")
        pytest.fail(f"{name} differs; if {actual.name} is right, move it there.\n" + "\n".join(lines))


@pytest.mark.parametrize("width", [80, 120])
def test_names_and_sources_cannot_command_a_terminal(width):
    assert all(line.isprintable() for line in shown(width).splitlines())
    assert "\x1b[2J" not in shown(width, colored=True)


def test_the_diff_is_one_that_patch_can_read(tmp_path):
    before, after = b"a\nb\nc\n", b"a\nB\nc\n"
    (tmp_path / "file.py").write_bytes(before)
    diff = difference(sample(), before, after) + "\n"
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    renamed = diff.splitlines(keepends=True)
    renamed[:2] = ["--- a/file.py\n", "+++ b/file.py\n"]
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input="".join(renamed), text=True, check=True)
    assert (tmp_path / "file.py").read_bytes() == after
