"""A process that becomes eval.py when somebody says with which words: `python -m harness.watch.ahead DEVICE ISOLATION`.

What eval.py loads is loaded while the file is being edited. One line of JSON on standard input, a list of words, begins
the run; the end of standard input instead of it ends the process.
"""

from __future__ import annotations

import json
import runpy
import sys

from harness.lanes.loading import ends_with_its_caller, load
from harness.paths import ROOT


def main() -> None:
    if not ends_with_its_caller():
        return
    load(*sys.argv[1:])
    line = sys.stdin.readline()
    if line.endswith("\n"):
        program = str(ROOT / "eval.py")
        sys.argv = [program, *json.loads(line)]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
