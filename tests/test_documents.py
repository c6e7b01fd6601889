"""What the documents say is what the files hold."""

import re
import subprocess
import sys

from harness.verdict import Accepted, Results
from tests.helpers import ROOT

README = (ROOT / "README.md").read_text()


def test_tables_are_generated_from_the_committed_results():
    process = subprocess.run(
        [sys.executable, "-m", "harness.report.markdown", "--check", "README.md"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr


def test_committed_results_are_of_this_schema_and_hold_what_is_shipped():
    from harness.report.json import load

    results = load(ROOT / "results" / "h200" / "layernorm.json")
    assert isinstance(results, Results)
    accepted = {e.submission for e in results.evaluations if isinstance(e, Accepted)}
    shipped = {path.stem for path in (ROOT / "submissions" / "layernorm").glob("*.py")}
    assert accepted == shipped


def test_ci_runs_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    command = re.search(r"<!-- test command -->\n```sh\n(.*?)\n```", README)[1]
    assert command.endswith("-m pytest")
    assert "test command" in script


def test_files_that_the_documents_link_exist():
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links {target}"


def test_options_in_the_readme_are_those_of_the_command():
    from harness.cli import _parser

    known = {option for action in _parser()._actions for option in action.option_strings}
    shown = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", README.split("## The command")[1].split("## ")[0]))
    assert shown <= known
    assert known - shown <= {"-h", "--help", "--quiet", "--verbose"}
