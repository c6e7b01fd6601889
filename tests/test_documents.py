"""What the documents say is what the files hold."""

import re
import subprocess
import sys

from harness.verdict import Accepted, Results
from tests.documents import documents, prose
from tests.helpers import ROOT

README = (ROOT / "README.md").read_text()


def test_tables_quotes_and_plots_are_made_from_what_is_committed():
    process = subprocess.run(
        [sys.executable, "-m", "harness.report.markdown", "--check"], cwd=ROOT, capture_output=True, text=True
    )
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
    for document in documents():
        for target in re.findall(r"\]\(([^)#:]+)\)", prose(document)):
            assert (document.parent / target).exists(), f"{document.name} links {target}"


def test_options_in_the_readme_are_those_of_the_command():
    from harness.cli import _parser

    known = {option for action in _parser()._actions for option in action.option_strings}
    shown = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", README.split("## The command")[1].split("## ")[0]))
    assert shown <= known
    assert known - shown <= {"-h", "--help", "--quiet", "--verbose"}


def test_a_baseline_that_was_left_out_of_a_case_is_a_dash_in_the_table_of_cases():
    from harness.report.markdown import cases_table, table
    from harness.verdict import SCHEMA, Baseline, CasePassed, CaseTiming, Speedup

    times = dict(median_us=2.0, interval_us=(1.9, 2.1), samples_us=[2.0], calls_per_round=1, fixed_us=0.0)
    floor = dict(floor_us=1.0, floor_fraction=0.5, bytes_min=1, launch_bound=False)
    peer = Baseline(**times, speedup=Speedup(ratio=1.0, interval=(0.9, 1.1)), version="liger-kernel 0.8.5")
    cases = [
        CasePassed(name=name, shape="8×8", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.0,
                   timing=CaseTiming(**times, **floor, baselines=baselines))
        for name, baselines in (("short", {"liger": peer}), ("long", {}))
    ]  # fmt: skip
    accepted = Accepted(
        problem="rmsnorm", submission="mine", source_sha256="", device="cuda", seed=1, cases=cases,
        geomean_speedup=1.0, geomean_interval=(1.0, 1.0),
    )  # fmt: skip
    results = Results(schema=SCHEMA, environment={}, evaluations=[accepted])
    assert "| short, 8×8 | 1 µs | 2 µs, 50% | 2 µs, 50% |" in cases_table(results)
    assert "| long, 8×8 | 1 µs | – | 2 µs, 50% |" in cases_table(results)
    assert "liger (liger-kernel 0.8.5)" in table(results)
    assert "over the fastest of the baselines" in table(results)
