"""Sources of the database judged anew: which, from what, and what is said of verdicts that moved."""

import hashlib
import re
import shlex

import pytest

from harness.reasons import Reason
from harness.store import open_store
from harness.verdict import Accepted, CasePassed, Errored, Rejected
from harness.version import judge_version
from tests.helpers import ROOT, run_eval

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
RIGHT = (ROOT / "tests" / "hostile" / "form" / "control.py").read_bytes()
WRONG = (ROOT / "tests" / "hostile" / "specification" / "ignores_weight.py").read_bytes()
FAST = ("--problem", PROBLEM, "--device", "cpu")
CASE = CasePassed(name="large eps", shape="8×321", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.5)


def sha256(text):
    return hashlib.sha256(text).hexdigest()


@pytest.fixture
def db(tmp_path):
    return tmp_path / "results.db"


def keep(db, text, status="accepted", judge="aaaaaaaaaaaa", day=1, with_text=True, **changed):
    """What a judge said of `text` on a day of January."""
    said = dict(
        problem="small_layernorm", problem_sha256=sha256(PROBLEM.read_bytes()), submission="mine", device="cpu",
        source_sha256=sha256(text), seed=day, cases=[CASE],
    ) | changed  # fmt: skip
    failed = dict(reason=Reason.WRONG_OUTPUT, message="wrong")
    evaluation = {
        "accepted": lambda: Accepted(**said),
        "rejected": lambda: Rejected(**failed, **said),
        "error": lambda: Errored(reason=Reason.HARNESS_ERROR, message="broken", **said),
    }[status]()
    with open_store(db) as store:
        texts = {sha256(text): text} if with_text else {}
        store.add([evaluation], {"judge": judge, "date": f"2026-01-{day:02}T00:00:00+00:00"}, texts)


def rejudge(db, *words, **options):
    return run_eval("rejudge", *words, "--db", db, json_results=False, **options)


def latest(db):
    with open_store(db) as store:
        return [(stored.evaluation, stored.environment) for stored in store.stored()][-1]


def test_what_another_judge_accepted_and_this_one_rejects_is_told_kept_and_1(db):
    keep(db, WRONG)
    run = rejudge(db, *FAST)
    assert run.code == 1
    (row,) = [line for line in run.stdout.splitlines() if line.startswith("mine ")]
    assert re.search(r"accepted +aaaaaaaaaaaa +2026-01-01 +rejected wrong_output", row)
    assert "1 judged anew: 1 accepted → rejected; 0 were up to date" in run.stdout
    evaluation, environment = latest(db)
    assert (evaluation.submission, evaluation.source_sha256) == ("mine", sha256(WRONG))
    assert isinstance(evaluation, Rejected) and environment["judge"] == judge_version()


def test_what_was_rejected_and_is_accepted_is_told_and_0(db):
    keep(db, RIGHT, "rejected")
    run = rejudge(db, *FAST)
    assert (run.code, "1 judged anew: 1 rejected → accepted" in run.stdout) == (0, True)
    assert isinstance(latest(db)[0], Accepted)
    again = rejudge(db, *FAST)
    assert (again.code, again.stdout) == (0, "Nothing to judge anew; 1 up to date. --all judges them, too.\n")
    assert "1 judged anew: 1 as before" in rejudge(db, *FAST, "--all").stdout


def test_a_command_that_repeats_a_case_judges_what_the_database_has(db):
    """The file that was judged lay in a folder that is gone."""
    keep(db, WRONG)
    run = rejudge(db, *FAST)
    (line,) = [line for line in run.stdout.splitlines() if "repeat:" in line]
    words = shlex.split(line.split("repeat: python eval.py rejudge ", 1)[1])
    again = rejudge(db, *words)
    assert (again.code, "REJECTED  mine" in again.stdout) == (0, True), again.stderr  # as before
    first, second = [re.search(r"^REJECTED .* of \d cases(.*)", run.stdout, re.MULTILINE)[1] for run in (run, again)]
    assert first == second


def test_an_error_is_no_verdict_that_moves(db):
    keep(db, RIGHT, "rejected")
    keep(db, RIGHT, "error", judge=judge_version(), day=2)
    assert "1 rejected → accepted" in rejudge(db, *FAST).stdout


def test_withdrawn_ones_are_judged_where_they_are_named_alone(db):
    keep(db, RIGHT)
    with open_store(db) as store:
        store.withdraw(sha256(RIGHT), "small_layernorm", "It sleeps on Sundays.", "2026-01-02")
    none = rejudge(db, *FAST)
    assert (none.code, "has no evaluation of what was asked for" in none.stderr) == (2, True)
    for name in ("mine", sha256(RIGHT)[:10]):
        assert "1 judged anew: 1 as before" in rejudge(db, name, *FAST).stdout
    unknown = rejudge(db, "nobody", *FAST)
    assert (unknown.code, "no evaluation of 'nobody'." in unknown.stderr) == (2, True)


def test_older_than_leaves_out_what_that_judge_and_later_ones_judged(db):
    keep(db, RIGHT, judge="aaaaaaaaaaaa", day=1)
    keep(db, RIGHT + b"\n", judge="bbbbbbbbbbbb", day=2, submission="later")
    run = rejudge(db, *FAST, "--older-than", "bbbb", "-q")
    assert "1 judged anew: 1 as before; 1 were up to date" in run.stdout
    assert latest(db)[0].submission == "mine"
    unknown = rejudge(db, *FAST, "--older-than", "cccc")
    assert unknown.code == 2
    assert (
        "--older-than cccc is no judge of the database's. It has, with their first days: aaaaaaaaaaaa (2026-01-01)"
        in (unknown.stderr)
    )


def test_a_problem_that_has_changed_and_one_that_is_gone_are_said(db):
    keep(db, RIGHT, problem_sha256="0" * 64)
    assert "small_layernorm has changed since verdicts on it were given" in rejudge(db, *FAST).stdout
    gone = rejudge(db, "--all")
    assert (gone.code, "problems/ has no small_layernorm; --problem may name" in gone.stderr) == (0, True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"submission": "../../outside"}, "'../../outside' is no file's name", id="a path"),
        pytest.param({"submission": "x" * 300}, "is no file's name", id="a long name"),
        pytest.param({"submission": "[/b]\33[2J", "with_text": False}, "Left out: [/b]?[2J on", id="no text"),
    ],
)
def test_what_cannot_be_judged_is_left_out_and_costs_the_others_nothing(db, changed, said):
    keep(db, RIGHT)
    keep(db, RIGHT + b"\n", **changed)
    run = rejudge(db, *FAST)
    assert run.code == 0
    assert said in run.stderr and "Traceback" not in run.stderr
    assert "1 judged anew: 1 as before" in run.stdout


@pytest.mark.parametrize("name", ["../outside/problem", "outside.py", "/etc/passwd"])
def test_a_problem_of_the_database_is_none_but_one_of_problems(db, tmp_path, name):
    """Else who writes a database would choose what the judge runs."""
    keep(db, RIGHT, problem=name)
    run = rejudge(db)
    assert (run.code, "Nothing to judge anew" in run.stdout) == (0, True)
    assert f"problems/ has no {name}; --problem" in run.stderr


def test_where_nothing_can_be_kept_the_moves_are_told_all_the_same(db):
    keep(db, WRONG)
    with open_store(db) as store:
        store.select(
            "CREATE TRIGGER full BEFORE INSERT ON evaluation BEGIN SELECT RAISE(ABORT, 'nothing more here'); END"
        )
    run = rejudge(db, *FAST)
    assert (run.code, "1 accepted → rejected" in run.stdout) == (1, True)
    assert "The evaluations are not kept:" in run.stderr and "nothing more here" in run.stderr


def test_two_choices_of_what_is_judged_exclude_each_other(db):
    run = rejudge(db, "--all", "--older-than", "aaaa")
    assert (run.code, "--all and --older-than exclude each other" in run.stderr) == (2, True)
