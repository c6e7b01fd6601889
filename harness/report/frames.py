"""A submission's own lines as text for a terminal: two lines around each mark, and carets below it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from harness.verdict import CodeFrame, Mark

ELLIPSIS = "…"


def frame_lines(frame: CodeFrame, width: int) -> Iterator[Text]:
    """The file's name, then each line with its number, none longer than `width`. What all lines are indented by is
    left out."""
    digits = max(len(str(line.number)) for line in frame.lines)
    indent = _common_indent(frame)
    room = max(width - digits - 3, 10)
    yield Text(f"{frame.file}:{frame.marks[-1].line}", style="cyan")
    previous = frame.lines[0].number - 1
    for line in frame.lines:
        if line.number != previous + 1:
            yield Text(f"{'':>{digits}} {ELLIPSIS}", style="dim")
        previous = line.number
        marks = [mark for mark in frame.marks if mark.line == line.number]
        shift = _shift(marks, indent, room)
        text = _cut(line.text[indent:], shift, room)
        yield Text.assemble((f"{line.number:>{digits}} │ ", "dim"), (text, "bold" if marks else ""))
        for mark in marks:
            yield Text.assemble((f"{'':>{digits}} │ ", "dim"), (_carets(mark, indent + shift, room), "bold red"))


def _common_indent(frame: CodeFrame) -> int:
    indents = [len(line.text) - len(line.text.lstrip()) for line in frame.lines if line.text.strip()]
    return min(indents, default=0)


def _shift(marks: list[Mark], indent: int, room: int) -> int:
    """How much of a long line's begin is left out, so that what is marked is seen."""
    if not marks or marks[0].column - indent + 1 < room * 3 // 4:
        return 0
    return marks[0].column - indent - room // 2


def _cut(text: str, shift: int, room: int) -> str:
    text = ELLIPSIS + text[shift + 1 :] if shift else text
    return text if len(text) <= room else text[: room - 1] + ELLIPSIS


def _carets(mark: Mark, left_out: int, room: int) -> str:
    """Carets and the label behind them, or in front where behind is no room."""
    column = max(mark.column - left_out, 0)
    carets = "^" * max(1, min(mark.length, room - column))
    behind = " " * column + carets + (f" {mark.label}" if mark.label else "")
    if len(behind) <= room:
        return behind
    in_front = f"{mark.label} "
    return (in_front.rjust(column) + carets) if mark.label and len(in_front) <= column else behind[:room]


def plain(frame: CodeFrame, width: int) -> str:
    """The same without colours."""
    return "\n".join(line.plain for line in frame_lines(frame, width))
