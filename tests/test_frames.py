"""The lines of a submission in a report: which part is marked, and how it fits the page."""

import pytest

from harness.judging.frames import MAX_LINE, code_frame
from harness.records import Place
from harness.report.frames import frame_lines

SOURCE = b"""import torch
def forward(x):
    y = launch(x, weigth)
\ttotal[i] += partial[i + 1];
    return y
"""


def marked(place, message=""):
    """The text below which carets stand, as it is in the frame."""
    frame = code_frame(SOURCE, "mine.py", [place], message)
    (mark,) = frame.marks
    (line,) = [line.text for line in frame.lines if line.number == mark.line]
    return line[mark.column : mark.column + mark.length]


@pytest.mark.parametrize(
    ("place", "message", "text"),
    [
        (Place("mine.py", 3, 9, 26), "", "launch(x, weigth)"),
        (Place("mine.py", 3), "mine.py:3: 'weigth' was not declared in this scope", "weigth"),
        (Place("mine.py", 3), 'identifier "weigth" is undefined', "weigth"),
        (Place("mine.py", 3), "mine.py:2: 'x' is wrong\nmine.py:3: 'launch' is wrong", "launch"),
        (Place("mine.py", 3), "mine.py:3: expected ',' or ')' before 'weigth'", "weigth"),
        (Place("mine.py", 3), "mine.py:3: expected ',' or ';' at its end, before 'for' in line 5", ""),
        (Place("mine.py", 4), "It reads 4 bytes at byte 8 of self.partial (2, float32) of 8 bytes", "partial[i + 1]"),
        (Place("mine.py", 3), "something else", "y = launch(x, weigth)"),
        (Place("mine.py", 4, label="writes"), "", "total[i]"),
        (Place("mine.py", 4, label="read"), "", "partial[i + 1]"),
    ],
    ids=[
        "columns",
        "gcc",
        "nvcc",
        "own line",
        "what stands there",
        "behind it",
        "a tensor",
        "all of it",
        "what is written",
        "what is read",
    ],
)
def test_what_a_message_is_about_is_marked(place, message, text):
    assert marked(place, message) == text


def test_columns_of_python_count_bytes():
    line = 'x = "ä" + y'
    frame = code_frame(line.encode(), "mine.py", [Place("mine.py", 1, 12, 13)], "")
    assert line[frame.marks[0].column] == "y"


@pytest.mark.parametrize("place", [Place("other.py", 1), Place("mine.py", 0), Place("mine.py", 6)])
def test_a_place_that_is_not_in_the_file_has_no_lines(place):
    assert code_frame(SOURCE, "mine.py", [place], "") is None


def shown(source, place, width):
    return [line.plain for line in frame_lines(code_frame(source, "mine.py", [place], ""), width)]


def test_a_frame_has_two_lines_around_and_no_common_indent():
    assert shown(SOURCE, Place("mine.py", 3, 9, 15), 80)[1:] == [
        "1 │ import torch",
        "2 │ def forward(x):",
        "3 │     y = launch(x, weigth)",
        "  │         ^^^^^^",
        "4 │     total[i] += partial[i + 1];",
        "5 │     return y",
    ]


@pytest.mark.parametrize("column", [1, 60, 140])
def test_a_long_line_is_cut_so_that_its_mark_is_seen(column):
    source = b"a" * (column - 1) + b"X" + b"b" * 400
    _, line, carets = shown(source, Place("mine.py", 1, column, column + 1), 40)
    assert len(line) <= 40 and line[carets.index("^")] == "X"


def test_lines_hold_no_control_sequences_and_are_bounded():
    frame = code_frame(b"\x1b[2J" + b"a" * 10_000, "mine.py", [Place("mine.py", 1)], "")
    assert frame.lines[0].text.isprintable() and len(frame.lines[0].text) <= MAX_LINE
