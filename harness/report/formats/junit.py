"""JUnit XML, which Jenkins, GitLab and others show as tests: a test suite for each evaluation, a test for each case.

The format is https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd:
what a submission did wrong is a failure, what says nothing about it an error. A gate is a suite with a test a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from harness.gate.values import Broken, Outcome
from harness.report.figures import duration, over_eager
from harness.report.verdicts import accepted_summary
from harness.report.view import View
from harness.report.words import as_sentences
from harness.verdict import Accepted, Case, CaseFailed, CaseNotRun, CasePassed, Errored, Evaluation, Results, status_of

# What a test is called that is none of a case: of a submission that was not built, and of rules about all cases.
VERDICT = "verdict"

_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def render(results: Results, view: View) -> str:
    """The whole document; without a suite where nothing was evaluated."""
    suites = [_suite(evaluation, view) for evaluation in results.evaluations]
    suites += [_gate(view.gate)] if view.gate else []
    root = Element("testsuites", {"name": "kernelgate", **_counts(suites)})
    root.extend(suites)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(suites: Sequence[Element]) -> dict[str, str]:
    return {name: str(sum(int(suite.get(name, "0")) for suite in suites)) for name in ("tests", "failures", "errors")}


def _suite(evaluation: Evaluation, view: View) -> Element:
    name = ".".join(_plain(part) for part in (evaluation.problem, evaluation.device, evaluation.submission))
    tests = [_test(case, name) for case in evaluation.cases]
    if not isinstance(evaluation, Accepted) and not any(isinstance(case, CaseFailed) for case in evaluation.cases):
        tests.append(_refused(evaluation, name))
    said = [accepted_summary(evaluation)] if isinstance(evaluation, Accepted) else [evaluation.message]
    said += as_sentences(evaluation.notes)
    facts = {"status": status_of(evaluation), "seed": evaluation.seed, "source": evaluation.source_sha256}
    facts |= {"speedup over eager": over_eager(evaluation)} if isinstance(evaluation, Accepted) else {}
    suite = _made_of(name, tests, {key: str(value) for key, value in facts.items()}, "\n".join(said))
    if file := view.files.get((evaluation.submission, evaluation.source_sha256)):
        suite.set("file", _plain(file))
    return suite


def _made_of(name: str, tests: Sequence[Element], facts: dict[str, str], said: str) -> Element:
    count = {what: sum(test.find(tag) is not None for test in tests)
             for what, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))}  # fmt: skip
    suite = Element("testsuite", {"name": name, "tests": str(len(tests)), **{k: str(v) for k, v in count.items()}})
    properties = Element("properties")
    properties.extend(Element("property", {"name": key, "value": _plain(value)}) for key, value in facts.items())
    suite.extend([properties, *tests, *_outputs([said])])
    return suite


def _test(case: Case, class_name: str) -> Element:
    test = Element("testcase", {"classname": class_name, "name": _plain(case.name)})
    if isinstance(case, CaseFailed):
        lines = [case.message, *(f"also {said}" for said in case.also), f"repeat: {case.repeat}"]
        test.append(_said("failure", str(case.reason), case.message, "\n".join(lines)))
    elif isinstance(case, CaseNotRun):
        test.append(_said("skipped", "not_run", case.message))
    else:
        test.extend(_outputs(_times(case)))
    return test


def _times(case: CasePassed) -> list[str]:
    """A line on a case that was timed. A test's own time is what its run takes, which this is not."""
    if case.timing is None:
        return []
    eager = case.timing.baselines.get("eager")
    over = f", {eager.speedup.ratio:.2f}× over eager" if eager else ""
    return [f"{duration(case.timing.median_us)} a call, {case.timing.floor_fraction:.0%} of the floor{over}"]


def _refused(evaluation: Evaluation, class_name: str) -> Element:
    test = Element("testcase", {"classname": class_name, "name": VERDICT})
    tag = "error" if isinstance(evaluation, Errored) else "failure"
    test.append(_said(tag, str(evaluation.reason), evaluation.message))
    return test


def _gate(outcome: Outcome) -> Element:
    """Each rule that is broken is a test that failed; where none is, one passed."""
    tests = [_broken(broken) for broken in outcome.broken]
    tests += [] if tests else [Element("testcase", {"classname": "gate", "name": "rules"})]
    return _made_of("gate", tests, {}, "\n".join(remark.line for remark in outcome.remarks))


def _broken(broken: Broken) -> Element:
    name = ": ".join(filter(None, [broken.file, broken.rule, broken.case]))
    test = Element("testcase", {"classname": "gate", "name": _plain(name)})
    test.append(_said("failure", broken.rule, broken.line))
    return test


def _said(tag: str, kind: str, message: str, text: str = "") -> Element:
    element = Element(tag, {"type": _plain(kind), "message": _plain(message)})
    element.text = _plain(text or message)
    return element


def _outputs(lines: Iterable[str]) -> list[Element]:
    text = _plain("\n".join(lines))
    if not text:
        return []
    element = Element("system-out")
    element.text = text
    return [element]


def _plain(text: str) -> str:
    """Without characters that XML 1.0 cannot hold (https://www.w3.org/TR/xml/#charsets)."""
    return _NOT_XML.sub("?", text)
