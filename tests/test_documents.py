"""What the documents say is what the files hold."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys

import pytest

from harness import verbs
from harness.errors import UsageError
from harness.submission import read_submission
from harness.verdict import Accepted, Results
from tests.documents import blocks, commands, documents, prose
from tests.helpers import ROOT, run_eval

README = (ROOT / "README.md").read_text()


def test_tables_quotes_and_plots_are_made_from_what_is_committed():
    process = subprocess.run(
        [sys.executable, "benchmarks/write_documents.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


def test_committed_results_are_of_this_schema_and_hold_what_is_shipped():
    from harness.report.formats.json import load

    results = load(ROOT / "results" / "h200" / "layernorm.json")
    assert isinstance(results, Results)
    accepted = {e.submission for e in results.evaluations if isinstance(e, Accepted)}
    shipped = [read_submission(path) for path in (ROOT / "submissions" / "layernorm").glob("*.py")]
    assert accepted <= {submission.name for submission in shipped}
    # What only a GPU runs can be added without one; its row comes with the next run there.
    assert accepted >= {submission.name for submission in shipped if not submission.gpu_language}


def test_ci_runs_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    command = re.search(r"<!-- test command -->\n```sh\n(.*?)\n```", README)[1]
    assert "-m pytest" in command
    assert "test command" in script


def test_files_that_the_documents_link_exist():
    for document in documents():
        for target in re.findall(r"\]\(([^)#:]+)\)", prose(document)):
            assert (document.parent / target).exists(), f"{document.name} links {target}"


def test_the_page_of_the_command_has_the_options_of_each_verb_behind_it():
    from harness.options import judging

    page = (ROOT / "docs" / "cli.md").read_text()
    usage = page.split("```text\n", 1)[1].split("```", 1)[0]
    shown = {}
    for line in usage.splitlines():
        if line.startswith("eval.py "):
            named = [name for name in re.findall(r"eval\.py (\w+|\[)", line)]
        for verb in named:
            shown.setdefault(verb, set()).update(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", line))
    known = {verb: options_of(command) for verb, command in verbs.commands().items()}
    known["["] = options_of(judging)  # eval.py [PATH…]
    assert set(shown) == set(known)
    for verb, options in known.items():
        shorter = {"-q", "-v", "--quiet", "--verbose"}  # either of the two names will do
        assert shown[verb] - shorter == options - shorter, verb


def test_the_page_of_the_command_has_the_variables_that_are_read():
    read = {
        name
        for path in (ROOT / "harness").rglob("*.py")
        for name in re.findall(r"\bKERNELGATE_[A-Z_]+\b", path.read_text())
    }
    page = (ROOT / "docs" / "cli.md").read_text()
    assert read == set(re.findall(r"^\| `(KERNELGATE_[A-Z_]+)` \|", page, re.MULTILINE))


def test_the_page_of_programs_has_their_options_and_the_fields_of_answers():
    from harness.lanes.options import Options
    from harness.serve.answers import Answer

    page = (ROOT / "docs" / "api.md").read_text()
    fields = {*Options.__struct_fields__, *Answer.__struct_fields__} - {"id"}
    assert fields - set(re.findall(r"`(\w+)`", page)) == set()


def test_the_readme_is_read_in_three_minutes():
    lines = [line for line in prose(ROOT / "README.md").splitlines() if not line.startswith(("|", "<!--"))]
    assert len(" ".join(lines).split()) <= 800


def test_every_page_is_found_from_the_index_of_questions():
    linked = set(re.findall(r"\]\(([^)#:]+)", (ROOT / "docs" / "README.md").read_text()))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} | {"path/README.md"}
    assert pages - linked == set()


def options_of(command):
    return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}


def test_a_baseline_that_was_left_out_of_a_case_is_a_dash_in_the_table_of_cases():
    from documents.markdown import cases_table, table

    from harness.verdict import SCHEMA, Baseline, CasePassed, CaseTiming, Speedup

    times = dict(median_us=2.0, interval_us=(1.9, 2.1), samples_us=[2.0], calls_per_round=1, fixed_us=0.0)
    floor = dict(floor_us=1.0, floor_fraction=0.5, bytes_min=1, launch_bound=False)
    peer = Baseline(**times, speedup=Speedup(ratio=1.0, interval=(0.9, 1.1)), version="liger-kernel 0.8.5")
    cases = [
        CasePassed(name=name, shape="8×8", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.0,
                   timing=CaseTiming(**times, **floor, baselines=baselines))
        for name, baselines in (("short", {"liger": peer}), ("long", {}))
    ]  # fmt: skip
    accepted = Accepted(
        problem="rmsnorm", submission="mine", source_sha256="", device="cuda", seed=1, cases=cases,
        geomean_speedup=1.0, geomean_interval=(1.0, 1.0),
    )  # fmt: skip
    results = Results(schema=SCHEMA, environment={}, evaluations=[accepted])
    assert "| short, 8×8 | 1 µs | 2 µs, 50% | 2 µs, 50% |" in cases_table(results)
    assert "| long, 8×8 | 1 µs | – | 2 µs, 50% |" in cases_table(results)
    assert "liger (liger-kernel 0.8.5)" in table(results)
    assert "over the fastest of the baselines" in table(results)


# ---------------------------------------------------------------------- blocks and commands

BLOCKS = blocks()
RUN = {"sh", "python"}
SHELL_MARKERS = {"", "tested as", "needs", "evaluate command", "test command"}
NOTHING_TO_RUN = {"drawing", "formula", "usage"}
WRITES = {"--json", "--out"}  # the file behind it need not exist
PLACEHOLDER = re.compile(r"^[A-Z]+$|…|\[|\]|path/to|^my\.py$")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_how_it_is_tested(block):
    """No block is passed over: the ways are those of tests/documents.py."""
    if block.marker == "quote":
        return  # test_tables_quotes_and_plots_are_made_from_what_is_committed
    if block.language == "sh":
        assert block.marker in SHELL_MARKERS, f"{block}: unknown marker {block.marker!r} before a sh block"
        assert block.marker != "needs" or block.said == "gpu", f"{block}: only a GPU can be needed"
    elif block.language == "python":
        assert block.marker in {"", "submission", "problem"}, (
            f"{block}: unknown marker {block.marker!r} before a python block"
        )
    elif block.language == "diff":
        assert block.marker in {"exercise", ""}, f"{block}: unknown marker {block.marker!r} before a diff"
    else:
        assert block.language == "text", f"{block}: say sh, python or text, or quote the code from its file"
        assert block.marker in NOTHING_TO_RUN, f"{block}: a text block needs a marker, or is to be a quote of a file"


def test_code_stands_in_fences():
    for document in documents():
        indented = re.search(r"^(?![ ]*([-*]|\d+\.)).*\n\n {4}\S.*", prose(document), re.MULTILINE)
        assert not indented, f"{document.name} has an indented block; fence it: {indented[0]!r}"


def complaint_about(command):
    """What is wrong with a command's program, options or files; empty when nothing is."""
    words = shlex.split(command, comments=True)
    if words[:1] in (["python"], [".venv/bin/python"]):
        words = words[1:]
    if words[:1] == ["-m"]:
        return "" if importlib.util.find_spec(words[1]) else f"no module {words[1]}"
    read = [word for before, word in zip(["", *words], words, strict=False) if before not in WRITES]
    read = [word for word in read if not word.startswith("FOLDER/")]  # of results, see docs/results.md
    if missing := [w for w in read if "/" in w and w.endswith((".py", ".json", ".txt")) and not (ROOT / w).exists()]:
        return f"no file {', '.join(missing)}"
    return complaint_of_eval(words[1:]) if words[0] == "eval.py" else ""


def complaint_of_eval(arguments):
    from harness.options import parse

    try:
        parse(arguments)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "sh"], ids=str)
def test_a_commands_options_and_files_exist(block):
    for command in commands(block.text) + commands(block.said if block.marker == "tested as" else ""):
        if command.split()[0] in ("python", ".venv/bin/python"):
            assert complaint_about(command) == "", f"{block}: {command}"
        else:
            assert re.match(r"python3 -m venv \.venv$|\.venv/bin/pip install ", command), f"{block}: {command}"
            assert block.marker in ("evaluate command", "test command"), f"{block} installs without saying where it ran"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.marker == "tested as"], ids=str)
def test_a_cheaper_command_judges_the_same_files(block):
    def files(command):
        return [word for word in shlex.split(command) if word.endswith(".py")]

    assert files(block.said) == files(block.text)


def test_commands_in_prose_name_options_and_files_that_exist():
    from harness import verbs
    from harness.options import judging

    known = options_of(judging) | {"-h", "--help"}
    known |= {option for command in verbs.commands().values() for option in options_of(command)}
    for document in documents():
        for span in re.findall(r"`([^`]+)`", prose(document)):
            words = span.split()
            if words[0] not in ("python", "eval.py") or len(words) == 1:
                continue
            plain = [word for word in words if not PLACEHOLDER.search(word)]
            if "eval.py" in words[:2]:
                unknown = {w.split("=")[0] for w in plain if w.startswith("-") and w.split("=")[0] not in known}
                assert not unknown, f"{document.name}: {span}"
                plain = [word for word in plain if not word.startswith("-")]
                complaint = complaint_about(shlex.join([w for w in plain if w.endswith(".py")]))
            else:
                complaint = complaint_about(shlex.join(plain))
            assert complaint == "", f"{document.name}: {span}: {complaint}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "path").glob("[0-9]*.md")), ids=lambda p: p.stem)
def test_a_page_of_the_path_quotes_what_its_commands_run(page):
    """Its rung, or a file of its own beside it."""
    quoted = set(re.findall(r"^<!-- quote: ((?:submissions|docs/path)/\S+?):", page.read_text(), re.MULTILINE))
    here = [b for b in BLOCKS if b.document == f"docs/path/{page.name}" and b.language == "sh"]
    assert len([file for file in quoted if file.startswith("submissions")]) <= 1
    assert all(len(quoted & set(b.text.split())) == 1 for b in here)
    run = {word for b in here if b.marker in ("", "tested as") for word in b.text.split()}
    assert quoted and quoted <= run


def test_every_rung_has_a_page():
    pages = " ".join(page.read_text() for page in (ROOT / "docs" / "path").glob("[0-9]*.md"))
    rungs = [*(ROOT / "submissions" / "layernorm").glob("rung*.py"), ROOT / "submissions/layernorm/speed_of_light.py"]
    assert [path.stem for path in rungs if f"python eval.py submissions/layernorm/{path.name}\n" not in pages] == []


# What the pages of the path say of their tables, for results that will be measured again.
CLAIMS = {
    "2-shared-memory-tree.md": (
        "The short rows gain most",
        lambda gain: min(gain("32x128x768", 2, 1), gain("8192x1024", 2, 1)) > 1.1 * gain("2048x16384", 2, 1),
    ),
    "3-warp-shuffle.md": (
        "Again the short rows gain; long ones stay about where they were.",
        lambda gain: gain("8192x1024", 3, 2) > 1.1 and abs(gain("2048x16384", 3, 2) - 1) < 0.2,
    ),
    "4-registers.md": (
        "All rows that fit gain, the longest of them the most.",
        lambda gain: gain("2048x16384", 4, 3) > gain("8192x4096", 4, 3) > 1.0 and gain("8192x1024", 4, 3) > 1.0,
    ),
    "5-split-rows.md": (
        "The headline gains what the walk began for. The others lose",
        lambda gain: gain("headline", 5, 4) > 5 and max(gain("8192x1024", 5, 4), gain("2048x16384", 5, 4)) < 1,
    ),
}


@pytest.mark.parametrize("page", CLAIMS)
def test_what_a_page_says_of_its_table_was_measured(page):
    from documents.ladder import ladder

    from harness.report.formats.json import load

    sentence, holds = CLAIMS[page]
    rungs = {r.name[:5]: r.times for r in ladder(load(ROOT / "results" / "h200" / "layernorm.json")).rungs}

    def gain(case, rung, before):
        return rungs[f"rung{before}"][case].median_us / rungs[f"rung{rung}"][case].median_us

    assert sentence in (ROOT / "docs" / "path" / page).read_text()
    assert holds(gain), f"{page} says {sentence!r}; the results in its table no longer do"


# ---------------------------------------------------------------------- how documents are filled

RESULTS = re.compile(
    r"<!-- (table|summary|problems|ladder|rung|measured|agreement): ([^\n]*) -->\n(.*?)<!-- end of table -->", re.DOTALL
)
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def tables_of_results():
    """Each table that a document shows of results: its marker and text, problem by problem."""
    for document in documents():
        for kind, of, text in RESULTS.findall(document.read_text()):
            parts = text.split("\n## ") if kind == "problems" else [text]
            yield from ((f"{document.name}: {kind} {of}: {part[:40]!r}", part) for part in parts)


def test_a_table_of_results_shows_when_they_were_measured():
    tables = dict(tables_of_results())
    assert len(tables) > 30
    assert [name for name, text in tables.items() if not DATE.search(text) and "Not measured yet" not in text] == []


@pytest.mark.parametrize("marker", ["summary: results/h200", "measured: results/h200: peers",
                                    "measured: results/h200: launches", "measured: results/h200: checks"])  # fmt: skip
def test_a_table_over_many_runs_shows_the_date_of_each(marker):
    from documents.markdown import refresh

    rows = refresh(f"<!-- {marker} -->\n<!-- end of table -->\n").splitlines()[3:-1]
    measured = [row for row in rows if "not measured yet" not in row]
    assert measured and [row for row in measured if not DATE.search(row)] == []


def test_a_table_says_which_changes_its_run_is_older_than():
    from documents.age import Change, older

    changes = [Change("2026-01-02T00:00:00+00:00", "this"), Change("2026-01-03T00:00:00+00:00", "that")]
    assert older({"date": "2026-01-01T12:00:00+00:00"}, changes) == (
        " Measured before 2 changes that may move it; the last: that."
    )
    assert older({"date": "2026-01-02T12:00:00+00:00"}, changes) == " Measured before that."
    assert older({"date": "2026-01-03T12:00:00+00:00"}, changes) == ""
    assert older({}, changes) == ""


def test_reasons_fill_their_marker():
    from documents.markdown import refresh

    page = refresh("<!-- reasons -->\nstale\n<!-- end of table -->\n")
    assert "| `wrong_output` |" in page and "stale" not in page
    assert refresh(page) == page


def test_formats_fill_their_marker():
    from documents.markdown import refresh

    from harness.report import formats

    page = refresh("<!-- formats -->\nstale\n<!-- end of table -->\n")
    assert "stale" not in page and refresh(page) == page
    assert [line for name in formats.names() for line in page.splitlines() if line.startswith(f"| `{name}` | ")] == (
        page.splitlines()[3:-1]
    )


def keys_of(written, names=("baselines", "parts")):
    """All keys of objects within, but those of `environment`, which is free, and those by which something is named."""
    if isinstance(written, list):
        return set().union(*map(keys_of, written))
    if not isinstance(written, dict):
        return set()
    inner = [keys_of(list(v.values()) if k in names else v) for k, v in written.items() if k != "environment"]
    return set(written).union(*inner)


def test_the_page_of_json_names_every_field_that_is_written():
    page = (ROOT / "docs" / "json.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    timed = json.loads((ROOT / "results" / "h200" / "layernorm_train.json").read_text())
    rejected = run_eval(ROOT / "tests" / "fixtures" / "wrong" / "rmsnorm", "--problem", "rmsnorm", untimed=True).results
    assert "rejected" in {e["status"] for e in rejected["evaluations"]}
    written = keys_of(timed) | keys_of(rejected)
    assert {"floor_us", "explanation", "noted", "captured"} <= written
    assert written <= named, sorted(written - named)


def test_the_page_of_json_says_what_each_field_is():
    page = (ROOT / "docs" / "json.md").read_text()
    assert re.findall(r"^\| `\w+` \|.*\|\s*\|$", page, re.MULTILINE) == []


def test_each_file_of_tests_stands_beside_its_room():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [path.name for path in (ROOT / "tests").glob("test_*.py") if f"`tests/{path.name}`" not in page] == []


def test_a_plot_is_drawn_the_same_each_time_and_knows_its_figures(tmp_path):
    from documents import plot
    from documents.ladder import Figures

    figures = Figures(gpu="GPU", cases=["a", "b"], shares={"eager": [0.5, None], "mine": [0.9, 0.1]})
    paths = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in paths:
        plot.draw(figures, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert plot.is_drawn_from(paths[0], figures)
    other = Figures(gpu="GPU", cases=["a", "b"], shares={"eager": [0.5, None], "mine": [0.9, 0.2]})
    assert not plot.is_drawn_from(paths[0], other)


def test_a_changed_source_makes_a_quote_stale_and_a_lost_name_is_told(tmp_path, monkeypatch):
    from documents import markdown, quotes

    monkeypatch.setattr(markdown, "ROOT", tmp_path)
    (tmp_path / "x").mkdir()
    source = tmp_path / "x" / "y.py"
    source.write_text(
        'CUDA = r"""\n// Twice.\n__device__ int f(int a) {\n    int b = a;\n\n    return 2 * b;\n}\n"""\n'
    )
    page = "<!-- quote: x/y.py: f -->\n<!-- end of quote -->\n"
    fresh = markdown.refresh(page)
    assert "```cuda\n// Twice.\n__device__ int f(int a) {\n    int b = a;\n\n    return 2 * b;\n}\n```\n" in fresh
    assert markdown.refresh(fresh) == fresh
    source.write_text(source.read_text().replace("2 * b", "b + b"))
    assert "b + b" in markdown.refresh(fresh)
    source.write_text(source.read_text().replace("int f(", "int g("))
    with pytest.raises(quotes.QuoteError, match="no top-level definition of f"):
        markdown.refresh(fresh)
