#!/usr/bin/env python3
"""Writes the tables, quotes and plots of README.md and docs/ anew from the files that they show.

documents/markdown.py says which comments in a document are filled, and from what. `--check` changes nothing and exits
with 1 when something is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import common  # noqa: F401  finds the harness in a checkout that is not installed
from documents.ladder import LadderError
from documents.markdown import documents, refresh_document
from documents.plot import NoMatplotlib
from documents.quotes import QuoteError


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="documents (default: README.md and all of docs/)")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something is out of date")
    return parser


def main() -> int:
    options = parser().parse_args()
    stale, problems = [], []
    for path in options.files or documents():
        try:
            stale += refresh_document(path, options.check)
        except (QuoteError, LadderError, NoMatplotlib, FileNotFoundError) as error:
            problems.append(f"{path}: {error}")
    if options.check and stale:
        problems.append(f"Out of date: {', '.join(stale)}. Run python benchmarks/write_documents.py.")
    print("\n".join(problems), file=sys.stderr, end="\n" * bool(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
