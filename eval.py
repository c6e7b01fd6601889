#!/usr/bin/env python3
"""Judge kernel submissions: `python eval.py --help`."""

import sys

from harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
