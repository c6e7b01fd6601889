"""The corpus gets the verdicts that its files name, in runs of many files each; the machine is clean afterwards.

One run for many is the point: whatever a submission does to its own process, the next one's evaluation is unharmed.
What needs a quiet machine is judged by test_hostile_times, and what needs a GPU by `python -m tests.hostile --device
cuda` on a machine that has one.
"""

import ast
import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.isolation.levels import Isolation, choose_isolation
from tests import helpers
from tests.documents import shown_between
from tests.helpers import ROOT
from tests.hostile import corpus, verdicts
from tests.hostile.__main__ import right_in
from tests.hostile.verdicts import ENTRIES, LEVEL

# The first test waits for the runs of all files, beside those of other tests.
pytestmark = pytest.mark.timeout(3600)

CONTROL = corpus.FOLDER / "form" / "control.py"

# What is hostile sees the judge's process as users start it.
run_eval = functools.partial(helpers.run_eval, program=True)

needs_namespaces = pytest.mark.skipif(
    LEVEL != "namespaces",
    reason=f"NOT TESTED HERE: namespaces do not work on this machine: {choose_isolation('auto', 'cpu').lacks}",
)


@pytest.fixture(scope="module")
def judged(tmp_path_factory, whole):
    return verdicts.judge(tmp_path_factory.mktemp("tmp"), ["cpu", "emulator"], quiet=False, whole=whole)


JUDGED = verdicts.judged_on("cpu", quiet=False) + verdicts.judged_on("emulator", quiet=False)


@pytest.mark.parametrize(("entry", "device"), JUDGED)
def test_verdict(entry, device, judged):
    judged.check_verdict(entry, device)


def test_what_is_left_to_whole_has_its_verdict_in_the_table_and_is_stood_for():
    known = {(f"{row['family']}/{row['name']}", row["device"]): row for row in right_in(ROOT / verdicts.TABLE)}
    for parameters in JUDGED:
        entry, device = parameters.values
        if parameters.marks:
            assert known[entry.name, device]["sha256"] == entry.sha256
            same = (entry.path.parent, entry.opens, entry.allowed)
            alike = [e.name for e in ENTRIES if (e.path.parent, e.opens, e.allowed) == same]
            assert any((name, device) in verdicts.IN_ANY_CASE for name in alike)
    assert any(parameters.marks for parameters in JUDGED)


def test_what_the_machine_cannot_show_is_named():
    """Nothing is left out in silence: what is not judged here says that it needs a GPU or stronger isolation."""
    for entry in ENTRIES:
        if not entry.runs_on("cpu", LEVEL) and not entry.runs_on("emulator", LEVEL):
            assert "gpu" in entry.needs or LEVEL != "namespaces"


def test_nothing_is_left_behind(judged):
    judged.check_nothing_is_left()


def test_every_family_has_an_honest_control_and_every_file_is_of_the_form():
    families = {entry.path.parent.name for entry in ENTRIES}
    assert {entry.path.parent.name for entry in ENTRIES if entry.is_control} == families
    assert sum(not entry.is_control for entry in ENTRIES) > 100
    for entry in ENTRIES:
        if entry.path.stem != "syntax_error":
            ast.parse(entry.path.read_text())


def test_the_threat_model_lists_the_corpus():
    assert shown_between("docs/threat-model.md", "corpus") == corpus.table().splitlines()


def test_every_hostile_file_says_what_lets_it_succeed():
    assert [entry.name for entry in ENTRIES if not entry.opens and not entry.is_control] == []
    assert [entry.name for entry in ENTRIES if entry.opens and entry.is_control] == []


# ---------------------------------------------------------------------- isolation

WEAKER = (
    "aborts",
    "exits_in_forward",
    "deep_folders",
    "reads_descriptors_of_the_parent",
    "seals_shared_memory",
    "reads_the_seed",
    "ends_what_forks_workers",
    "reaches_what_forks_workers",
    "lowers_limits_of_others",
)


@pytest.mark.parametrize("level", ["landlock", "basic"])
def test_weaker_isolation_judges_alike(level, tmp_path):
    """What runs where bubblewrap is missing is tested where it is not, too. With the level that is in use anyway all
    files were judged above."""
    if level == "landlock" and choose_isolation("auto", "cpu").landlock_abi == 0:
        pytest.skip("NOT TESTED HERE: this kernel has no Landlock")
    again = () if level == LEVEL else WEAKER
    chosen = [entry for entry in ENTRIES if entry.path.stem in again or entry.path == CONTROL]
    outcomes, run = corpus.judge(chosen, "cpu", "--isolation", level, timing=False)
    assert {o.entry.name: o.verdict for o in outcomes if not o.right} == {}, run.stderr[-4000:]
    assert run.results["environment"]["isolation"]["cpu"]["level"] == level


def nosy(tmp_path, name, condition):
    """A submission that is right only where `condition` holds in its process."""
    path = tmp_path / f"{name}.py"
    path.write_text(
        CONTROL.read_text().replace(
            "import torch\n", f"import os\nimport socket\nassert {condition}\nimport torch\n", 1
        )
    )
    return path


PRIVATE = {
    "home": "os.listdir(os.environ['HOME']) == []",
    "processes": "len([p for p in os.listdir('/proc') if p.isdigit()]) < 8",
    "network": "[name for _, name in socket.if_nameindex()] == ['lo']",
    "system": "not os.access('/usr', os.W_OK) and not os.access('/etc', os.W_OK)",
    "shared_memory": "os.listdir('/dev/shm') == []",
    "capabilities": "'CapEff:\\t0000000000000000' in open('/proc/self/status').read()",
}


@needs_namespaces
def test_namespaces_hide_the_machine(tmp_path):
    marker = tmp_path / "a_file_of_somebody_else"
    marker.write_text("secret")
    paths = [nosy(tmp_path, name, condition) for name, condition in PRIVATE.items()]
    paths.append(nosy(tmp_path, "others_files", f"not os.path.exists({str(marker)!r})"))
    run = run_eval(*paths, "--problem", corpus.PROBLEM, "-k", "large eps", "--isolation", "require")
    assert {e["submission"]: e["message"] for e in run.results["evaluations"] if e["status"] != "accepted"} == {}
    isolation = run.results["environment"]["isolation"]["cpu"]
    assert isolation["level"] == "namespaces"
    assert "no network" in isolation["contains"]


def test_a_worker_opens_no_connection(tmp_path):
    if LEVEL == "basic":
        pytest.skip("NOT TESTED HERE: neither namespaces nor Landlock work on this machine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        condition = f"socket.socket().connect_ex(('127.0.0.1', {server.getsockname()[1]})) != 0"
        run = run_eval(nosy(tmp_path, "caller", condition), "--problem", corpus.PROBLEM, "-k", "large eps")
    assert run.code == 0, run.results


@pytest.mark.parametrize(
    ("shown_by", "status"), [((), "rejected"), (("timeout", "500"), "accepted")], ids=["", "outside"]
)
def test_a_given_seed_is_taken_off_the_judges_command_line_and_no_other(shown_by, status):
    """The second is docs/threat-model.md's exception, and shows that the file would find a seed that is left there."""
    words = [
        corpus.FOLDER / "judge" / "reads_the_seed.py",
        "--problem",
        corpus.PROBLEM,
        "-k",
        "large eps",
        "--seed",
        "5",
    ]
    program = [*shown_by, sys.executable, str(ROOT / "eval.py")]
    run = run_eval(*words, "--isolation", "basic", program=program)
    assert [each["status"] for each in run.results["evaluations"]] == [status]


def test_a_worker_that_closes_its_memory_ends_no_run_but_its_own(tmp_path):
    """A judge without the privilege to trace everything may not read a process that made itself unreadable."""
    closed = tmp_path / "closed.py"
    closing = "def forward(self, x):\n        __import__('ctypes').CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE"
    closed.write_text(CONTROL.read_text().replace("def forward(self, x):", closing))
    unprivileged = ["setpriv", "--bounding-set=-sys_ptrace"] if os.geteuid() == 0 else []
    command = [sys.executable, "eval.py", closed, CONTROL, "--problem", corpus.PROBLEM, "-k", "large eps",
               "--no-timing", "--isolation", "basic", "--json", "-"]  # fmt: skip
    run = subprocess.run([*unprivileged, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert [e["reason"] for e in json.loads(run.stdout)["evaluations"]] == ["bad_output", None], run.stderr


def test_require_refuses_where_namespaces_do_not_work(tmp_path):
    for tool in ("c++", "g++", "ninja", "rm"):  # a path with everything but bubblewrap
        target = next((Path(f) / tool for f in os.environ["PATH"].split(":") if (Path(f) / tool).exists()), None)
        if target:
            (tmp_path / tool).symlink_to(target)
    run = run_eval(CONTROL, "--problem", corpus.PROBLEM, "--isolation", "require", json_results=False,
                   env={"PATH": str(tmp_path)})  # fmt: skip
    assert run.code == 3
    assert "--isolation require" in run.stderr
    assert "bwrap" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    fallback = run_eval(CONTROL, "--problem", corpus.PROBLEM, "-k", "large eps", env={"PATH": str(tmp_path)})
    assert fallback.code == 0
    assert fallback.results["environment"]["isolation"]["cpu"]["level"] in ("landlock", "basic")


def test_the_level_is_printed(tmp_path):
    run = run_eval(CONTROL, "--problem", corpus.PROBLEM, "-k", "large eps", "--isolation", "basic", json_results=False)
    assert "isolation on cpu: basic (--isolation basic was asked for)" in run.stdout


def test_nothing_of_a_run_is_found_by_the_next(tmp_path):
    """A file that leaves a mark wherever it can, judged twice: in the second run it must find none."""
    path = corpus.FOLDER / "replay" / "left_by_an_earlier_run.py"
    for _ in range(2):
        run = run_eval(path, "--problem", corpus.PROBLEM, "-k", "large eps")
        assert run.results["evaluations"][0]["reason"] == "wrong_output"


def test_reports_hold_no_control_characters():
    path = corpus.FOLDER / "judge" / "escape_codes.py"
    run = run_eval(path, "--problem", corpus.PROBLEM, "-k", "large eps", "--color", "never", json_results=False)
    assert run.code == 1
    assert "\x1b" not in run.stdout
    assert [line for line in run.stdout.splitlines() if line.startswith("ACCEPTED")] == []


def test_the_parts_of_a_level_are_named():
    assert "no network" in Isolation("namespaces", ("pid", "net")).contains
    assert "no network" not in Isolation("namespaces", ("pid",)).contains
    assert "resource limits" in Isolation("basic").contains
    assert ROOT.name not in str(Isolation("basic").describe())
