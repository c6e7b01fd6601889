"""Every format of reports beside its gold file, and how reports are written and read."""

import difflib
import errno
import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness import options
from harness.errors import UsageError
from harness.notes import SUBMISSION, BaselineEnded, BaselineLeftOut, FasterThanMemory, TooNoisyToRank
from harness.records import KernelCounts
from harness.report import files, formats, words
from harness.report.formats import json as results_json
from harness.report.ranking import scores
from harness.report.view import View
from harness.verdict import SCHEMA, CasePassed, Worst
from tests.helpers import ROOT
from tests.sample_results import FAST, IN_CI, NOISY, RESULTS, WRONG

GOLD = ROOT / "tests" / "gold"

# The terminal's at three widths; the other formats have one page.
TERMINAL = {
    f"terminal_{width}{name}.txt": View(width=width, colored=bool(name), verbose=width == 200)
    for width in (80, 120, 200)
    for name in ("", "_colored")
} | {"terminal_quiet.txt": View(quiet=True)}
SUFFIXES = {"markdown": "md", "jsonl": "jsonl", "comment": "md", "github": "txt", "junit": "xml"}
FOR_CI = {"comment", "github", "junit", "sarif"}
GOLDS = {gold: ("terminal", view) for gold, view in TERMINAL.items()} | {
    f"{name}.{SUFFIXES.get(name, 'json')}": (name, IN_CI if name in FOR_CI else View())
    for name in formats.names()
    if name != "terminal"
}


@pytest.mark.parametrize("gold", GOLDS)
def test_a_report_is_its_gold_file(gold):
    """What differs is saved beside the gold file, which it replaces when it is right."""
    name, view = GOLDS[gold]
    report = formats.find(name).render(RESULTS, view)
    path, actual = GOLD / gold, GOLD / f"{gold}.actual"
    expected = path.read_text() if path.exists() else ""
    if report != expected:
        actual.write_text(report)
        difference = difflib.unified_diff(expected.splitlines(), report.splitlines(), "gold", "actual", lineterm="")
        pytest.fail(f"{gold} differs; if {actual.name} is right, move it there.\n" + "\n".join(difference))


def test_a_terminal_of_80_columns_breaks_nothing_but_commands():
    for verbose in (False, True):
        lines = formats.find("terminal").render(RESULTS, View(width=80, verbose=verbose)).splitlines()
        assert [line for line in lines if len(line) > 80 and "repeat: python eval.py" not in line] == []


def test_the_isolation_is_said_where_somebody_asks_and_where_it_lacks_something_for_what_was_accepted():
    def said(lacks, submissions, **view):
        chosen = [e for e in RESULTS.evaluations if e.submission in submissions]
        isolation = {"emulator": {"level": "landlock", "contains": ["limits"], "lacks": lacks}}
        results = msgspec.structs.replace(RESULTS, environment={"isolation": isolation}, evaluations=chosen)
        return "isolation on emulator" in formats.find("terminal").render(results, View(**view))

    assert said("no namespaces", {"emulated"}) and said(None, {"racing"}, verbose=True)
    assert not said("no namespaces", {"racing"}) and not said(None, {"emulated"})


def test_only_colours_are_controls_in_a_colored_report():
    plain, colored = (
        formats.find("terminal").render(RESULTS, View(width=120, colored=colored)) for colored in (False, True)
    )
    stripped = "".join(part.partition("m")[2] if i else part for i, part in enumerate(colored.split("\x1b[")))
    assert stripped == plain
    assert all(line.isprintable() for line in plain.splitlines())


def test_cases_that_are_too_noisy_share_a_sentence():
    """It names the first and counts the others, with the farthest that an interval reaches; a single case has its own,
    and so has the speedup over all of them."""
    left_out = BaselineLeftOut(baseline="compile", why="It cannot be.")
    whole = TooNoisyToRank(reaches={"eager": 0.4})
    of_cases = [
        TooNoisyToRank(case=name, reaches={SUBMISSION: reach}) for name, reach in zip("abcd", (2, 3, 1, 1), strict=True)
    ]
    first, second, last = words.as_sentences([of_cases[0], left_out, *of_cases[1:], whole])
    assert first.startswith("'a', 'b' and 2 more: too noisy to rank: ") and "reaches up to 300%." in first
    assert [second, last] == [words.sentence(left_out), words.sentence(whole)]
    assert [*words.as_sentences(of_cases[:1])] == [words.sentence(of_cases[0])]


def of_problems(*evaluations):
    """Each to a problem of its own."""
    return [msgspec.structs.replace(each, problem=f"problem {n}") for n, each in enumerate(evaluations)]


def test_all_submissions_count_whichever_device_they_went_to():
    """A generation without CUDA goes to the CPU where there is no GPU, and is as wrong there."""
    emulated = msgspec.structs.replace(FAST, device="emulator", geomean_speedup=None, geomean_interval=None)
    wrong = msgspec.structs.replace(WRONG, device="cpu")
    said = [*scores(of_problems(emulated, emulated, emulated, wrong))]
    assert said == ["4 submissions to 4 problems on emulator, cpu: 75% correct (3 of 4)"]


def test_what_has_no_verdict_is_said_beside_the_score():
    said, *_ = scores(of_problems(FAST, WRONG, NOISY))
    assert said.endswith(": 50% correct (1 of 2); 1 without a verdict is not counted")


def test_only_what_is_ranked_is_fast():
    wrong = msgspec.structs.replace(WRONG, device="cuda")
    noisy = msgspec.structs.replace(FAST, geomean_interval=(2.0, 4.0))
    doubted = msgspec.structs.replace(FAST, notes=[FasterThanMemory(case="headline")])
    untimed = msgspec.structs.replace(FAST, geomean_speedup=None, geomean_interval=None)
    _, line = scores(of_problems(FAST, wrong, noisy, noisy, doubted, untimed))
    assert line == (
        "On cuda: fast_1 50%, fast_1.5 50%, fast_2 50% of 2 (correct, and over p times as fast as eager); "
        "2 too noisy to count; 1 with times in doubt; 1 not timed"
    )
    _, line = scores(of_problems(noisy, noisy, wrong))
    assert line == "On cuda: 2 too noisy to count"


def test_an_unknown_format_is_answered_with_those_that_there_are():
    with pytest.raises(UsageError, match="no format 'yaml' for reports; there are benchmark_action, bmf, "):
        formats.find("yaml")


# ---------------------------------------------------------------------- JSON


def test_json_is_read_as_it_was_written():
    read = results_json.loads(results_json.dumps(RESULTS))
    assert read == RESULTS
    (evaluation, *_) = json.loads(results_json.dumps(RESULTS))["evaluations"]
    assert evaluation["notes"][0] == "--quick timed 'headline' and not the 6 after it."
    assert evaluation["noted"][0] == {"note": "one_case_timed", "case": "headline", "untimed": 6}


def test_a_nan_and_an_infinity_are_read_as_nothing():
    """A wrong kernel's most usual outputs."""
    worst = Worst(output=0, index=[1], got=math.nan, expected=math.inf)
    case = msgspec.structs.replace(WRONG.cases[1], error=math.nan, error_ratio=math.inf, worst=worst)
    written = msgspec.structs.replace(RESULTS, evaluations=[msgspec.structs.replace(WRONG, cases=[case])])
    (read,) = results_json.loads(results_json.dumps(written)).evaluations
    assert (read.cases[0].worst.got, read.cases[0].worst.expected, read.cases[0].error_ratio) == (None, None, None)


def test_a_file_that_holds_sentences_alone_keeps_them():
    written = json.loads(results_json.dumps(msgspec.structs.replace(RESULTS, evaluations=[FAST])))
    sentences = written["evaluations"][0]["notes"]
    del written["evaluations"][0]["noted"]
    (read,) = results_json.loads(json.dumps(written).encode()).evaluations
    assert [note.text for note in read.notes] == sentences


def test_a_file_that_does_not_say_why_is_read():
    written = json.loads(results_json.dumps(msgspec.structs.replace(RESULTS, evaluations=[WRONG])))
    (evaluation,) = written["evaluations"]
    assert evaluation.pop("failing") and evaluation["cases"][1].pop("explanation")
    (read,) = results_json.loads(json.dumps(written).encode()).evaluations
    assert (read.failing, read.cases[1].explanation) == (None, None)
    assert "  why: " not in formats.find("terminal").render(
        msgspec.structs.replace(RESULTS, evaluations=[read]), View()
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no file of results that eval.py wrote"),
        (b"[]", "no file of results that eval.py wrote"),
        (b'{"rows": []}', "missing required field `schema`"),
        (b'{"schema": "kernelgate.results/2", "environment": {}, "evaluations": []}',
         "newer than the 'kernelgate.results/1' that this kernelgate reads. Update kernelgate"),
        (b'{"schema": "other/1", "environment": {}, "evaluations": []}', f"eval.py writes '{SCHEMA}'"),
        (b'{"schema": "kernelgate.results/x", "environment": {}, "evaluations": []}', f"eval.py writes '{SCHEMA}'"),
        (b'{"schema": "kernelgate.results/1", "environment": {}, "evaluations": [{"status": "won"}]}', "Invalid value"),
    ],
    ids=["cut off", "a list", "another file", "newer", "another schema", "no version", "an unknown status"],
)  # fmt: skip
def test_a_file_that_cannot_be_read_as_results_says_why(tmp_path, content, said):
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        results_json.load(path)
    assert said in str(raised.value) and str(path) in str(raised.value)


def test_a_missing_file_of_results_says_so(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        results_json.load(tmp_path / "nothing.json")


# ---------------------------------------------------------------------- writing


def test_a_report_is_written_whole_and_keeps_permissions(tmp_path):
    path, link = tmp_path / "results.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path.name)
    files.write(link, "new")
    assert (path.read_text(), link.is_symlink(), stat.S_IMODE(path.stat().st_mode)) == ("new", True, 0o640)
    assert sorted(os.listdir(tmp_path)) == ["link.json", "results.json"]


def test_a_new_report_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "other").write_text("")
    files.write(tmp_path / "report", "text")
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_when_writing_fails_the_old_report_stays_and_nothing_else_is_left(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_file_that_is_a_mount_of_its_own_is_written_to(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    path.write_text("old")

    def busy(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    files.write(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["results.json"]


def test_results_are_in_their_file_when_nobody_reads_standard_output(tmp_path):
    """As behind a pipe to `head`, and for a report that is longer than a pipe holds."""
    path = tmp_path / "results.json"
    control, problem = ROOT / "tests/hostile/form/control.py", ROOT / "tests/fixtures/problems/small_layernorm.py"
    words = [sys.executable, ROOT / "eval.py", control, "--problem", problem, "--no-timing", "--json", path]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr
    assert [e.submission for e in results_json.load(path).evaluations] == ["control"]


def test_an_empty_word_is_a_path_and_no_verb():
    assert options.parse([""]).arguments.paths == (Path(""),)


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    files.write(path, "text")
    assert os.read(reader, 100) == b"text"
    assert stat.S_ISFIFO(path.stat().st_mode)
    os.close(reader)


# ---------------------------------------------------------------------- one file more


def test_a_format_is_one_file(tmp_path, monkeypatch):
    """A module beside the others is a format: nothing else names it."""
    (tmp_path / "lines.py").write_text(
        "def render(results, view):\n    return ''.join(f'{e.submission} {e.device}\\n' for e in results.evaluations)\n"
    )
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{formats.__name__}.lines", raising=False)
    asked = options.parse(["--report", f"lines={tmp_path / 'out'}", "submission.py"])
    assert asked.output.reports == (("lines", str(tmp_path / "out")),)
    assert (
        formats.find("lines").render(RESULTS, View())
        == "fast cuda\nwrong emulator\nracing emulator\nemulated emulator\nswinging cpu\nnoisy cpu\n"
    )


class MoreCounts(KernelCounts, frozen=True, kw_only=True):
    """With a counter that no report knows."""

    shuffles: int = 0


def test_a_counter_is_a_field_and_what_the_emulator_counts():
    """A field of KernelCounts is shown and written without another word; its name stands where it is counted."""
    counted = MoreCounts(kernel="normalise", launches=1, shuffles=1234)
    case = CasePassed(name="c", shape="1", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.0, counts=[counted])
    results = msgspec.structs.replace(RESULTS, evaluations=[msgspec.structs.replace(FAST, cases=[case])])
    assert "1,234 shuffles" in formats.find("terminal").render(results, View(verbose=True))
    assert '"shuffles": 1234' in formats.find("json").render(results, View())
    runtime = ROOT / "harness" / "device" / "emulator" / "csrc" / "runtime"
    for name in KernelCounts.__struct_fields__[1:]:  # findings have a kernel, too
        assert [path.name for path in runtime.iterdir() if f'\\"{name}\\":' in path.read_text()] == ["counts.cpp"], name


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        ("no rows of 7.", "no rows of 7."),
        ("\nRuntimeError: no compiler\n\nSet TORCHDYNAMO_VERBOSE=1\nfor more", "RuntimeError: no compiler"),
        (
            "Failed: it raised:\n  CppCompileError: no header\nin a file",
            "Failed: it raised: CppCompileError: no header",
        ),
        ("Failed:", "Failed:"),
        ("", ""),
    ],
)
def test_of_pages_that_a_baseline_prints_people_are_shown_what_went_wrong(why, shown):
    assert words.sentence(BaselineLeftOut(baseline="b", why=why)) == f"b was left out: {shown}"
    ended = words.sentence(BaselineEnded(baseline="b", case="c", why=why))
    assert ended == f"'c': b did not live to the end: {shown}"
