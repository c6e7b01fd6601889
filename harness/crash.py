"""An error that nobody foresaw: its traceback goes to a file, and a sentence says where."""

from __future__ import annotations

import tempfile
import traceback


def report() -> str:
    """What is said about the current exception."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kernelgate-error-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
        where = f"Report {file.name}."
    except OSError as error:
        last = traceback.format_exc().strip().splitlines()[-1]
        where = f"Report '{last}'; a file with more could not be written: {error.strerror}."
    return f"An error of the harness itself; nothing is said about the submission. {where}"
