"""The corpus of faulty kernels, and of correct ones that look suspicious: what each mode must say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.corpus_sources import cases, header

HERE = Path(__file__).parent
FILES = cases()


def _marked_lines(file: Path) -> set[int]:
    """A race has two places, and which of them comes second is up to the order of threads."""
    lines = file.read_text().splitlines()
    return {i for i, line in enumerate(lines, 1) if line.endswith("// HERE")}


def _matches(seen: dict[str, Any], file: Path, expected: str) -> str:
    """An explanation of what differs, or nothing."""
    if expected == "silent":
        return f"found {seen['found']}, raised {seen['message']!r}" if seen["found"] or seen["message"] else ""
    if not seen["found"]:
        return "found nothing"
    kind, line, where, kernel, message = seen["found"][0]
    problems = []
    if kind != expected:
        problems.append(f"the kind is {kind} ({message})")
    if _marked_lines(file) and line not in _marked_lines(file):
        problems.append(f"the line is {line}, not one of {_marked_lines(file)} ({message})")
    placed = Path(where).name == file.name and kernel in ("kernel", "first", "second")
    if not placed and header(file, "Place") != "unknown":
        problems.append(f"it is placed in {where}, kernel {kernel}")
    if not seen["message"] or message not in seen["message"]:
        problems.append(f"the call raised {seen['message']!r}")
    if not re.fullmatch(r"[A-Z0-9].*\.", message):
        problems.append(f"the message is no sentence: {message}")
    return "; ".join(problems)


@pytest.fixture(scope="module")
def checked(emulator) -> dict[str, Any]:
    return emulator.run(HERE / "corpus.py", "--check", "--timeout", "5")["result"]


@pytest.fixture(scope="module")
def fast(emulator) -> dict[str, Any]:
    return emulator.run(HERE / "corpus.py", "--timeout", "5")["result"]


def test_the_corpus_is_large_and_has_both_sorts():
    expected = [header(file, "Expected") for file in FILES]
    assert len(FILES) >= 150
    assert expected.count("silent") >= 70
    assert "" not in expected


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_check_mode_names_the_fault_and_its_line(checked, file):
    assert _matches(checked[file.stem], file, header(file, "Expected")) == ""


@pytest.mark.parametrize("file", [f for f in FILES if header(f, "Order")], ids=lambda file: file.stem)
def test_what_one_order_hides_another_shows(checked, file):
    assert checked[file.stem]["order"] == header(file, "Order")


@pytest.mark.parametrize("file", [f for f in FILES if header(f, "Also")], ids=lambda file: file.stem)
def test_one_fault_does_not_hide_the_next(checked, file):
    kinds, lines = zip(*[found[:2] for found in checked[file.stem]["found"]], strict=True)
    assert list(kinds) == [header(file, "Expected"), *header(file, "Also").split(",")]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("file", [f for f in FILES if header(f, "Fast mode")], ids=lambda file: file.stem)
def test_fast_mode_sees_what_the_header_says(fast, file):
    kinds = {found[0] for found in fast[file.stem]["found"]}
    assert kinds == {header(file, "Fast mode")}
    assert fast[file.stem]["message"]


@pytest.mark.parametrize("file", [f for f in FILES if f.stem.startswith("silent")], ids=lambda file: file.stem)
def test_fast_mode_is_silent_on_correct_kernels(fast, file):
    assert _matches(fast[file.stem], file, "silent") == ""
