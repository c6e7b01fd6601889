"""The store: what is kept, who has a rank, many writers, kills, and files that are no store."""

import contextlib
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import msgspec
import pytest

from harness.environment import describe
from harness.errors import HarnessError, UsageError
from harness.options import parse
from harness.plan import Arguments, make_plan
from harness.reasons import Reason
from harness.report.formats import json as results_json
from harness.store import Standing, boards, history, open_store, rows, schema
from harness.store.answers import known, without
from harness.verdict import SCHEMA, Accepted, CaseFailed, CasePassed, Errored, Rejected, Results, Worst
from tests.helpers import ROOT, forked_eval, run_eval

ENVIRONMENT = {
    "date": "2026-01-01T00:00:00+00:00", "judge": "aaaa", "gpu": "A GPU", "torch": "2.11", "driver": "580", "cpus": 2,
}  # fmt: skip
CASE = CasePassed(name="headline", shape="8×8", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.5)


def common(submission, seed=1, problem="layernorm", cases=(CASE,)):
    source = hashlib.sha256(submission.encode()).hexdigest()
    return dict(
        problem=problem, problem_sha256="p" * 64, submission=submission, source_sha256=source, device="cuda", seed=seed,
        cases=list(cases),
    )  # fmt: skip


def accepted(submission, speedup, seed=1, within=0.01, **more):
    """Accepted with a speedup whose interval reaches so far, as a share, to both sides."""
    interval = (speedup * (1 - within), speedup * (1 + within))
    return Accepted(**common(submission, seed, **more), geomean_speedup=speedup, geomean_interval=interval)


def twice(submission, speedup, **more):
    return [accepted(submission, speedup, seed, **more) for seed in (1, 2)]


def rejected(submission, seed=1):
    return Rejected(**common(submission, seed), reason=Reason.WRONG_OUTPUT, message="wrong")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.db"


def keep(path, *evaluations, **changed):
    with open_store(path) as store:
        return store.add(evaluations, ENVIRONMENT | changed, {})


def only_board(path, **asked):
    with open_store(path) as store:
        (board,) = boards(store, **asked)
    return board


def ranks(path):
    return [(entry.submission, entry.rank) for entry in only_board(path).entries]


# ---------------------------------------------------------------------- who has a rank


def test_one_evaluation_is_provisional_and_a_second_with_fresh_data_ranks(path):
    keep(path, accepted("fast", 2.0))
    (entry,) = only_board(path).entries
    assert (entry.standing, entry.rank) == (Standing.PROVISIONAL, None)
    keep(path, accepted("fast", 2.0, seed=1), date="2026-01-02T00:00:00+00:00")  # the same data again
    assert only_board(path).entries[0].standing == Standing.PROVISIONAL
    keep(path, accepted("fast", 2.02, seed=2))
    (entry,) = only_board(path).entries
    assert (entry.standing, entry.rank, entry.evaluations) == (Standing.RANKED, 1, 3)
    assert entry.over_eager.value == pytest.approx((2.0 * 2.0 * 2.02) ** (1 / 3))
    assert entry.over_eager.interval[0] < 2.0 < entry.over_eager.interval[1]


def test_evaluations_that_differ_by_more_than_their_intervals_explain_give_no_rank(path):
    keep(path, accepted("fast", 2.0, 1), accepted("fast", 2.4, 2))
    assert only_board(path).entries[0].standing == Standing.DISAGREES
    keep(path, *twice("wide", 2.0, within=0.09))
    assert dict(ranks(path))["wide"] == 1


def test_a_mean_is_geometric(path):
    keep(path, accepted("swings", 2.0, 1), accepted("swings", 0.5, 2))
    assert only_board(path).entries[0].over_eager.value == pytest.approx(1.0)


def test_what_cannot_be_told_apart_ties_and_the_next_rank_counts_those_before_it(path):
    keep(path, *twice("a", 2.0), *twice("b", 1.99), *twice("c", 1.5), *twice("d", 1.2), *twice("e", 1.199))
    assert ranks(path) == [("a", 1), ("b", 1), ("c", 3), ("d", 4), ("e", 4)]


def test_ties_do_not_chain(path):
    """Each neighbour is within the interval of the next, and the last is far from the first."""
    keep(path, *(e for n in range(6) for e in twice(f"s{n}", 2.0 * 0.99**n)))
    found = [rank for _, rank in ranks(path)]
    assert found[0] == 1
    assert found[-1] > 1


def test_rejected_untimed_and_withdrawn_submissions_have_no_rank_and_stay_visible(path):
    flaky = rejected("flaky")
    keep(path, *twice("fast", 2.0), *twice("flaky", 3.0), flaky, Accepted(**common("untimed")), *twice("taken", 4.0))
    with open_store(path) as store:
        store.withdraw(common("taken")["source_sha256"], "layernorm", "It read the reference.", "2026-01-03")
    entries = {entry.submission: entry for entry in only_board(path).entries}
    assert {name: entry.standing.value for name, entry in entries.items()} == {
        "fast": "ranked", "flaky": "rejected", "untimed": "unranked", "taken": "withdrawn",
    }  # fmt: skip
    assert entries["taken"].withdrawn == "It read the reference."
    assert [entry.rank for entry in entries.values()] == [1, None, None, None]


@pytest.mark.parametrize(
    "other", [{"judge": "bbbb"}, {"gpu": "Another GPU"}, {"torch": "2.12"}, {"driver": "590"}], ids=str
)
def test_nothing_is_ranked_beside_what_another_judge_device_or_version_measured(path, other):
    keep(path, *twice("fast", 2.0))
    keep(path, *twice("faster", 3.0), date="2026-01-02T00:00:00+00:00", **other)
    with open_store(path) as store:
        both = boards(store, older=True)
        assert [[(e.submission, e.rank) for e in board.entries] for board in both] in (
            [[("faster", 1)], [("fast", 1)]], [[("fast", 1)], [("faster", 1)]],
        )  # fmt: skip
        shown = {board.model: board.entries[0].submission for board in boards(store)}
    assert shown["A GPU"] == ("fast" if "gpu" in other else "faster")  # the latest of a device


def test_other_cases_and_another_problem_file_are_other_boards(path):
    more = CasePassed(name="more", shape="8×8", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.5)
    keep(path, *twice("fast", 2.0), *twice("fast", 2.0, cases=(CASE, more)), *twice("fast", 2.0, problem="rmsnorm"))
    with open_store(path) as store:
        assert len(boards(store, older=True)) == 3
        assert [board.others for board in boards(store, "layernorm", older=True)] == [0, 0]
        assert [board.others for board in boards(store, "layernorm")] == [1]
    shown = verb("leaderboard", "layernorm", "--db", path, env={"COLUMNS": "200"}).stdout
    assert "1 more board is of other cases, judges or versions; leaderboard --older shows them" in shown
    assert "--older" not in verb("leaderboard", "layernorm", "--db", path, "--older").stdout
    (board,) = json.loads(verb("leaderboard", "layernorm", "--db", path, "--json").stdout)
    assert (board["problem"], board["others"]) == ("layernorm", 1)
    assert all(entry["submission"] in shown for entry in board["entries"])


# ---------------------------------------------------------------------- what is kept


def test_the_same_evaluation_is_kept_once_and_read_as_it_was(path):
    found = [accepted("fast", 2.0), rejected("wrong")]
    assert keep(path, *found) == 2
    assert keep(path, *found) == 0
    with open_store(path) as store:
        assert [stored.evaluation for stored in store.stored()] == found
        assert [stored.environment for stored in history(store, "wrong")] == [ENVIRONMENT]


def test_a_run_is_kept_with_its_sources_and_shown_by_the_verbs(tmp_path):
    db, more = tmp_path / "a.db", ("--device", "cpu", "-k", "random 1")
    file = ROOT / "submissions" / "layernorm" / "cpu_vectorised.py"
    env = {"COLUMNS": "200"}
    assert run_eval(file, "--problem", "layernorm", *more, "--db", db).code == 0
    with open_store(db) as store:
        (stored,) = store.stored()
        assert [case.dtype for case in stored.evaluation.cases] == ["float32"]
        assert store.source(stored.evaluation.source_sha256) == file.read_bytes()
        assert store.source(stored.evaluation.problem_sha256) == (ROOT / "problems" / "layernorm.py").read_bytes()
    board, told = verb("leaderboard", "--db", db, env=env), verb("history", "cpu_vectorised", "--db", db, env=env)
    assert "unranked" in board.stdout and stored.evaluation.source_sha256[:10] in board.stdout
    assert "accepted" in told.stdout and stored.digest[:10] in told.stdout


def test_a_problem_whose_files_name_is_no_utf8_is_judged_kept_listed_and_reported(tmp_path):
    """Under a name that the database and all formats have a place for."""
    problem = tmp_path / os.fsdecode(b"probl\xe9m.py")
    shutil.copy(ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py", problem)
    database = ("--db", tmp_path / "a.db")
    written = {name: tmp_path / name for name in ("junit", "markdown", "sarif", "comment", "jsonl")}
    reports = [word for name, file in written.items() for word in ("--report", f"{name}={file}")]
    wrong = ROOT / "tests" / "hostile" / "specification" / "ignores_weight.py"
    run = run_eval(wrong, "--problem", problem, "--device", "cpu", *database, *reports)
    (evaluation,) = run.results["evaluations"]
    assert (evaluation["status"], evaluation["problem"]) == ("rejected", "probl?m"), run.stderr
    assert all("probl?m" in file.read_text() for file in written.values())
    for words, said in [
        (("list", problem), "problem probl"),
        (("leaderboard", problem.stem, *database), "probl?m"),
        (("history", "ignores_weight", *database), "probl?m"),
        (("withdraw", "ignores_weight", "--problem", problem.stem, "--reason", "x", *database), "Withdrawn"),
        (("report", "--html", tmp_path / "pages", *database), "pages"),
    ]:
        done = verb(*words)
        assert done.returncode == 0 and said in done.stdout, (words, done)


def test_no_store_keeps_nothing(tmp_path):
    db = tmp_path / "a.db"
    file = ROOT / "submissions" / "layernorm" / "cpu_vectorised.py"
    run = run_eval(file, "--problem", "layernorm", "-k", "random 1", "--no-store", env={"KERNELGATE_DB": str(db)})
    assert (run.code, db.exists()) == (0, False)


def verb(*words, env=None):
    command = [sys.executable, str(ROOT / "eval.py"), *map(str, words)]
    env = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", timeout=120, env=env)


def test_a_withdrawal_needs_one_source_and_is_said_on_the_board(path):
    keep(path, *twice("fast", 2.0))
    words = ("withdraw", "fast", "--problem", "layernorm", "--reason", "It sleeps on Sundays.", "--db", path)
    assert verb(*words).returncode == 0
    assert "fast was withdrawn: It sleeps on Sundays." in verb("leaderboard", "--db", path).stdout
    empty = verb("withdraw", "fast", "--problem", "layernorm", "--reason", " ", "--db", path)
    assert (empty.returncode, "--reason is empty" in empty.stderr) == (2, True)
    none = verb("withdraw", "slow", "--problem", "layernorm", "--reason", "x", "--db", path)
    assert none.returncode == 2
    assert "'slow' has no evaluation on layernorm" in none.stderr


# ---------------------------------------------------------------------- export and import


def test_what_is_exported_is_imported_elsewhere_and_twice_changes_nothing(tmp_path):
    here, there, lines = tmp_path / "here.db", tmp_path / "there.db", tmp_path / "all.jsonl"
    text = b"class ModelNew: ..."
    found = msgspec.structs.replace(accepted("fast", 2.0), source_sha256=hashlib.sha256(text).hexdigest())
    with open_store(here) as store:
        store.add([found, rejected("wrong")], ENVIRONMENT, {found.source_sha256: text})
    assert verb("export", lines, "--db", here).returncode == 0
    assert "2 new, 0 known before, 0 refused." in verb("import", lines, "--db", there).stdout
    assert "0 new, 2 known before, 0 refused." in verb("import", lines, "--db", there).stdout
    with open_store(here) as ours, open_store(there) as theirs:
        assert list(ours.stored()) == list(theirs.stored())
        assert theirs.source(found.source_sha256) == text


def test_an_output_that_is_no_number_is_kept_and_exported(tmp_path, path):
    """NaN is what a wrong kernel gives most often, and JSON has none."""
    failed = CaseFailed(
        name="headline", shape="8×8", scaled=False, reason=Reason.WRONG_OUTPUT, message="wrong", repeat="",
        error=math.nan, worst=Worst(output=0, index=[0], got=math.nan, expected=math.inf),
    )  # fmt: skip
    keep(path, msgspec.structs.replace(rejected("wrong"), cases=[failed]))
    assert verb("history", "wrong", "--db", path).returncode == 0
    assert verb("export", tmp_path / "all.jsonl", "--db", path).returncode == 0
    assert "1 new" in verb("import", tmp_path / "all.jsonl", "--db", tmp_path / "there.db").stdout


def test_damaged_and_hostile_lines_are_refused_by_their_number_and_the_others_read(tmp_path):
    here, lines, there = tmp_path / "here.db", tmp_path / "all.jsonl", tmp_path / "there.db"
    keep(here, accepted("fast", 2.0))
    verb("export", lines, "--db", here)
    (good,) = lines.read_text().splitlines()
    forged = good.replace('"evaluation":', '"source":"not what was judged","evaluation":')
    bad = [good[:-40], "[1, 2]", good.replace(SCHEMA, "kernelgate.results/99"), good.replace('"seed":1', '"seed":"x"')]
    bad.append(good.replace('"geomean_speedup":2.0', '"geomean_speedup":-2.0'))
    bad.append(good.replace('"environment":{', '"environment":{"deep":' + "[" * 100_000 + "]" * 100_000 + ","))
    lines.write_bytes(("\n".join([*bad, forged, good]) + "\n").encode() + b'{"schema": "\xff"}\n')
    run = verb("import", lines, "--db", there)
    assert run.returncode == 2
    assert "1 new, 1 known before, 7 refused." in run.stdout
    for number in (1, 2, 3, 4, 5, 6, 9):
        assert f"line {number}:" in run.stderr
    assert "Traceback" not in run.stderr
    with open_store(there) as store:
        (stored,) = store.stored()
        assert store.source(stored.evaluation.source_sha256) is None  # a text must be what the evaluation is of


def test_the_committed_results_are_imported_by_one_command(path):
    run = verb("import", ROOT / "results" / "h200", "--db", path)
    assert run.returncode == 0, run.stderr
    board = verb("leaderboard", "layernorm", "--db", path, env={"COLUMNS": "200"}).stdout
    assert "NVIDIA H200" in board and "speed_of_light" in board and "provisional" in board


def test_results_of_json_are_imported_as_lines_are(tmp_path, path):
    file = tmp_path / "results.json"
    results = Results(schema=SCHEMA, environment=ENVIRONMENT, evaluations=[accepted("fast", 2.0)])
    file.write_bytes(results_json.dumps(results))
    assert "1 new" in verb("import", file, "--db", path).stdout
    assert only_board(path).entries[0].submission == "fast"


def test_a_folder_without_results_is_refused_and_the_others_read(tmp_path, path):
    file, empty, other = tmp_path / "full" / "results.json", tmp_path / "empty", tmp_path / "other"
    for folder in (file.parent, empty, other):
        folder.mkdir()
    (other / "package.json").write_text("{}")
    file.write_bytes(
        results_json.dumps(Results(schema=SCHEMA, environment=ENVIRONMENT, evaluations=[accepted("a", 2)]))
    )
    run = verb("import", empty, other, file.parent, "--db", path)
    assert run.returncode == 2
    assert run.stdout == "1 new, 0 known before, 2 refused. 1 files hold something else.\n"
    said = "no .json or .jsonl file in it has results. Give a folder or a file that has some."
    assert run.stderr == f"{empty}: {said}\n{other}: {said}\n"


# ---------------------------------------------------------------------- what a file may be


def test_another_programs_database_is_left_alone(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(UsageError, match="a database of another program"), open_store(path):
        pass
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


def test_a_file_that_is_no_database_is_left_alone(path):
    path.write_text("kernels, mostly\n" * 100)
    with pytest.raises(UsageError, match="is no database, or a damaged one"), open_store(path):
        pass
    assert path.read_text().startswith("kernels, mostly")


def test_a_newer_schema_is_refused_with_a_sentence(path):
    keep(path, accepted("fast", 2.0))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UsageError, match="has version 99 of the schema, and this kernelgate knows 3"):
        keep(path, accepted("fast", 2.0))


def test_what_an_earlier_kernelgate_kept_is_brought_up_to_date(path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        without_plain = rows.INSERT_EVALUATION.replace(", plain", "").replace(", :plain", "")
        earlier.setattr(rows, "INSERT_EVALUATION", without_plain)
        keep(path, accepted("fast", 2.0))
    keep(path, accepted("faster", 3.0))
    assert sorted(entry.submission for entry in only_board(path).entries) == ["fast", "faster"]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM entry").fetchall()
    assert any("COVERING INDEX evaluation_entry" in step[-1] for step in plan)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match="cannot be opened: "), open_store(tmp_path / "file" / "a.db"):
        pass


def test_somebody_who_does_not_let_go_is_said(path):
    keep(path, accepted("fast", 2.0))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(HarnessError, match="Another program holds the database"), open_store(path, wait_s=0.1) as store:
        store.add([accepted("faster", 3.0)], ENVIRONMENT, {})
    holder.execute("COMMIT")
    holder.close()
    assert keep(path, accepted("faster", 3.0)) == 1


def test_a_full_disk_is_said_and_what_was_kept_stays(path):
    keep(path, accepted("fast", 2.0))
    with open_store(path) as store:
        pages = store.select("PRAGMA page_count")[0][0]
        store.select(f"PRAGMA max_page_count = {pages}")  # as if there were no room for another page
        with pytest.raises(HarnessError, match="The disk is full"):
            store.add([accepted(f"s{n}", 2.0) for n in range(200)], ENVIRONMENT, {})
    assert [entry.submission for entry in only_board(path).entries] == ["fast"]


CONTROL = (
    ROOT / "tests" / "hostile" / "form" / "control.py", "--device", "cpu", "-k", "eps",
    "--problem", ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py",
)  # fmt: skip


def verdict_without_store(db, said, **options):
    """Judge with a database that is no use: the verdict comes, and a sentence why it is not kept."""
    run = run_eval(*CONTROL, "--db", db, **options)
    assert (run.code, run.results["evaluations"][0]["status"]) == (0, "accepted"), run.stderr
    (line,) = [line for line in run.stderr.splitlines() if "not kept" in line]
    assert line.startswith("eval.py: The evaluations are not kept: ") and said in line
    assert "Traceback" not in run.stderr


def test_a_file_that_is_no_database_costs_no_verdict(path):
    path.write_text("kernels, mostly\n" * 100)
    verdict_without_store(path, f"{path} is no database, or a damaged one")


def test_another_programs_database_costs_no_verdict_and_is_left_alone(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    verdict_without_store(path, f"{path} is a database of another program")
    assert path.read_bytes() == before
    assert verb("leaderboard", "--db", path).returncode == 2


def test_a_folder_in_place_of_a_database_costs_no_verdict(tmp_path):
    verdict_without_store(tmp_path, f"The database {tmp_path} cannot be opened for writing")


# A disk of its own, which is gone with the process: sh's words that mount it, and then what is run.
ON_A_DISK = ["unshare", "--mount", "--map-root-user", "sh", "-c"]


def on_a_disk(disk, size_kib, prepare):
    """A program that eval.py is run by, in which the folder `disk` is a disk of that size, prepared by sh's words."""
    mount = f"mount -t tmpfs -o size={size_kib}k none {disk}"
    if not shutil.which("unshare") or subprocess.run([*ON_A_DISK, mount], capture_output=True).returncode:
        pytest.skip("NOT TESTED HERE: unshare, which mounts a small disk, does not work on this machine")
    script = f'{mount} && {prepare} && exec "$@"'
    return [*ON_A_DISK, script, "sh", sys.executable, str(ROOT / "eval.py")]


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def filled(disk):
    return f"{{ dd if=/dev/zero of={disk}/full bs=4k 2>/dev/null || true; }}"


@pytest.mark.parametrize("size_kib", [0, 32, 64, 96])
def test_a_disk_that_is_full_before_the_database_is_made_costs_no_verdict(disk, size_kib):
    fill = f"dd if=/dev/zero of={disk}/full bs=1k count={1024 - size_kib} 2>/dev/null"
    verdict_without_store(disk / "a.db", "The disk is full", program=on_a_disk(disk, 1024, fill))


def test_a_disk_that_fills_up_later_costs_no_verdict(disk, path):
    keep(path, accepted("fast", 2.0))
    prepare = f"cp {path} {disk}/a.db && {filled(disk)}"
    verdict_without_store(disk / "a.db", "The disk is full", program=on_a_disk(disk, 1024, prepare))


@pytest.mark.parametrize("is_there", [False, True], ids=["no database yet", "a database"])
def test_a_read_only_folder_costs_no_verdict(disk, path, is_there):
    keep(path, accepted("fast", 2.0))
    put = f"cp {path} {disk}/a.db" if is_there else "true"
    prepare = f"{put} && mount -o remount,ro {disk}"
    verdict_without_store(disk / "a.db", "it may not be written", program=on_a_disk(disk, 1024, prepare))


# eval.py that waits for less than half a minute.
IMPATIENT = (
    "from harness.store.database import open_store; open_store.__wrapped__.__kwdefaults__['wait_s'] = 0.2; "
    "from harness.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
)
HOLD = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "c.execute('PRAGMA locking_mode = EXCLUSIVE'); c.execute('BEGIN EXCLUSIVE'); print('held', flush=True); "
    "sys.stdin.read()"
)


def test_a_database_that_another_process_holds_costs_no_verdict(path):
    keep(path, accepted("fast", 2.0))
    program = [sys.executable, "-c", IMPATIENT]
    holding = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        verdict_without_store(path, f"Another program holds the database {path}", program=program)
        holder.stdin.close()
    assert run_eval(*CONTROL, "--db", path, program=program).stderr == ""
    assert [entry.submission for entry in boards_of(path)] == ["fast", "control"]


def boards_of(path):
    with open_store(path) as store:
        return [entry for board in boards(store) for entry in board.entries]


def test_reading_verbs_make_no_database(path):
    for words in (("leaderboard",), ("history", "x"), ("export",)):
        run = verb(*words, "--db", path)
        assert (run.returncode, path.exists()) == (2, False)
        assert f"There is no database {path}" in run.stderr


# ---------------------------------------------------------------------- kills


def write_on_and_on(path, number, report):
    """Keep one evaluation after the other, and report each when it is kept."""
    for count in range(10_000):
        evaluation = accepted(f"writer {number} {count}", 2.0)
        with open_store(path) as store:
            store.add([evaluation], ENVIRONMENT, {evaluation.source_sha256: b"x" * 1000})
        os.write(report, f"{evaluation.source_sha256}\n".encode())


def start_writer(path, number):
    mine, theirs = os.pipe()
    if pid := os.fork():
        os.close(theirs)
        return pid, mine
    try:
        write_on_and_on(path, number, theirs)
    finally:
        os._exit(0)


def test_a_hundred_kills_while_eight_write_lose_nothing_that_was_reported(path):
    drawn, reported, number = random.Random(7), set(), 0
    writers = []
    for _ in range(8):
        writers.append(start_writer(path, number := number + 1))
    while number < 108 or len(reported) <= 100:
        time.sleep(drawn.uniform(0.0, 0.04))
        reported |= end_writer(writers.pop(drawn.randrange(len(writers))))
        writers.append(start_writer(path, number := number + 1))
    for writer in writers:
        reported |= end_writer(writer)
    with open_store(path) as store:
        kept = {stored.evaluation.source_sha256 for stored in store.stored()}
        assert store.select("PRAGMA integrity_check")[0][0] == "ok"
        assert store.select("PRAGMA foreign_key_check") == []
    assert reported <= kept


def end_writer(writer):
    """Kill it; what it had reported."""
    pid, report = writer
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    said = b""
    while chunk := os.read(report, 1 << 16):
        said += chunk
    os.close(report)
    return {line.decode() for line in said.split(b"\n")[:-1]}


# ---------------------------------------------------------------------- what need not be judged


def said_of(run, names):
    return [[evaluation[name] for name in names] for evaluation in run.results["evaluations"]]


def test_without_a_path_only_what_has_no_verdict_is_judged_and_the_board_follows(tmp_path):
    folder = tmp_path / "submissions" / "layernorm"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "submissions/layernorm/cpu_vectorised.py", folder / "right.py")
    wrong = (ROOT / "tests/hostile/form/control.py").read_text()
    (folder / "wrong.py").write_text(wrong.replace("self.weight + self.bias", "self.weight - self.bias"))
    here = ["sh", "-c", f'cd {tmp_path} && exec {sys.executable} {ROOT}/eval.py "$@"', "sh"]
    words = ("--problem", "layernorm", "--device", "cpu", "--no-timing", "--db", tmp_path / "a.db")
    first, second = run_eval(*words, program=here), run_eval(*words, program=here)
    assert [e["kept_from"] for e in first.results["evaluations"]] == ["", ""]
    assert all(e["kept_from"] for e in second.results["evaluations"])
    verdicts = [
        [(e["submission"], e["status"], e["seed"]) for e in run.results["evaluations"]] for run in (first, second)
    ]
    assert verdicts[0] == verdicts[1]
    assert {status for _, status, _ in verdicts[0]} == {"accepted", "rejected"}
    assert second.code == first.code == 1
    told = run_eval(*words, program=here, json_results=False).stdout
    assert "ACCEPTED  layernorm · right" in told and "--again judges it anew" in told
    assert re.search(r"right +unranked", told)  # the board


PLANNED = Arguments(paths=(ROOT / "submissions" / "layernorm" / "cpu_vectorised.py",), problem="layernorm")


@pytest.mark.parametrize(
    ("changed", "environment", "is_known"),
    [
        pytest.param({}, {}, True, id="the same"),
        pytest.param({"source_sha256": "0" * 64}, {}, False, id="another source"),
        pytest.param({"problem_sha256": "0" * 64}, {}, False, id="another problem file"),
        pytest.param({}, {"judge": "0" * 12}, False, id="another judge"),
        pytest.param({}, {"torch": "1.0"}, False, id="another torch"),
        pytest.param({}, {"processor": "an abacus"}, False, id="another machine"),
        pytest.param({"geomean_speedup": None}, {}, False, id="not timed"),
    ],
)
def test_a_verdict_answers_for_the_same_source_problem_judge_and_machine(path, changed, environment, is_known):
    plan = make_plan(PLANNED)
    (group,) = plan.groups
    same = {
        "device": "cpu",
        "source_sha256": group.submissions[0].sha256,
        "problem_sha256": hashlib.sha256(group.problem.read_bytes()).hexdigest(),
    }
    evaluation = msgspec.structs.replace(accepted("cpu_vectorised", 2.0), **(same | changed))
    with open_store(path) as store:
        store.add([evaluation], describe() | environment, {}, plain=True)
    answered = known(path, plan)
    assert len(answered) == is_known
    assert len(without(plan, answered).groups) == (not is_known)


@pytest.mark.parametrize("reason", [Reason.TIMED_OUT, Reason.WRONG_OUTPUT])
def test_rejections_answer_and_errors_do_not(path, reason):
    plan = make_plan(PLANNED)
    (group,) = plan.groups
    same = common("cpu_vectorised") | {
        "device": "cpu",
        "source_sha256": group.submissions[0].sha256,
        "problem_sha256": hashlib.sha256(group.problem.read_bytes()).hexdigest(),
    }
    with open_store(path) as store:
        store.add([Errored(**same, reason=Reason.HARNESS_ERROR, message="x")], describe(), {}, plain=True)
        assert known(path, plan) == []
        store.add([Rejected(**same, reason=reason, message="x")], describe(), {}, plain=True)
    assert [evaluation.reason for evaluation in known(path, plan)] == [reason]


DOUBLED = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_init_inputs():
    return []


CASES = [dict(name="no rows", shapes=[(0, 8)]), dict(name="rows", shapes=[(4, 8)])]
"""


@pytest.fixture
def doubled(tmp_path):
    """Judges a submission that computes this and keeps the verdict; the exit code. Then, what the store answers for
    it."""
    problem, mine, db = (tmp_path / name for name in ("doubled.py", "mine.py", "a.db"))
    problem.write_text(DOUBLED)

    def judge(computes, *words, first=""):
        text = DOUBLED.partition("def get_init")[0].replace("Model", "ModelNew").replace("x * 2", computes)
        mine.write_text(first + text)
        asked = (mine, "--problem", problem, "--device", "cpu", "--no-timing", "--db", db)
        return forked_eval((*asked, "--json", tmp_path / "a.json", *words), dict(os.environ)).returncode

    def answers():
        plan = make_plan(Arguments(paths=(mine,), problem=str(problem), device="cpu", timing=False))
        return [evaluation.reason for evaluation in known(db, plan)]

    return judge, answers


def test_what_is_right_in_the_chosen_cases_answers_for_no_others(doubled):
    judge, answers = doubled
    assert judge("x * 3", "-k", "no rows") == 0
    assert answers() == []
    assert judge("x * 3") == 1
    assert answers() == [Reason.WRONG_OUTPUT]


def test_what_is_too_slow_for_a_shorter_limit_is_not_for_the_usual_one(doubled):
    judge, answers = doubled
    sleeps_once = "import functools, time\nsleep = functools.cache(time.sleep)\n"
    assert judge("[x + x, sleep(4)][0]", "--timeout", "2", first=sleeps_once) == 1
    assert answers() == []
    assert judge("[x + x, sleep(4)][0]", first=sleeps_once) == 0
    assert answers() == [None]


def test_what_was_read_from_a_file_answers_for_nothing(doubled, tmp_path):
    judge, answers = doubled
    assert judge("x + x") == 0
    assert answers() == [None]
    (tmp_path / "a.db").unlink()
    words = ("import", tmp_path / "a.json", "--db", tmp_path / "a.db")
    assert forked_eval(words, dict(os.environ)).returncode == 0
    assert answers() == []


@pytest.mark.parametrize(
    ("words", "may_answer"),
    [
        ([], True),
        (["--device", "cpu", "--no-timing"], True),
        (["--again"], False),
        (["--no-store"], False),
        (["x.py"], False),
        (["-k", "headline"], False),
        (["--seed", "1"], False),
        (["--quick"], False),
        (["--check"], False),
        (["--against", "eager"], False),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_the_store_answers_only_where_no_path_and_nothing_unusual_was_asked_for(words, may_answer):
    assert parse(words).may_answer == may_answer
