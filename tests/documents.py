"""The documents taken apart: prose, and fenced blocks with the markers in front of them.

What a block is decides how it is tested (tests/test_documents.py reads, tests/test_documents_run.py runs):

- `sh`, `python`: run as they stand, and must succeed;
- `sh` behind `<!-- tested as: COMMAND -->`: that cheaper command is run in its place where there is no GPU;
- behind `<!-- needs: gpu -->`: run where a GPU is, else its options and files are checked, and the test is skipped
  by name;
- `sh` behind `<!-- evaluate command -->` or `<!-- test command -->`: run by .ci/run and the tests it starts;
- `python` behind `<!-- submission: OPTIONS -->`: a whole submission, judged with these options;
- `python` behind `<!-- problem: FILE -->`: a problem, against which the submission FILE must be accepted and one that
  is its reference rejected;
- `diff` behind `<!-- exercise: FILE; OPTIONS; STATUS REASON -->`, and further ones right behind it: changes of a
  shipped file, which then gets that verdict on the emulator;
- any language behind `<!-- quote: … -->`: made by benchmarks/write_documents.py from a file that the page runs;
- `text` behind `<!-- drawing -->`, `<!-- formula -->` or `<!-- usage -->`: nothing to run.
"""

import functools
import re
import sys
from dataclasses import dataclass

from tests.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from documents.markdown import documents

_FENCE = re.compile(r"^```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_FIGURE = re.compile(r"(?<=\| )\d[\d.e+-]*(?= \||, fails)")
_MARKER = re.compile(r"<!-- (?P<kind>[a-z ]+?)(?:: (?P<said>.*))? -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, what it holds, and the comment on the line before it."""

    document: str
    line: int
    language: str
    text: str
    marker: str = ""
    said: str = ""

    def __str__(self):
        return f"{self.document}:{self.line}"


@functools.cache
def blocks():
    """All fenced blocks of all documents."""
    found = []
    for document in documents():
        text = document.read_text()
        for match in _FENCE.finditer(text):
            before = text[: match.start()].splitlines()
            marker = _MARKER.match(before[-1]) if before else None
            kind, said = (marker["kind"], marker["said"] or "") if marker else ("", "")
            name = document.relative_to(ROOT).as_posix()
            found.append(Block(name, len(before) + 1, match["language"], match["text"], kind, said))
    return found


def prose(document):
    """A document's text without its fenced blocks."""
    return _FENCE.sub("", document.read_text())


def commands(text):
    """The commands of a sh block: one a line, or joined by &&."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [command.strip() for line in lines if line for command in line.split("&&")]


def shown_between(document, name):
    """The lines of a table that stands between `<!-- NAME table -->` and its end."""
    text = (ROOT / document).read_text()
    return text.split(f"<!-- {name} table -->\n")[1].split(f"\n<!-- end of {name} table -->")[0].splitlines()


def alike(shown, made):
    """Whether two tables have the same words, and figures that differ by at most a factor of three: processors
    add in other orders."""
    if [_FIGURE.sub("#", line) for line in shown] != [_FIGURE.sub("#", line) for line in made]:
        return False
    figures = zip(_FIGURE.findall("\n".join(shown)), _FIGURE.findall("\n".join(made)), strict=True)
    return all(max(float(a), float(b)) <= 3 * min(float(a), float(b)) for a, b in figures)
