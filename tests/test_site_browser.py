"""The site in a real browser: it is read without a network and without JavaScript, in both themes, on narrow screens
and wide ones, by keyboard and by screen reader; with JavaScript it is sorted, filtered and compared."""

import shutil

import pytest

from harness.comparison import Side, compare
from harness.report.site import names
from tests import sites

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = "it is a package of the distribution, as .ci/run installs it (apt-get install chromium)"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"there is no Chromium here: {NEEDED}")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium: pip install -e '.[test]'")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="it brings axe-core: pip install -e '.[test]'"
)

WIDTHS = (400, 1400)
THEMES = ("light", "dark")
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return sites.site_of_everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


class Visit:
    """A page of a context without a network, and what it complained of."""

    def __init__(self, context, out):
        self.out, self.said, self.asked = out, [], []
        self.page = context.new_page()
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def goto(self, name):
        self.page.goto("about:blank")  # an address that differs in its fragment alone is not loaded anew
        self.page.goto(f"{self.out.as_uri()}/{name}")
        return self.page

    def rows(self, table="#entries"):
        """The texts of the rows that are shown, cell by cell."""
        found = self.page.locator(f"{table} tbody tr:visible")
        return found.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))")


@pytest.fixture
def visit(browser, everything):
    """A function that opens a visit, `options` of the browser's context."""
    contexts = []

    def begin(width=1400, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options))
        return Visit(contexts[-1], everything[1])

    yield begin
    for context in contexts:
        context.close()


def submission_page(evaluation):
    key = names.submission_key(evaluation.source_sha256, evaluation.problem, evaluation.device)
    return f"submissions/{key}.html"


def measured(name):
    return next(e for e in sites.measured().evaluations if e.submission == name)


def key_of(name):
    return submission_page(measured(name)).removeprefix("submissions/").removesuffix(".html")


FAST, LIGHT = sites.of_source(sites.FAST, "fast"), measured("speed_of_light")
WRONG = sites.of_source(sites.WRONG, sites.WRONG_SOURCE)
HOSTILE = next(sites.hostile_evaluations())
PAGES = {
    "index": "index.html",
    "measured": submission_page(LIGHT),
    "everything": submission_page(FAST),
    "rejected": submission_page(WRONG),
    "hostile": submission_page(HOSTILE),
    "problem": f"problems/{names.problem_key('layernorm')}.html",
    "pairs": "compare.html",
    "compared": f"compare.html#a={key_of('speed_of_light')}&b={key_of('rung4_vectorised_registers')}",
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound(name, theme, width, visit):
    """No message in the console, nothing asked of a network, no scrolling to the side, and nothing serious that
    axe-core sees: names of controls and regions, contrast, headings, keyboard."""
    seen = visit(width, color_scheme=theme)
    page = seen.goto(PAGES[name])
    if name == "compared":
        page.wait_for_selector("#comparison table")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in SERIOUS] == []
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith(("file:", "about:", "data:"))] == []


@pytest.mark.parametrize("theme", THEMES)
def test_themes_differ_and_the_button_turns_them(theme, visit):
    seen = visit(color_scheme=theme)
    page, back = seen.goto("index.html"), "getComputedStyle(document.body).backgroundColor"
    of_system = page.evaluate(back)
    light, dark = "rgb(255, 255, 255)", "rgb(18, 22, 28)"
    assert of_system == (light if theme == "light" else dark)
    button = page.locator("#theme")
    found = []
    for _ in range(3):
        button.click()
        found.append((button.text_content(), page.evaluate(back)))
    assert found == [("Theme: light", light), ("Theme: dark", dark), ("Theme: system", of_system)]
    button.click()
    for _ in range(50):  # the choice holds on other pages, once Chromium has written it for their process
        other = seen.goto(PAGES["problem"])
        if other.locator("#theme").text_content() == "Theme: light":
            break
        other.wait_for_timeout(100)
    assert (other.locator("#theme").text_content(), other.evaluate(back)) == ("Theme: light", light)


def test_a_column_sorts_by_its_values_and_what_is_empty_stands_last(visit):
    seen = visit()
    page = seen.goto("index.html")
    button = page.get_by_role("button", name="over eager [95%]")
    column = page.locator("#entries thead th").all_text_contents().index("over eager [95%]")
    orders = []
    for _ in range(2):
        button.click()
        orders.append([row[column] for row in seen.rows()])
        assert page.locator("#entries th[aria-sort]").count() == 1
    for order, falling in zip(orders, (False, True), strict=True):
        values = [float(text.split("×")[0]) for text in order if text != "–"]
        assert values == sorted(values, reverse=falling) and len(set(values)) > 5
        assert set(order[len(values) :]) == {"–"}
    assert page.locator("#entries th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_filters_choose_rows_and_stay_in_the_address(visit):
    seen = visit()
    page = seen.goto("index.html")
    every = len(seen.rows())
    page.get_by_label("problem").select_option("layernorm")
    page.get_by_label("device").select_option("cuda")
    chosen = seen.rows()
    assert 0 < len(chosen) < every
    assert {row[2] for row in chosen} == {"layernorm"}
    assert page.get_by_role("status").text_content() == f"{len(chosen)} of {every} entries"
    page.get_by_label("submission").fill("RUNG")
    named = seen.rows()
    assert {row[1] for row in named} == {row[1] for row in chosen if "rung" in row[1]}
    again = visit()
    again.page.goto(page.url)  # the address is what one sends
    assert again.rows() == named
    page.get_by_label("submission").fill("nothing has this name")
    assert seen.rows() == []


def test_a_dtype_is_one_of_several_in_a_row(visit):
    seen = visit()
    page = seen.goto("index.html")
    dtype = page.locator("select[name=dtype]")
    dtype.select_option("fp64")
    found = seen.rows()
    assert found and all(any("fp64" in cell for cell in row) for row in found)
    dtype.select_option("fp32")
    assert len(seen.rows()) > len(found)


def test_links_lead_from_the_board_to_a_submission_its_problem_and_a_comparison(visit):
    seen = visit()
    page = seen.goto("index.html")
    page.locator("#entries").get_by_role("link", name="speed_of_light").first.click()
    assert page.locator("h1").text_content() == "speed_of_light"
    page.get_by_role("link", name="layernorm", exact=True).click()
    assert page.locator("h1").text_content() == "layernorm"
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("link", name="speed_of_light and rung4_vectorised_registers").first.click()
    page.wait_for_selector("#comparison table")
    assert seen.said == []


def test_a_comparison_has_an_address_and_says_what_the_command_says(visit):
    """`eval.py compare` decides, and turning the two round turns what it says."""
    a, b = LIGHT, measured("rung4_vectorised_registers")
    found = compare(a, b, (side(a), side(b)))
    expected = [(row.name, str(row.difference)) for row in found.rows]
    assert {word for _, word in expected} > {"slower"}
    seen = visit()
    page = seen.goto(PAGES["compared"])
    page.wait_for_selector("#comparison table")
    shown = [(row[0], row[3]) for row in seen.rows("#comparison table")]
    assert shown[: len(expected)] == expected
    assert [name for name, _ in shown[len(expected) :]] == ["geometric mean, called"]
    counts = [
        f"{word} on {n}" for word in ("faster", "slower", "no different") if (n := sum(w == word for _, w in expected))
    ]
    assert page.locator("#comparison .verdict").text_content() == f"B is {', '.join(counts)} of {len(expected)} times."
    # The other way round, chosen by hand: the address follows.
    page.locator("select[name=a]").select_option(key_of("rung4_vectorised_registers"))
    page.wait_for_function("document.querySelector('#comparison h2').textContent.startsWith('A: rung4')")
    page.locator("select[name=b]").select_option(key_of("speed_of_light"))
    page.wait_for_function("document.querySelector('#comparison .verdict')?.textContent.startsWith('B is faster')")
    turned = {"slower": "faster", "faster": "slower", "no different": "no different"}
    shown = [(row[0], row[3]) for row in seen.rows("#comparison table")]
    assert shown[: len(expected)] == [(name, turned[word]) for name, word in expected]
    assert page.url.endswith(f"#a={key_of('rung4_vectorised_registers')}&b={key_of('speed_of_light')}")
    assert seen.said == []


def side(evaluation):
    return Side(
        "", evaluation.problem, evaluation.submission, evaluation.source_sha256, "cuda", "", 1, "", "accepted", ""
    )


def test_two_that_were_not_tested_name_the_command_that_tests_them(visit):
    seen = visit()
    a, b = LIGHT, next(e for e in sites.measured().evaluations if e.device == "cpu")
    page = seen.goto(f"compare.html#a={key_of(a.submission)}&b={key_of(b.submission)}")
    page.wait_for_selector("#comparison table")
    command = f"eval.py compare {a.source_sha256[:10]} {b.source_sha256[:10]}"
    assert page.locator("#comparison code").text_content() == command
    text = page.locator("#comparison").text_content()
    assert "Measured with two devices: cuda, and cpu." in text
    assert not {"faster", "slower", "no different"} & set(text.split())
    assert seen.said == []


def test_a_comparison_shows_how_the_sources_differ(visit):
    seen = visit()
    fast, wrong = (submission_page(e).split("/")[1].removesuffix(".html") for e in (FAST, WRONG))
    page = seen.goto(f"compare.html#a={fast}&b={wrong}")
    page.wait_for_selector("#comparison .difference")
    assert page.locator("del").all_text_contents() == ["- fast\n"]
    assert "+     x[38] = 38;\n" in page.locator("ins").all_text_contents()
    assert "Measured with two devices: cuda, and emulator." in page.locator("#comparison").text_content()


@pytest.mark.parametrize(
    "fragment", ["a=../../x&b=../../x", "a=<img src=x>&b=1", "a=0000000000000000&b=0000000000000000", "a=&b=", "a=%00"]
)
def test_an_address_that_names_nothing_compares_nothing(fragment, visit):
    seen = visit()
    page = seen.goto(f"compare.html#{fragment}")
    page.wait_for_timeout(200)
    assert page.locator("#comparison table, #comparison img").count() == 0
    assert page.locator("table").count() == 1


def test_without_javascript_everything_is_there_to_be_read(visit):
    seen = visit(java_script_enabled=False)
    page = seen.goto("index.html")
    assert page.locator("#entries tbody tr").count() > 20
    assert not page.locator("form, #theme").first.is_visible()
    page = seen.goto(PAGES["measured"])
    assert page.locator("svg[role=img]").count() >= 4
    assert all(box["height"] > 50 for box in map(lambda one: one.bounding_box(), page.locator("svg.chart").all()))
    page.locator("summary").first.click()
    assert page.get_by_role("cell", name="pass").first.is_visible()
    page = seen.goto("compare.html")
    assert "Without it this page lists neighbours" in page.locator("main").inner_text()
    assert page.get_by_role("row").count() > 5


def test_hostile_names_run_nothing(visit):
    seen = visit()
    for evaluation in sites.hostile_evaluations():
        page = seen.goto(submission_page(evaluation))
        assert page.title().endswith("kernelgate") and page.title() != "stolen"
        assert page.locator("main img").count() == 0
    page = seen.goto("index.html")
    for name in page.get_by_label("problem").locator("option").all_text_contents():
        page.get_by_label("problem").select_option(name if name != "all" else "")
    keys = [submission_page(e).split("/")[1].removesuffix(".html") for e in sites.hostile_evaluations()][:2]
    page = seen.goto(f"compare.html#a={keys[0]}&b={keys[1]}")
    page.wait_for_selector("#comparison h2")
    assert page.locator("main img, main script").count() == 0
    assert seen.said == []


def test_nothing_runs_that_the_page_did_not_bring(visit):
    """Should a text ever get into a page as it is, the page's policy names the scripts that may run."""
    seen = visit()
    page = seen.goto("index.html")
    page.evaluate("""() => {
        document.querySelector("main").insertAdjacentHTML("beforeend", "<img src=x onerror='document.title=1'>");
        const script = document.createElement("script");
        script.textContent = "document.title = 2";
        document.body.append(script);
    }""")
    page.wait_for_timeout(200)
    assert page.title() == "Boards · kernelgate"
    assert any("Content Security Policy" in said for said in seen.said)


def test_a_keyboard_reaches_the_content_and_sorts(visit):
    page = visit().goto("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    assert page.locator(".skip").is_visible()
    page.get_by_role("button", name="submission").focus()
    page.keyboard.press("Enter")
    assert page.locator("#entries th[aria-sort=ascending]").text_content() == "submission"


def test_a_finding_is_reached_by_its_line(visit):
    page = visit().goto(submission_page(WRONG))
    page.get_by_role("link", name="40", exact=True).click()
    line = page.locator("#L40")
    assert page.url.endswith("#L40")
    box = line.bounding_box()
    assert 0 <= box["y"] < 900
