"""Every reason is known, said by somebody, and documented."""

import re

import pytest

from harness.reasons import Group, Reason
from tests.helpers import ROOT
from tests.hostile import corpus

HARNESS = ROOT / "harness"
EMULATOR = HARNESS / "device" / "emulator"

# How the emulator's C++ names the kind of a finding: as an argument, alone or of a condition, or in what it returns.
KIND = re.compile(
    r"""\b(?:fail|stop|note_and_stop)\(\s*"([a-z_]+)"
      | \b(?:note|note_pair|note_value|finding_in)\([^;"]*"([a-z_]+)"(?:\s*:\s*"([a-z_]+)")?
      | \bkind\s*=\s*"([a-z_]+)"
      | \breturn\s*\{"([a-z_]+)",""",
    re.VERBOSE,
)


def sources(folder, *suffixes):
    return {path: path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in suffixes}


def kinds_of_the_emulator():
    texts = sources(EMULATOR, ".h", ".cuh", ".cpp").values()
    return {kind for text in texts for found in KIND.findall(text) for kind in found if kind}


def test_the_emulator_reports_reasons_and_each_finding_but_the_sanitizers_is_its():
    findings = {reason for reason in Reason if reason.group is Group.FINDING}
    assert kinds_of_the_emulator() == findings - {Reason.SANITIZER_FINDING} | {Reason.UNSUPPORTED_BY_EMULATOR}


def test_the_corpus_expects_reasons():
    for entry in corpus.entries():
        for verdict in set(entry.allowed) - {"accepted", "too_slow"}:
            status, reason = verdict.split()
            assert status in ("rejected", "error"), f"{entry.name} expects {verdict!r}"
            assert reason in set(Reason), f"{entry.name} expects {verdict!r}"


def test_fixtures_expect_reasons():
    headers = [
        (path, header)
        for path, text in sources(ROOT / "tests" / "fixtures", ".py").items()
        for header in re.findall(r"^expect: (.*)$", text, re.MULTILINE)
    ]
    assert headers
    for path, header in headers:
        words = set(re.split(r"[|\s]+", header)) - {"accepted", "rejected", "error", "too_slow"}
        assert words <= set(Reason), f"{path.relative_to(ROOT)} expects {header!r}"


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_given_somewhere(reason):
    texts = sources(HARNESS, ".py", ".h", ".cuh", ".cpp")
    del texts[HARNESS / "reasons.py"]
    given = re.compile(rf'\bReason\.{reason.name}\b|"{reason.value}"')
    assert any(given.search(text) for text in texts.values())


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_documented(reason):
    assert f"| `{reason}` | {reason.meaning} |" in (ROOT / "docs" / "reasons.md").read_text()
