"""eval.py in a Python that has not got what the judge needs: a sentence with the command that mends it."""

import re
import subprocess
import sys
import tomllib

from harness.installed import NEEDED
from tests.helpers import ROOT


def test_a_python_without_the_packages_is_told_which_and_what_to_do():
    """Python's own modules alone: -S leaves out where packages are installed."""
    run = subprocess.run(
        [sys.executable, "-S", str(ROOT / "eval.py"), "list"], capture_output=True, text=True, cwd=ROOT
    )
    assert (run.returncode, run.stdout) == (3, "")
    assert re.search(r"lacks the packages torch, .*click\. ", run.stderr)
    assert "constraints.txt -e ." in run.stderr or ".venv/bin/python eval.py in its place" in run.stderr
    assert "Traceback" not in run.stderr


def test_what_eval_needs_is_what_a_plain_installation_brings():
    brought = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert set(NEEDED) <= {re.match(r"[\w-]+", requirement)[0] for requirement in brought}
