"""Formats that CI shows: each in the form that its schema asks for, whatever names and messages hold."""

import json
import os
import re
from xml.etree import ElementTree

import msgspec
import pytest
from markdown_it import MarkdownIt

from harness.exits import Exit
from harness.gate.values import Broken, Outcome, Remark
from harness.paths import shown_path
from harness.reasons import Reason
from harness.report import formats
from harness.report.formats import comment
from harness.report.places import failures_of, line_of_result
from harness.report.view import View
from harness.verdict import CodeFrame, CodeLine, Mark
from tests.sample_results import FAST, IN_CI, NOISY, RESULTS, SHA256, WRONG
from tests.test_formats import HOSTILE, filled_with, of

NOT_IN_XML = "\x00\x1b[31m\ufffe\ud800"
HOSTILE = [*HOSTILE, "]]></failure>", "::error::x", "a%0A::error::b", "a,line=1::b", "\x00 \x07", "a b/ü.py"]


def rendered(name, results, view=IN_CI):
    return formats.find(name).render(results, view)


def gate_of(name):
    """A gate whose every word is `name`."""
    return Outcome((), (Broken(name, name, name, name, Exit.REJECTED, name),), (Remark(name, name),))


def hostile(name):
    """A view in which files, sources and what a gate says are `name`."""
    return View(files={(name, SHA256): name}, texts={SHA256: name.encode(errors="replace")}, gate=gate_of(name))


# ---------------------------------------------------------------------- JUnit

# The schema that Jenkins has (harness.report.formats.junit names it): children, attributes, and which of these must be.
SAID = ({}, {"type", "message"}, set())
JUNIT = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package",
         "file", "log", "url"},
        {"name", "tests", "failures", "errors"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": ({}, {"name", "value"}, {"name", "value"}),
    "testcase": (
        {"skipped", "error", "failure", "system-out", "system-err"}, {"name", "time", "classname", "group"}, {"name"}
    ),
    "failure": SAID, "error": SAID, "skipped": SAID, "system-out": ({}, set(), set()),
}  # fmt: skip


def checked_junit(text):
    """The root, once every element is one that the schema allows where it stands."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        children, allowed, required = JUNIT[element.tag]
        assert {child.tag for child in element} <= set(children), element.tag
        assert required <= set(element.keys()) <= allowed, element.tag
    return root


@pytest.mark.parametrize("view", [IN_CI, View()], ids=["a gate", "eval.py"])
def test_junit_is_of_jenkins_schema_and_counts_what_it_holds(view):
    root = checked_junit(rendered("junit", RESULTS, view))
    for suite in root:
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(count)) == len(suite.findall(f"testcase/{tag}"))
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
    for count in ("tests", "failures", "errors"):
        assert int(root.get(count)) == sum(int(suite.get(count)) for suite in root)


def test_each_case_is_a_test_and_what_says_nothing_is_an_error():
    root = checked_junit(rendered("junit", of(WRONG, NOISY), View()))
    wrong, noisy = root
    assert [test.get("name") for test in wrong.iter("testcase")] == [case.name for case in WRONG.cases]
    tags = {"passed": [], "failed": ["failure"], "not_run": ["skipped"]}
    assert [[said.tag for said in test] for test in wrong.iter("testcase")] == [
        tags[case.__struct_config__.tag] for case in WRONG.cases
    ]
    assert noisy.find("testcase[@name='verdict']/error").get("type") == "too_noisy"


def test_an_open_gate_is_a_test_that_passed():
    (suite,) = checked_junit(rendered("junit", of(), View(gate=Outcome(()))))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


@pytest.mark.parametrize("name", [*HOSTILE, NOT_IN_XML])
def test_junit_holds_whatever_names_and_messages_do(name):
    calm, found = (checked_junit(rendered("junit", filled_with(n), hostile(n))) for n in ("calm", name))
    assert [element.tag for element in found.iter()] == [element.tag for element in calm.iter()]


# ---------------------------------------------------------------------- SARIF

# As much of SARIF 2.1.0 as is written, by its sections; a key that is not here is none that we mean.


class Struct(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Message(Struct):  # 3.11
    text: str


class Artifact(Struct):  # 3.4
    uri: str
    uri_base_id: str = ""


class Region(Struct):  # 3.30
    start_line: int


class Physical(Struct):  # 3.29
    artifact_location: Artifact
    region: Region


class Location(Struct):  # 3.28
    physical_location: Physical


class Result(Struct):  # 3.27
    rule_id: str
    level: str
    message: Message
    locations: list[Location] = []
    partial_fingerprints: dict[str, str] = {}


class Rule(Struct):  # 3.49
    id: str
    short_description: Message


class Driver(Struct):  # 3.19
    name: str
    version: str
    rules: list[Rule]


class Tool(Struct):  # 3.18
    driver: Driver


class Notification(Struct):  # 3.58
    level: str
    message: Message


class Invocation(Struct):  # 3.20
    execution_successful: bool
    tool_execution_notifications: list[Notification] = []


class Run(Struct):  # 3.14
    tool: Tool
    column_kind: str
    invocations: list[Invocation]
    results: list[Result]


class Log(Struct):  # 3.13
    version: str
    runs: list[Run]
    schema: str = msgspec.field(name="$schema")


URI = re.compile(r"[A-Za-z0-9:/?#\[\]@!$&'()*+,;=._~%-]+")


def checked_sarif(text):
    """The run, once it has the form that the standard asks for."""
    log = msgspec.json.decode(text, type=Log)
    assert log.version == "2.1.0"
    (run,) = log.runs
    rules = [rule.id for rule in run.tool.driver.rules]
    assert len(rules) == len(set(rules))
    for result in run.results:
        assert result.rule_id in rules
        assert result.level in ("none", "note", "warning", "error")
        for location in result.locations:
            place = location.physical_location
            assert place.region.start_line >= 1 and URI.fullmatch(place.artifact_location.uri)
    return run


@pytest.mark.parametrize("view", [IN_CI, View()], ids=["a gate", "eval.py"])
def test_sarif_has_the_standards_form(view):
    run = checked_sarif(rendered("sarif", RESULTS, view))
    found = {result.rule_id: result for result in reversed(run.results)}  # the first of each
    assert {"wrong_output", "data_race", "too_noisy"} <= found.keys()
    assert (found["data_race"].level, found["too_noisy"].level) == ("error", "warning")
    assert found["data_race"].locations[0].physical_location.region.start_line == 40


def test_the_same_fault_has_the_same_fingerprint_where_its_line_moved():
    moved = msgspec.structs.replace(
        WRONG, cases=[msgspec.structs.replace(c, message=c.message.replace(":40", ":44")) for c in WRONG.cases]
    )
    before, after = (checked_sarif(rendered("sarif", of(e), View())).results for e in (WRONG, moved))
    assert [r.partial_fingerprints for r in before] == [r.partial_fingerprints for r in after]
    assert len({json.dumps(r.partial_fingerprints) for r in before}) == len(before)


@pytest.mark.parametrize("name", HOSTILE)
def test_sarif_holds_whatever_names_and_messages_do(name):
    calm, found = (checked_sarif(rendered("sarif", filled_with(n), hostile(n))) for n in ("calm", name))
    assert len(found.results) == len(calm.results)


@pytest.mark.parametrize("name", ["sarif", "github", "junit", "comment"])
def test_a_file_whose_name_is_no_utf_8_is_shown(name, tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    file = shown_path(tmp_path / os.fsdecode(b"caf\xe9.py"))
    gate = Outcome((), (Broken(file, "max-spills", "it spills", "0 bytes", Exit.REJECTED),))
    text = rendered(name, of(WRONG), View(files={(WRONG.submission, SHA256): file}, gate=gate))
    assert text.encode() and any(shown in text for shown in ("caf\ufffd.py", "caf%EF%BF%BD.py"))


# ---------------------------------------------------------------------- lines

NAMED = {
    "fault.py:12: 'z' was not declared": 12,
    "my_fault.py:12: no\nfault.py:13: 'z' was not declared": 13,
    "RuntimeError at line 7 of fault.py: no": 7,
    "SyntaxError: invalid syntax (fault.py, line 3)": 3,
    "torch.h:99: in what fault.py includes": 8,
    "CUDA refused the launch. (kernel twice, launch 1)": 2,
    "The dtype of the output is float64; expected float32.": 8,
}
SOURCE = b'''CUDA = """
template <int N> __global__ void twice(
    float* y) {}
"""

class ModelNew:
    def forward(self, x):
        return x
'''


@pytest.mark.parametrize("message", NAMED)
def test_a_failure_stands_at_the_line_that_its_message_is_about(message):
    wrong = msgspec.structs.replace(WRONG, submission="fault", cases=[], reason=Reason.RAISED, message=message)
    (failure,) = failures_of(wrong, View(texts={SHA256: SOURCE}))
    assert (failure.file, failure.line) == ("fault.py", NAMED[message])


def test_where_no_words_name_a_line_the_marked_one_is_meant():
    lines = [CodeLine(number=number, text="") for number in (4, 5)]
    marks = [Mark(line=4, column=0, length=1, label="writes"), Mark(line=5, column=0, length=1, label="reads")]
    frame = CodeFrame(file="fault.py", lines=lines, marks=marks)
    wrong = msgspec.structs.replace(WRONG, submission="fault", cases=[], message="It is wrong.", frame=frame)
    assert [failure.line for failure in failures_of(wrong, View(texts={SHA256: SOURCE}))] == [5]


def test_what_the_detectors_saw_afterwards_is_a_failure_too():
    race = WRONG.cases[2]
    found = failures_of(msgspec.structs.replace(WRONG, cases=WRONG.cases[1:2], finding=race), IN_CI)
    assert [(failure.reason, failure.line) for failure in found] == [("data_race", 40), ("wrong_output", 10)]


def test_each_error_of_a_compiler_stands_at_its_own_line():
    message = "fault.py:12: 'z' was not declared\nfault.py:14: expected ';'\n… and 3 more errors"
    wrong = msgspec.structs.replace(WRONG, submission="fault", cases=[], reason=Reason.BUILD_FAILED, message=message)
    assert [failure.line for failure in failures_of(wrong, View())] == [12, 14]


@pytest.mark.parametrize("source", [b"", b"not python (", b"ModelNew = 1", b"(" * 100_000])
def test_a_file_without_a_model_is_shown_at_its_beginning(source):
    assert line_of_result(source) == 1


def test_cases_that_fail_for_one_reason_at_one_line_are_one_failure():
    first, second = WRONG.cases[1:3]
    cases = [second, msgspec.structs.replace(second, name="again"), first]
    found = failures_of(msgspec.structs.replace(WRONG, cases=cases, finding=None), IN_CI)
    assert [failure.cases for failure in found] == [("race", "again"), ("large",)]
    assert found[0].words.startswith("Case 'race' and 1 more: ")


# ---------------------------------------------------------------------- GitHub

COMMAND = re.compile(r"::(error|warning|notice) ([^:\n]*)::([^\r\n]*)")


def commands(text):
    """As GitHub's runner reads them: level, properties, message."""
    found = [COMMAND.fullmatch(line) for line in text.splitlines()]
    assert all(found), text
    return [(m[1], dict(pair.split("=", 1) for pair in m[2].split(",")), m[3]) for m in found]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_or_message_is_a_command_of_its_own(name):
    calm, found = (commands(rendered("github", filled_with(n), hostile(n))) for n in ("calm", name))
    assert [(level, sorted(properties)) for level, properties, _ in found] == [
        (level, sorted(properties)) for level, properties, _ in calm
    ]


def test_there_are_as_many_annotations_as_github_shows():
    many = [msgspec.structs.replace(WRONG, submission=f"n{number}", cases=[]) for number in range(40)]
    lines = rendered("github", of(*many), View()).splitlines()
    assert len(lines) == 11 and lines[-1] == "30 more, for which GitHub has no room here."


# ---------------------------------------------------------------------- a comment


@pytest.mark.parametrize("count", [1, 30, 3000])
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "*"])
def test_a_comment_has_the_room_that_github_gives(count, letter):
    many = [msgspec.structs.replace(WRONG, submission=f"n{number}", cases=[], message=letter * 4000)
            for number in range(count)]  # fmt: skip
    broken = tuple(Broken(e.submission, "verdict", letter * 300, "accepted", Exit.REJECTED) for e in many)
    text = rendered("comment", of(*many), View(gate=Outcome((), broken)))
    assert len(text) < 65_536
    assert text.startswith(comment.MARK) and letter * 100 in text.replace("\\", "")
    assert ("have no room in a comment." in text) == (count > 1)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_leave_a_comment_its_form(name):
    reader = MarkdownIt("commonmark").enable("table")
    calm, found = (reader.parse(rendered("comment", filled_with(n), hostile(n))) for n in ("calm", name))
    assert [token.type for token in found] == [token.type for token in calm]


def test_a_comment_says_first_what_is_broken():
    text = rendered("comment", RESULTS)
    places = [text.index(word) for word in ("4 rules broken", "no-slower-than-best", "| submission |", "<details>")]
    assert places == sorted(places)
    assert rendered("comment", of(FAST), View()).startswith("<!-- kernelgate -->\n### kernelgate: 1 of 1 accepted.\n")
