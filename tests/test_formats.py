"""Formats for other programs, read as those read them, and Markdown, read by a parser that knows nothing of it."""

import hashlib
import itertools
import json
import re
import statistics
import subprocess
import sys
from html import unescape

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.text import Text

from harness import notes, options
from harness.errors import UsageError
from harness.report import formats, gfm
from harness.report.lines import read_line
from harness.report.tables import Column
from harness.report.times import named
from harness.report.view import View
from harness.verdict import Baseline, Build
from tests.helpers import ROOT, run_eval
from tests.sample_results import FAST, NOISY, RESULTS, UNTIMED, WRONG, passed, ratio_of, timing
from tests.sample_results import times as times_of

LISTS = {"hyperfine", "bmf", "benchmark_action"}


def of(*evaluations, **environment):
    return msgspec.structs.replace(RESULTS, evaluations=list(evaluations), environment=environment)


def rendered(name, results, **view):
    return formats.find(name).render(results, View(**view))


def entries(name, results):
    """What a format that lists times holds, by name."""
    read = json.loads(rendered(name, results))
    match name:
        case "hyperfine":
            return {result["command"]: result for result in read["results"]}
        case "bmf":
            return read
        case _:
            return {entry["name"]: entry for entry in read}


def step(median_us, **more):
    return timing(
        median_us, 1.0, {"eager": Baseline(**times_of(2 * median_us, 1.0), speedup=ratio_of(2.0, 0.1))}, **more
    )


TRAINED = msgspec.structs.replace(
    FAST,
    submission="trained",
    cases=[passed("step", "8×8", timing=step(30.0, captured=step(20.0)),
                  parts={"forward": step(10.0, captured=step(5.0)), "backward": step(18.0)})],
    notes=[],
)  # fmt: skip


# ---------------------------------------------------------------------- times


def test_every_time_has_a_name_of_its_own():
    assert [name.removeprefix("layernorm/cuda/trained/") for name in named(of(TRAINED))] == [
        "step", "step: eager", "step/captured", "step/captured: eager",
        "step/forward", "step/forward: eager", "step/forward/captured", "step/forward/captured: eager",
        "step/backward", "step/backward: eager",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(LISTS))
def test_files_of_one_name_are_told_apart_by_their_sources(name):
    other = msgspec.structs.replace(TRAINED, source_sha256="f" * 64)
    found = entries(name, of(TRAINED, other, other))
    assert len(found) == 30
    assert {"layernorm/cuda/trained/step (0123456789)", "layernorm/cuda/trained/step (ffffffffff)"} < found.keys()


@pytest.mark.parametrize("name", sorted(LISTS))
def test_the_time_of_a_wrong_submission_is_in_no_list(name):
    wrong = msgspec.structs.replace(WRONG, cases=FAST.cases)
    assert entries(name, of(wrong, NOISY, UNTIMED)) == {}


def test_medians_and_intervals_are_in_the_unit_of_each_format():
    name = "layernorm/cuda/fast/headline/captured"  # 183 µs, 95% from 182.3 to 183.7
    metric = entries("bmf", of(FAST))[name]["latency"]
    assert metric == pytest.approx({"value": 183_000, "lower_value": 182_300, "upper_value": 183_700})
    entry = entries("benchmark_action", of(FAST))[name]
    assert (entry["value"], entry["unit"], entry["range"]) == (183.0, "us", "± 0.700")
    result = entries("hyperfine", of(FAST))[name]
    assert (result["median"], result["min"], result["max"]) == pytest.approx((183e-6, 182.3e-6, 183.7e-6))
    assert result["stddev"] == pytest.approx(statistics.stdev(result["times"]))
    assert len(result["exit_codes"]) == len(result["times"]) == 9


def test_hyperfine_has_the_processor_time_where_it_is_counted():
    found = entries("hyperfine", RESULTS)
    assert found["layernorm/cpu/swinging/headline"]["user"] == pytest.approx(798e-6)
    assert found["layernorm/cuda/fast/headline"]["user"] == 0.0


def test_who_is_not_ranked_is_marked_where_there_is_room_for_it():
    found = entries("benchmark_action", RESULTS)
    assert "not ranked" in found["layernorm/cpu/swinging/headline"]["extra"]
    ranked = entries("benchmark_action", of(TRAINED))
    assert not any("not ranked" in entry["extra"] for entry in ranked.values())


# ---------------------------------------------------------------------- JSON lines


def imported(lines, db):
    """What `eval.py import` says of a file."""
    command = [sys.executable, ROOT / "eval.py", "import", lines, "--db", db]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_lines_hold_each_evaluation_and_the_texts_that_it_is_of():
    text, problem = b"class ModelNew: ...", b"class Model: ..."
    found = msgspec.structs.replace(
        FAST, source_sha256=hashlib.sha256(text).hexdigest(), problem_sha256=hashlib.sha256(problem).hexdigest()
    )
    texts = {hashlib.sha256(known).hexdigest(): known for known in (text, problem, b"of something else")}
    lines = rendered("jsonl", of(found, WRONG, date="2026-01-01"), texts=texts).splitlines()
    (first, first_texts), (second, second_texts) = (read_line(line.encode()) for line in lines)
    assert (first.evaluations, second.evaluations) == ([found], [WRONG])
    assert first.environment == {"date": "2026-01-01"}
    assert (set(first_texts.values()), second_texts) == ({text, problem}, {})


def test_several_reports_of_one_run_and_its_lines_are_what_was_kept(tmp_path):
    files = {name: tmp_path / f"report.{name}" for name in ("jsonl", "markdown", "bmf", "json")}
    reports = [word for name, path in files.items() for word in ("--report", f"{name}={path}")]
    problem = ROOT / "tests/fixtures/problems/small_layernorm.py"
    run = run_eval(ROOT / "tests/hostile/form/control.py", "--problem", problem, "--no-timing", "--db",
                   tmp_path / "here.db", *reports)  # fmt: skip
    assert run.code == 0, run.stderr
    assert files["markdown"].read_text().startswith("**ACCEPTED** control")
    assert files["bmf"].read_text() == "{}\n"
    (line,) = files["jsonl"].read_text().splitlines()
    assert json.loads(line)["source"] == (ROOT / "tests/hostile/form/control.py").read_text()
    assert json.loads(line)["problem_source"] == problem.read_text()
    assert imported(files["jsonl"], tmp_path / "here.db") == "0 new, 1 known before, 0 refused."
    assert imported(files["jsonl"], tmp_path / "there.db") == "1 new, 0 known before, 0 refused."


def test_what_a_run_had_from_its_store_is_not_imported_again(tmp_path):
    kept = msgspec.structs.replace(UNTIMED, kept_from="2026-01-01T00:00:00+00:00")
    lines = tmp_path / "lines.jsonl"
    lines.write_text(rendered("jsonl", of(kept, WRONG)))
    assert imported(lines, tmp_path / "there.db").startswith("1 new, 0 known before, 0 refused. 1 left out")


@pytest.mark.parametrize(
    ("device", "checked", "built", "said"),
    [("emulator", False, True, True), ("emulator", True, True, False), ("cuda", False, True, False),
     ("emulator", False, False, False)],
)  # fmt: skip
def test_what_was_accepted_without_detectors_is_said_to_be(device, checked, built, said):
    build = Build(seconds=1.0, cached=False) if built else None
    kernel = msgspec.structs.replace(UNTIMED, device=device, build=build)
    page = formats.find("terminal").render(of(kernel), View(width=200, checked=checked))
    assert ("without its detectors, a race may not show; --check also looks for races" in page) == said


# ---------------------------------------------------------------------- asking


@pytest.mark.parametrize(
    "words",
    [
        ["--report", "markdown=a.md", "--report", "bmf=./a.md"],
        ["--report", "markdown=a", "--json", "a"],
        ["--report", "markdown=-", "--json", "-"],
    ],
)
def test_two_reports_to_one_file_are_refused(words):
    with pytest.raises(UsageError, match="Two reports cannot both go to "):
        options.parse(words)


def test_each_format_says_where_it_is_defined():
    for name in {*LISTS, "markdown", "jsonl"}:
        assert re.search(r"https://\S+\w", formats.find(name).__doc__), name


# ---------------------------------------------------------------------- Markdown

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = [
    "a|b",
    "a\\|b",
    "a\\",
    "`a`|`b",
    "``` a",
    "<script>alert(1)</script>",
    "<!-- comment",
    "[link](https://example.org)",
    "![image](https://example.org/x.png)",
    "**bold** __bold__ *a* ~~gone~~",
    "&lt;b&gt; &#124; &nbsp;",
    "line\nend | cell\n\n# heading",
    "# heading",
    "- item",
    "+",
    "1. item",
    "7)",
    "---",
    "===",
    "> quoted",
    "| --- |",
    "    indented",
    "\u202egnp.\u200b",
    "\x1b[31mred",
    "@team #1 $x$",
    "https://example.org, WWW.example.org and ftp://x_www.example.org",
]


def shown(text):
    """What a reader sees of a text that is in one line."""
    visible = "".join(c if c.isprintable() or c.isspace() else c.encode("unicode_escape").decode() for c in text)
    return " ".join(visible.split())


def plain(inline):
    """The text of an inline token, which must hold nothing but text."""
    assert {child.type for child in inline.children} <= {"text", "text_special"}, inline.content
    return "".join(child.content for child in inline.children).replace("\u200b", "").strip("\xa0")


def cells(tokens):
    """The rows of all tables."""
    rows = []
    for before, token in itertools.pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif before.type in ("td_open", "th_open"):
            rows[-1].append(plain(token))
    return rows


ANY = st.text(st.one_of(st.sampled_from("|\\`*_[]<>&~#-+=1.)@$! \n\t"), st.characters()), max_size=12)


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=3))
@example([(text, text) for text in HOSTILE])
def test_a_table_holds_what_was_put_in(rows):
    """Whatever it is: no cell more, no line more, no markup."""
    rows = [[Text(cell) for cell in row] for row in rows]
    made = gfm.table([Column("a|b", [row[0] for row in rows], "left"), Column("c", [row[1] for row in rows])])
    head, *read = cells(READER.parse(made))
    assert head == ["a|b", "c"]
    assert read == [[shown(cell.plain) for cell in row] for row in rows]


@given(ANY.filter(shown))
@pytest.mark.parametrize("where", ["{}", "- {}", "### {}", "so: {}"])
def test_escaped_text_is_no_markup(where, text):
    tokens = READER.parse(where.format(gfm.escaped(text)))
    (inline,) = [token for token in tokens if token.type == "inline"]
    assert plain(inline).removeprefix("so: ") == shown(text)


# How an address begins that is none between brackets: https://github.github.com/gfm/#autolinks-extension-.
ADDRESS = re.compile(r"(https?|ftp)://|www\.|[\w.+-]@[\w-]", re.IGNORECASE)


@pytest.mark.parametrize(
    "text", ["see https://example.org.", "HTTP://x.org", "_www.example.org", "Www.x.org", "a@b.org"]
)
def test_escaped_text_has_no_address_that_github_makes_a_link_of(text):
    assert ADDRESS.search(text)
    escaped = unescape(gfm.escaped(text))
    assert not ADDRESS.search(escaped) and escaped.replace("\\", "").replace("\u200b", "") == text


@given(ANY)
@example("```\n<b>\n````")
@example("~~~\n")
def test_a_fence_holds_its_lines_and_ends(text):
    fence, after = READER.parse(f"{gfm.fenced(text)}\n\nafter")[:2]
    assert (fence.type, after.type) == ("fence", "paragraph_open")
    assert [line.split() for line in fence.content.splitlines()] == [
        shown(line).split() for line in text.splitlines() or [""]
    ]


def filled_with(name):
    """Results that hold a name wherever a submission, a problem, a package or a file can fill something."""
    timed = timing(10.0, 1.0, {
        name: FAST.cases[0].timing.baselines["compile"],
        "eager": Baseline(**times_of(20.0, 1.0), speedup=ratio_of(2.0, 0.1), version=name),
    })  # fmt: skip
    fast = msgspec.structs.replace(
        FAST, submission=name, problem=name, cases=[passed(name, name, timing=timed)], kept_from=name,
        source_sha256=name,
        notes=[notes.Sentence(text=name), notes.BaselineLeftOut(baseline=name, why=name, case=name)],
    )  # fmt: skip
    failed = msgspec.structs.replace(WRONG.cases[1], name=name, shape=name, message=name, repeat=name)
    wrong = msgspec.structs.replace(WRONG, submission=name, problem=name, cases=[failed], message=name)
    return of(fast, wrong, fast, gpu=name, isolation={name: {"level": name, "contains": [], "lacks": name}})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_messages_leave_a_report_its_form(name):
    calm, hostile = (READER.parse(rendered("markdown", filled_with(name))) for name in ("calm", name))
    assert [token.type for token in hostile] == [token.type for token in calm]
    assert [marks(token) for token in hostile] == [marks(token) for token in calm]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("format_name", sorted({*LISTS, "jsonl"}))
def test_hostile_names_are_whole_in_formats_for_programs(format_name, name):
    results = filled_with(name)
    if format_name == "jsonl":
        read = [read_line(line.encode())[0].evaluations[0] for line in rendered("jsonl", results).splitlines()]
        assert read == results.evaluations
    else:
        assert list(entries(format_name, results)) == list(named(results))
        assert all(name in entry for entry in named(results))


def marks(token):
    """The markup of a line, whatever its text."""
    return [child.type for child in token.children or () if not child.type.startswith("text")]


def test_the_verdict_comes_first_and_times_are_called_and_captured():
    report = rendered("markdown", of(FAST, gpu="NVIDIA H200"))
    first = plainly(READER.parse(report)[1])
    assert first.startswith("ACCEPTED fast (layernorm, cuda): 3 cases correct; speedup over eager 2.79×")
    rows = {row[0]: row for row in cells(READER.parse(report))}
    assert (rows["headline"][4], rows["captured"][4], rows["gpu"]) == ("187 µs", "183 µs", ["gpu", "NVIDIA H200"])
    assert "1 more passed." in report


def plainly(inline):
    return "".join(child.content for child in inline.children)


def test_several_evaluations_are_counted_first():
    assert rendered("markdown", RESULTS).startswith("**3 of 6 accepted**, 2 rejected, 1 error.\n")
    assert rendered("markdown", RESULTS, quiet=True).count("\n") == 6
    assert rendered("markdown", of()) == "Nothing was evaluated.\n"
