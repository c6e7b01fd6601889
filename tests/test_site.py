"""The site of pages that `eval.py report --html` makes: its links, texts, sizes, and what it refuses."""

import json
import math
import os
import re
import sqlite3
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from harness.errors import UsageError
from harness.report.formats.json import loads
from harness.report.site import names
from harness.report.site.build import FOLDERS, build_site
from harness.report.site.charts.samples import samples
from harness.report.site.source import source_of
from harness.store import boards, open_store
from harness.verdict import Worst
from tests import sites
from tests.helpers import ROOT
from tests.sample_results import RACING

LARGEST_BYTES = 300_000


class Page(HTMLParser):
    """A page's elements and texts."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.path, self.tags, self.text, self._quiet = path, [], "", 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._quiet += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._quiet -= tag in ("script", "style")

    def handle_data(self, data):
        self.text += "" if self._quiet else data

    @property
    def hrefs(self):
        return [attrs["href"] for _, attrs in self.tags if attrs.get("href") and not attrs["href"].startswith("data:")]

    @property
    def ids(self):
        return {attrs["id"] for _, attrs in self.tags if "id" in attrs}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return sites.site_of_everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def pages(everything):
    return {path: Page(path) for path in sorted(everything[1].rglob("*.html"))}


def page_of(everything, pages, evaluation):
    key = names.submission_key(evaluation.source_sha256, evaluation.problem, evaluation.device)
    return pages[everything[1] / "submissions" / f"{key}.html"]


def report(*words, env=None):
    command = [sys.executable, str(ROOT / "eval.py"), "report", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})


# ---------------------------------------------------------------------- the command


def test_committed_results_become_a_site_by_one_command(tmp_path):
    run = report("--html", tmp_path / "site", ROOT / "results" / "h200")
    assert (run.returncode, run.stderr) == (0, "")
    assert f"{tmp_path / 'site' / 'index.html'}: " in run.stdout
    text = Page(tmp_path / "site" / "index.html").text
    assert all(e.submission in text for e in sites.measured().evaluations)


def test_results_beside_a_database_are_shown_with_it_and_leave_it_as_it_is(tmp_path):
    db = tmp_path / "a.db"
    with open_store(db) as store:
        store.add([sites.of_source(sites.FAST, "fast")], sites.ENVIRONMENT, {})
    run = report("--html", tmp_path / "site", "--db", db, ROOT / "results" / "h200" / "rmsnorm.json")
    assert run.returncode == 0, run.stderr
    text = Page(tmp_path / "site" / "index.html").text
    assert "fast" in text and "rmsnorm" in text
    with open_store(db) as store:
        assert len(list(store.stored())) == 1


def test_a_site_replaces_an_earlier_one_and_leaves_other_files(tmp_path):
    out = tmp_path / "site"
    build_site(two(tmp_path), out)
    (out / "CNAME").write_text("example.org")
    earlier = {path.name for path in (out / "submissions").iterdir()}
    db = tmp_path / "other.db"
    with open_store(db) as store:
        store.add([sites.of_source(sites.FAST, "another")], sites.ENVIRONMENT, {})
    build_site(db, out)
    now = {path.name for path in (out / "submissions").iterdir()}
    assert len(now) == 1 and not now & earlier
    assert (out / "CNAME").read_text() == "example.org"


def two(folder):
    db = folder / "two.db"
    with open_store(db) as store:
        store.add([sites.of_source(sites.FAST, text) for text in ("a", "b")], sites.ENVIRONMENT, {})
    return db


def test_a_site_is_the_same_each_time(everything, tmp_path):
    db, out = everything
    build_site(db, tmp_path / "again")
    for path in out.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(out)).read_bytes(), path


def test_what_stands_in_the_way_of_a_site_is_said(tmp_path):
    db = two(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("mine")
    full = report("--html", tmp_path / "home", "--db", db)
    assert full.returncode == 2 and "holds something else than a site" in full.stderr
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.txt"]
    file = report("--html", db, "--db", db)
    assert file.returncode == 2 and "is a file" in file.stderr
    nothing = report("--html", tmp_path / "site", "--db", tmp_path / "none.db")
    assert nothing.returncode == 2 and "There is no database" in nothing.stderr
    with open_store(tmp_path / "empty.db"):
        pass
    empty = report("--html", tmp_path / "site", "--db", tmp_path / "empty.db")
    assert empty.returncode == 2 and "has no evaluation" in empty.stderr
    assert not (tmp_path / "site").exists()
    without = report("--db", db)
    assert without.returncode == 2 and "--html" in without.stderr
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schema": 1}')
    beside = report("--html", tmp_path / "site", damaged, ROOT / "results" / "h200" / "rmsnorm.json")
    assert beside.returncode == 2 and "damaged.json" in beside.stderr
    assert "read_once" in Page(tmp_path / "site" / "index.html").text


def test_a_build_that_was_interrupted_is_made_again(tmp_path, monkeypatch):
    db, out = two(tmp_path), tmp_path / "site"
    with monkeypatch.context() as patched:
        patched.setattr("harness.report.site.build.compare_page", interrupt)
        with pytest.raises(KeyboardInterrupt):
            build_site(db, out)
    assert [*(out / "submissions").iterdir()]
    build_site(db, out)
    assert "fast" in Page(out / "index.html").text


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_folder_that_cannot_be_read_is_a_sentence(tmp_path, monkeypatch):
    out = tmp_path / "site"
    build_site(two(tmp_path), out)
    (out / "index.html").unlink()
    (out / "index.html").symlink_to("/proc/self/mem")  # a file whose beginning nobody may read
    with pytest.raises(UsageError, match=r"The site .* cannot be written: "):
        build_site(tmp_path / "two.db", out)


@pytest.mark.parametrize("package", ["jinja2", "pygments"])
def test_a_missing_package_is_a_sentence(package, tmp_path):
    program = (
        f"import sys; sys.modules['{package}'] = None; from harness.verbs.report import write_site; "
        "from harness.errors import UsageError\n"
        f"from pathlib import Path\ntry:\n    write_site(Path('{tmp_path}/site'), [], Path('{two(tmp_path)}'))\n"
        "except UsageError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert f"The site is made with {package} (pip install 'kernelgate[html]')" in run.stdout, run.stderr


# ---------------------------------------------------------------------- links and sizes


def test_every_link_leads_to_a_file_and_a_place_in_it(everything, pages):
    followed = 0
    for path, page in pages.items():
        for href in page.hrefs:
            parts = urlsplit(href)
            assert not parts.scheme and not parts.netloc, f"{path}: {href}"
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file() and everything[1] in target.parents, f"{path}: {href}"
            if parts.fragment and "=" not in parts.fragment:
                assert parts.fragment in pages[target].ids, f"{path}: {href}"
            followed += 1
    assert followed > 500


def test_every_entry_has_a_page_and_every_page_is_reached(everything, pages):
    out = everything[1]
    reached, waiting = set(), [out / "index.html"]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            found = [(path.parent / urlsplit(href).path).resolve() for href in pages[path].hrefs if urlsplit(href).path]
            waiting += [target for target in found if target.suffix == ".html"]
    assert reached == set(pages)


def test_pages_are_small_whatever_they_show(everything, tmp_path):
    db = tmp_path / "huge.db"
    with open_store(db) as store:
        texts = {sites.sha256(sites.huge_source()): sites.huge_source().encode()}
        store.add([sites.huge()], sites.ENVIRONMENT, texts)
        many = [sites.of_source(sites.FAST, f"source {n}", submission="s" * 300 + str(n)) for n in range(1000)]
        store.add(many, sites.ENVIRONMENT, {})
    build_site(db, tmp_path / "huge")
    found = [*everything[1].rglob("*.html"), *(tmp_path / "huge").rglob("*.html")]
    assert {path: size for path in found if (size := path.stat().st_size) >= LARGEST_BYTES} == {}
    entries = sum(
        Page(path).text.count("ssss … (") for path in (tmp_path / "huge" / "problems").glob("layernorm*.html")
    )
    assert entries >= 1000  # what one page has no room for stands on the next
    (page,) = [p for p in (tmp_path / "huge" / "submissions").iterdir() if "<h1>nnn" in p.read_text()]
    assert "more lines stand in" in page.read_text()


def test_a_page_stands_alone(pages):
    """What it needs is in it: it can be sent to somebody."""
    for path, page in pages.items():
        assert not [attrs for tag, attrs in page.tags if tag in ("link", "img", "iframe") and "data:" not in str(attrs)]
        assert all("src" not in attrs for tag, attrs in page.tags if tag == "script"), path


# ---------------------------------------------------------------------- hostile texts


def test_hostile_names_are_texts(everything, pages):
    for path, page in pages.items():
        scripts = sum(tag == "script" for tag, _ in page.tags)
        assert scripts == (3 if path.name == "compare.html" else 2), path
        assert not [t for t in page.tags if t[0] in ("img", "iframe", "object", "base")], path
        assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")], path
    index = pages[everything[1] / "index.html"].text
    shown = [name for name in sites.HOSTILE_NAMES if "\u202e" not in name and "\x00" not in name]
    assert [name for name in shown if name not in index] == []
    assert "fast\\u{202e}gnorw" in index and "a\\u{0}b" in index
    assert "\u202e" not in "".join(path.read_text() for path in everything[1].rglob("*.html"))


def test_hostile_names_name_no_file(everything):
    db, out = everything
    assert sorted(path.name for path in db.parent.iterdir() if not path.name.startswith("results.db")) == ["site"]
    found = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
    plain = re.compile(rf"(({'|'.join(FOLDERS)})/)?[a-z0-9-]+\.(html|json|js|txt)")
    assert [name for name in found if not plain.fullmatch(name)] == []


def test_what_the_comparing_script_loads_is_data(everything):
    for path in (everything[1] / "data").iterdir():
        text = path.read_text()
        assert text.isascii() and "<" not in text
        assert text.startswith("kernelgate({") and text.endswith("});\n")
        json.loads(text.removeprefix("kernelgate(").removesuffix(");\n"))


def test_a_hostile_source_is_shown_as_it_is(everything, pages):
    page = next(p for p in pages.values() if "onclick=alert(1)" in p.text)
    assert '</script><img src=x onerror="document.title=' in page.text
    (raw,) = {p.read_text() for p in (everything[1] / "sources").iterdir() if "onclick" in p.read_text()}
    assert raw == sites.HOSTILE_SOURCE


@pytest.mark.parametrize("figure", [0.0, -1.0, 1e-300, 1e300, 5e-324])
def test_figures_that_no_clock_gave_make_a_page(figure, tmp_path):
    """An import takes figures as they are written."""
    written = msgspec.to_builtins(sites.of_source(sites.FAST, "odd"))
    for timing in (c["timing"] for c in written["cases"] if c.get("timing")):
        baselines = timing["baselines"].values()
        for one in (timing, *baselines):
            one |= {
                "median_us": figure,
                "interval_us": [figure, figure],
                "samples_us": [figure] * 9,
                "issue_us": figure,
            }
        for one in baselines:
            one["speedup"] = {"ratio": figure, "interval": [figure, -figure]}
        timing |= {"floor_us": figure, "floor_fraction": figure}
    from harness.verdict import Evaluation

    db = tmp_path / "odd.db"
    with open_store(db) as store:
        odd = msgspec.convert(written, Evaluation)
        store.add([odd, sites.of_source(odd, "beside it")], sites.ENVIRONMENT, {})
    assert build_site(db, tmp_path / "site").pages == 5


# ---------------------------------------------------------------------- what pages say


def test_the_ranking_is_the_stores(everything, pages):
    """As the terminal shows it: one view of the database, read in one place."""
    with open_store(everything[0]) as store:
        (board,) = [b for b in boards(store, "layernorm") if b.model == "NVIDIA H200"]
    expected = [(str(e.rank or "–"), e.submission, e.standing.value) for e in board.entries]
    assert {"ranked", "withdrawn"} <= {standing for _, _, standing in expected}
    written = (everything[1] / "index.html").read_text()
    rows = [row for row in written.split("<tr")[1:] if 'data-problem="layernorm"' in row and ", NVIDIA H200<" in row]
    shown = [[unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]
    standings = {standing for _, _, standing in expected}
    assert [(row[0], row[1], next(c for c in row if c in standings)) for row in shown] == expected


def test_a_rejected_submission_says_why_and_how_to_repeat_it(everything, pages):
    wrong = sites.of_source(sites.WRONG, sites.WRONG_SOURCE)
    page = page_of(everything, pages, wrong)
    assert "Rejected, wrong_output: 3 of 5 cases failed" in page.text
    failure = wrong.cases[1]
    assert failure.repeat in page.text and failure.message in page.text
    assert "The worst element is [1, 2] of output 0: 1.5, and should be 1." in page.text


def test_an_element_that_is_no_number_makes_a_page(tmp_path):
    """JSON has no NaN: the store gives none back."""
    case = msgspec.structs.replace(
        sites.WRONG.cases[1], worst=Worst(output=0, index=[1], got=math.nan, expected=1.0), message="It is nan."
    )
    assert "It is nan." in page_of_one(tmp_path, sites.of_source(sites.WRONG, "nan", cases=[case])).text


def page_of_one(folder, evaluation, source=""):
    """The page of the one submission that a database holds."""
    db = folder / "one.db"
    with open_store(db) as store:
        store.add([evaluation], sites.ENVIRONMENT, {evaluation.source_sha256: source.encode()} if source else {})
    build_site(db, folder / "site")
    (path,) = (folder / "site" / "submissions").iterdir()
    return Page(path)


def test_what_all_detectors_saw_is_the_failure_and_stands_beside_its_lines(tmp_path):
    racing = sites.of_source(RACING, sites.WRONG_SOURCE, submission="wrong")
    page = page_of_one(tmp_path, racing, sites.WRONG_SOURCE)
    assert "large, 8×4096: data_race" in page.text and racing.finding.repeat in page.text
    assert noted(page) == [
        ("7", ["data_race: wrote"]),
        ("12", ["It reads what thread 0 has just written. (wrong.py:12)", "data_race: reads"]),
        ("21", ["out_of_bounds: The kernel reads behind the end of x. (wrong.py:21)"]),
    ]
    assert "Also out_of_bounds: The kernel reads behind the end of x." in page.text


def noted(page):
    """Lines of the source by their numbers, with what stands beside them."""
    lines = re.findall(r"<li id=L(\d+) class=found>(.*)", page.path.read_text())
    return [(number, [unescape(said) for said in re.findall("<span class=note>(.*?)</span>", line)])
            for number, line in lines]  # fmt: skip


def test_findings_stand_beside_their_line(everything, pages):
    path = page_of(everything, pages, sites.of_source(sites.WRONG, sites.WRONG_SOURCE)).path
    line = re.search(r"<li id=L40 class=found>(.*)", path.read_text())[1]
    assert "x[38] = " in re.sub("<[^>]*>", "", line)
    assert "Two threads write y[3]. (kernel normalise, wrong.py:40)" in line
    assert "32-way bank conflict, the worst of normalise" in line


def test_compilers_messages_stand_beside_their_lines(tmp_path):
    message = "wrong.py:3: identifier \"y\" is undefined\nother.py:3: not here\nwrong.py:5: expected a ';'"
    refused = sites.of_source(sites.WRONG, sites.WRONG_SOURCE, message=message, cases=[])
    assert noted(page_of_one(tmp_path, refused, sites.WRONG_SOURCE)) == [
        ("3", ['identifier "y" is undefined']), ("5", ["expected a ';'"]),
    ]  # fmt: skip


def test_a_page_shows_what_was_measured(everything, pages):
    page = page_of(everything, pages, sites.of_source(sites.FAST, "fast"))
    assert "Accepted: 3 cases correct; speedup over eager 2.79× [2.71, 2.86]" in page.text
    plots = [
        "Speedup of each case",
        "Time against size",
        "Roofline",
        "Speedup over eager, over time",
        "Samples over time",
    ]
    assert [title for title in plots if title not in page.text] == []
    assert "headline, captured" in page.text  # a row of its own
    assert "255" in page.text and "16 B" in page.text and "24 B" in page.text  # registers and spills
    assert "SM at 1755 to 1980 MHz" in page.text or "too hot for its driver" in page.text
    assert "another source" in page.text  # the history of its name


def test_a_plot_of_many_rounds_tells_of_all_of_them():
    """It draws some, and the slowest may be none of these."""
    samples_us = [100.0] * 200
    samples_us[1] = 900.0
    timing = msgspec.structs.replace(sites.FAST.cases[0].timing, samples_us=samples_us)
    (chart,) = samples([msgspec.structs.replace(sites.FAST.cases[0], timing=timing)])
    assert "200 rounds from 100 µs to 900 µs" in chart.svg
    assert chart.svg.count("h0") <= 60  # dots


def test_a_drift_is_said_in_words():
    rising = [100.0 + n // 5 * 10 for n in range(10)]
    timing = msgspec.structs.replace(sites.FAST.cases[0].timing, samples_us=rising, conditions=None)
    (chart,) = samples([msgspec.structs.replace(sites.FAST.cases[0], timing=timing)])
    assert chart.caption == "Drifts: the second half takes 10.0% longer."


def test_withdrawn_is_said_with_its_reason(everything, pages):
    taken = next(e for e in sites.measured().evaluations if e.submission == "rung1_block_per_row")
    assert "Withdrawn: It was <b>a copy</b>." in page_of(everything, pages, taken).text


def test_raw_results_are_the_evaluation(everything):
    db, out = everything
    with open_store(db) as store:
        latest = {}
        for stored in store.stored():
            e = stored.evaluation
            latest[names.submission_key(e.source_sha256, e.problem, e.device)] = e
    for key, evaluation in latest.items():
        assert loads((out / "raw" / f"{key}.json").read_bytes()).evaluations == [evaluation]


def test_a_problem_says_who_wins_its_cases(everything, pages):
    """On a GPU speed_of_light is faster than all rungs on each timed case of layernorm."""
    page = pages[everything[1] / "problems" / f"{names.problem_key('layernorm')}.html"]
    assert re.search(r">speed_of_light</a></th>\s*<td[^>]*>8</td>", page.path.read_text())
    assert "class Model(nn.Module)" in page.text  # its reference
    assert "judged and not timed" in page.text


@pytest.mark.parametrize("path", sorted((ROOT / "submissions").rglob("*.py")), ids=lambda p: p.stem)
def test_a_source_in_colours_is_the_source(path):
    lines = source_of(path.read_text(), {}).lines
    text = "\n".join(unescape(re.sub("<[^>]*>", "", line.code)) for line in lines)
    assert text == path.read_text().rstrip("\n")
    assert sum("<b>" in line.code for line in lines) > 5


def test_cuda_in_a_string_is_coloured_as_cuda():
    (code,) = [line.code for line in source_of(read_rung(), {}).lines if "__global__" in line.code][:1]
    assert "<b>__global__" in code and "<u>" not in code


def read_rung():
    return (ROOT / "submissions" / "layernorm" / "rung1_block_per_row.py").read_text()


def test_another_programs_database_is_a_sentence(tmp_path):
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    run = report("--html", tmp_path / "site", "--db", other)
    assert run.returncode == 2 and "database of another program" in run.stderr
