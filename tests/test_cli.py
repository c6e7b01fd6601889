"""Exit codes, verbs, and what is printed where."""

import json
import os
import re
import shlex
import subprocess
import sys

import psutil
import pytest
import torch

from tests.helpers import ROOT, run_eval

HOSTILE = ROOT / "tests" / "hostile"
CONTROL = HOSTILE / "form" / "control.py"
SMALL = ("--problem", ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py")


def test_accepted_is_0_and_prints_the_table():
    run = run_eval(CONTROL, *SMALL, json_results=False, program=True)
    assert run.code == 0
    assert "ACCEPTED  control" in run.stdout
    assert "large mean" in run.stdout


def test_rejected_is_1_and_gives_a_command_that_repeats_it():
    run = run_eval(HOSTILE / "specification" / "ignores_weight.py", *SMALL, json_results=False, program=True)
    assert run.code == 1
    (line,) = [line for line in run.stdout.splitlines() if "repeat:" in line]
    words = line.split("repeat: python eval.py ", 1)[1]
    again = run_eval(*shlex.split(words))
    (evaluation,) = again.results["evaluations"]
    (case,) = evaluation["cases"]
    assert again.code == 1
    assert f"is {case['worst']['got']:.9g}" in run.stdout


def test_the_command_that_repeats_it_is_for_the_folder_where_it_was_said(tmp_path):
    wrong = tmp_path / "mine" / "wrong.py"
    wrong.parent.mkdir()
    wrong.write_text((HOSTILE / "specification" / "ignores_weight.py").read_text())
    words = [ROOT / "eval.py", "mine/wrong.py", *SMALL, "-k", "large mean", "--no-timing", "-q"]
    said = dict(cwd=tmp_path, capture_output=True, text=True)
    first = subprocess.run([sys.executable, *words], **said)
    (line,) = [line for line in first.stdout.splitlines() if "repeat:" in line]
    again = shlex.split(line.partition("repeat: ")[2])
    assert again[:3] == ["python", str(ROOT / "eval.py"), "mine/wrong.py"]
    found = subprocess.run([sys.executable, *again[1:], "--no-timing", "-q"], **said)
    assert found.stdout == first.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.py"], "There is no file or folder nowhere.py"),
        ([CONTROL], "Which problem is"),
        ([CONTROL, "--problem", "unknown"], "Known problems: "),
        ([CONTROL, "--problem", "layernrom"], "Did you mean 'layernorm'?"),
        ([CONTROL, "--problem", ROOT / "tests"], "fits no problem of"),
        ([CONTROL, *SMALL, "--min-speedup", "nan"], "--min-speedup must be more than 0, and nan was given"),
        ([CONTROL, *SMALL, "-k", "nothing"], "Its cases: 'large eps'"),
        ([CONTROL, *SMALL, "--min-speedup", "2", "--no-timing"], "give one of the two"),
        ([CONTROL, *SMALL, "--quick", "--min-speedup", "2", "--against", CONTROL], "add eager to --against"),
        ([CONTROL, *SMALL, "--json", "/nowhere/results.json"], "there is no folder /nowhere"),
        ([CONTROL, *SMALL, "--json", ROOT], "is a folder; name a file in it"),
        ([CONTROL, *SMALL, "--timeout", "0"], "--timeout must be more than 0 seconds"),
        ([CONTROL, *SMALL, "--timeout", "-3"], "--timeout must be more than 0 seconds"),
        (["--bogus"], "No such option '--bogus'"),
        (["--again", "--quik"], "No such option '--quik'"),
        (["--quik"], "No such option '--quik'. (Did you mean one of: '--quick'"),
        ([CONTROL, "--devise=cpu"], "Did you mean one of: '--device'"),
        (["profile", CONTROL, "--problm", "x"], "Did you mean '--problem'?"),
        (["list", "--jsn"], "Did you mean '--json'?"),
        (["lst"], "There is no verb, file or folder lst. Did you mean 'list'?"),
        (["compre", "old.json", "new.json"], "Did you mean 'compare'?"),
        (["list.py"], "There is no file or folder list.py."),
        (["--quick", "--thorough"], "--quick and --thorough exclude each other"),
    ],
)
def test_usage_is_2_with_a_sentence(arguments, sentence):
    run = run_eval(*arguments, json_results=False, program=True, alone=False)
    assert run.code == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""  # nothing was judged before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written_to_is_said_before_anything_is_judged(tmp_path):
    tmp_path.chmod(0o500)
    run = run_eval(CONTROL, *SMALL, "--json", tmp_path / "results.json", json_results=False)
    assert (run.code, run.stdout) == (2, "")
    assert "you may not write there" in run.stderr


def test_results_that_cannot_be_written_in_the_end_stand_in_the_report():
    run = run_eval(CONTROL, *SMALL, "--json", "/dev/full", json_results=False)
    assert run.code == 2
    assert "could not be written to /dev/full" in run.stderr
    assert "ACCEPTED  control" in run.stdout


def test_a_missing_gpu_is_3_and_says_nothing_about_the_submission():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    run = run_eval(CONTROL, *SMALL, "--device", "cuda", json_results=False)
    assert run.code == 3
    assert "no GPU" in run.stderr or "could not be started" in run.stderr


def test_nothing_to_evaluate_is_5(tmp_path):
    run = run_eval(tmp_path, json_results=False)
    assert run.code == 5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--device", "cpu", "--quick"),
            "--min-speedup needs a timed case, and none of those chosen of small_layernorm",
        ),
        (("--device", "emulator", "--quick"), "--min-speedup needs times, and the emulator gives none"),
    ],
)
def test_a_speedup_where_nothing_can_be_timed_is_refused_before_anything_is_judged(arguments, sentence):
    run = run_eval(CONTROL, *SMALL, *arguments, "--min-speedup", "2", json_results=False, alone=False)
    assert run.code == 2
    assert sentence in run.stderr
    assert run.stdout == ""


def test_what_is_not_timed_says_why():
    run = run_eval(CONTROL, *SMALL, "--device", "cpu", "--quick", json_results=False, alone=False)
    assert "ACCEPTED  control  2 cases correct; not timed: no case that was chosen is timed (timed=True in CASES)" in (
        run.stdout
    )
    run = run_eval(CONTROL, *SMALL, "--device", "cpu", json_results=False)
    assert "2 cases correct; not timed\n" in run.stdout


def test_the_command_repeats_the_case_that_the_message_names(tmp_path):
    """The first failed case is wrong, and a later one ends the process: that is what the message is about."""
    path = tmp_path / "wrong_and_then_gone.py"
    path.write_text(
        CONTROL.read_text().replace(
            "    def forward(self, x):\n",
            "    def forward(self, x):\n"
            "        if x.shape[-1] != 321:\n            __import__('os')._exit(7)\n"
            "        return torch.zeros_like(x)\n",
            1,
        )
    )
    run = run_eval(path, *SMALL, "--device", "cpu", json_results=False)
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("REJECTED")]
    (repeat,) = [line for line in run.stdout.splitlines() if "repeat:" in line]
    named = line.partition("'")[2].partition("'")[0]
    assert f"-k '{named}'" in repeat, run.stdout


def test_a_pipe_that_is_to_be_coloured_gets_no_other_controls():
    run = run_eval(CONTROL, *SMALL, "--device", "cpu", "--color", "always", json_results=False, program=True)
    assert "\x1b[" in run.stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", re.sub(r"\x1b\[[0-9;]*m", "", run.stdout + run.stderr))


def test_quiet_names_the_problem():
    run = run_eval(CONTROL, *SMALL, "--device", "cpu", "-q", json_results=False)
    verdict, note, *_ = run.stdout.splitlines()
    assert verdict == "ACCEPTED  small_layernorm · control  2 cases correct; not timed"
    assert note.startswith("  note: No kernel of its own was built.")


def test_values_come_before_strides(tmp_path):
    """Who is told of strides alone mends them, and then the values are wrong as well."""
    transposed = "return {}.transpose(-1, -2).contiguous().transpose(-1, -2)"
    body = CONTROL.read_text()
    returned = next(line for line in body.splitlines() if line.strip().startswith("return "))
    found = {}
    for name, value in (("right", returned.strip().removeprefix("return ")), ("wrong", "torch.ones_like(x)")):
        path = tmp_path / f"{name}.py"
        path.write_text(body.replace(returned.strip(), transposed.format(f"({value})"), 1))
        found[name] = run_eval(path, *SMALL, "--device", "cpu", json_results=False).stdout
    assert "The strides of the output are" in found["right"]
    assert "further from the float64 reference" in found["wrong"]


def test_list_is_a_line_for_each_problem_and_says_how_to_see_more():
    run = run_eval("list", json_results=False)
    lines = run.stdout.splitlines()
    (layernorm,) = [line.split() for line in lines if line.startswith("layernorm ")]
    everything = json.loads(run_eval("list", "--json", json_results=False).stdout)
    (known,) = [entry for entry in everything if entry["problem"] == "layernorm"]
    timed = sum(case["timed"] for case in known["cases"])
    assert layernorm == ["layernorm", str(len(known["cases"])), str(timed), str(len(known["submissions"]))]
    assert len(lines) < len(everything) + 6 and max(map(len, lines)) <= 80
    assert "-v" in lines[-1]


def test_list_names_problems_cases_and_submissions():
    run = run_eval("list", "-v", json_results=False)
    assert run.code == 0
    assert "problem layernorm" in run.stdout
    assert "submissions/layernorm/rung1_block_per_row.py" in run.stdout
    as_json = run_eval("list", "--json", json_results=False)
    (problem,) = [p for p in json.loads(as_json.stdout) if p["problem"] == "layernorm"]
    assert {"name": "headline", "shape": "16×64×256×256", "dtype": "float32", "timed": True} in problem["cases"]
    (beside,) = [p for p in json.loads(as_json.stdout) if p["problem"] == "layernorm_dtypes"]
    assert beside["submissions"] == problem["submissions"]  # each is for both
    one = run_eval("list", "rmsnorm", json_results=False)
    assert [line for line in one.stdout.splitlines() if line.startswith("problem")] == ["problem rmsnorm"]
    assert "There is no problem file" in run_eval("list", "rmsnrm", json_results=False).stderr


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        ("eval.py lea", {"leaderboard"}),
        ("eval.py list rms", {"rmsnorm", "rmsnorm_train"}),
        ("eval.py mine.py --problem rms", {"rmsnorm", "rmsnorm_train"}),
        ("eval.py mine.py --no-t", {"--no-timing"}),
        ("eval.py mine.py rej", set()),  # verbs come first
    ],
)
def test_a_shell_completes_verbs_options_and_problems(words, proposed):
    """As bash asks: it gives the words and which of them is being written."""
    asked = {"_EVAL_PY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    run = run_eval(json_results=False, program=True, env=asked)
    found = [line.partition(",") for line in run.stdout.splitlines()]
    assert run.code == 0
    assert {name for kind, _, name in found if kind == "plain"} == proposed


def test_env_names_the_versions():
    run = run_eval("env", json_results=False)
    assert run.code == 0
    assert torch.__version__ in run.stdout


def test_json_carries_what_is_promised():
    run = run_eval(CONTROL, HOSTILE / "form" / "no_model.py", *SMALL, "--seed", "5", program=True)
    results = run.results
    assert set(results) == {"schema", "environment", "evaluations"}
    accepted, rejected = results["evaluations"]
    keys = {
        "problem",
        "submission",
        "source_sha256",
        "device",
        "status",
        "reason",
        "message",
        "geomean_speedup",
        "cases",
    }
    assert keys <= set(accepted)
    assert keys <= set(rejected)
    assert accepted["status"] == "accepted"
    assert accepted["seed"] == 5
    assert rejected["geomean_speedup"] is None
    assert {c["name"] for c in accepted["cases"]} == {"large eps", "large mean"}
    assert all(c["error_ratio"] >= 0 for c in accepted["cases"])
    said = run.stderr.splitlines()
    assert [line.split("  ")[0] for line in said] == ["1 of 2: ACCEPTED", "2 of 2: REJECTED"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--quick", "--against", "eager"], "--quick, --against, since --no-timing times nothing."),
        (["--check"], "--check, which is the emulator's, and this run is on cpu; it has nothing to look at there."),
        (["--quick", "-q"], None),
    ],
    ids=["options of times", "the emulator's", "quiet"],
)
def test_an_option_without_effect_is_named(options, said):
    run = run_eval(CONTROL, *SMALL, "--no-timing", *options)
    assert run.code == 0
    assert run.stderr == (f"Without effect: {said}\n" if said else "")


def test_reports_keep_the_files_order_whatever_device_each_needs():
    on_emulator = [HOSTILE / "form" / f"{name}.py" for name in ("no_cpp_sources", "does_not_compile")]
    run = run_eval(on_emulator[0], CONTROL, on_emulator[1], *SMALL)
    assert [e["submission"] for e in run.results["evaluations"]] == ["no_cpp_sources", "control", "does_not_compile"]


def test_a_submission_of_gpu_modes_is_told_what_it_lacks(tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text("def custom_kernel(data):\n    return data\n")
    (evaluation,) = run_eval(path, *SMALL).results["evaluations"]
    assert "define a ModelNew whose forward calls it" in evaluation["message"]


def test_of_several_only_what_failed_is_shown_case_by_case():
    wrong = HOSTILE / "specification" / "ignores_bias.py"
    shown = run_eval(CONTROL, wrong, *SMALL, json_results=False).stdout
    everything = run_eval(CONTROL, wrong, *SMALL, "-v", json_results=False).stdout
    assert "wrong_output" in shown and "wrong_output" in everything
    assert ("  pass  " in shown, "  pass  " in everything) == (False, True)
    assert shown.count("ACCEPTED  small_layernorm · control  2 cases correct") == 1


def test_quiet_says_nothing_beside_the_report():
    run = run_eval(CONTROL, HOSTILE / "form" / "no_model.py", *SMALL, "-q", json_results=False)
    assert run.stderr == ""
    assert re.findall("^[A-Z]+", run.stdout, re.MULTILINE) == ["ACCEPTED", "REJECTED"]


def test_secrets_of_the_environment_do_not_reach_a_submission(tmp_path):
    text = CONTROL.read_text().replace(
        "import torch\n", "import os\n\nassert 'SECRET_TOKEN' not in os.environ, 'seen'\nimport torch\n", 1
    )
    path = tmp_path / "nosy.py"
    path.write_text(text)
    run = run_eval(path, *SMALL, env={"SECRET_TOKEN": "1"})
    assert run.code == 0, run.results["evaluations"][0]["message"]


def test_children_of_a_submission_are_ended_and_a_reason(tmp_path):
    marker = tmp_path / "left_behind"
    text = CONTROL.read_text().replace(
        "import torch\n",
        "import subprocess, sys\n\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {str(marker)!r}],"
        " start_new_session=True)\nimport torch\n",
        1,
    )
    path = tmp_path / "parent.py"
    path.write_text(text)
    (evaluation,) = run_eval(path, *SMALL).results["evaluations"]
    assert evaluation["reason"] == "extra_processes"
    assert "1 processes that it started were still running" in evaluation["message"]
    assert [p for p in psutil.process_iter(["cmdline"]) if str(marker) in (p.info["cmdline"] or [])] == []


LATE = {
    "builds": (
        "load_inline(name='late', cpp_sources='int f() { return 1; }', functions=['f'])",
        "'late' after the first call of forward, when no compiler can be started any more",
    ),
    "starts": ("subprocess.run(['true'])", "A submission can start processes only until its first call"),
    "forks": ("os.fork()", "A submission can start processes only until its first call"),
}


@pytest.mark.parametrize("way", LATE)
def test_no_process_is_started_in_a_call(tmp_path, way):
    """Operators that it calls would be seen by nobody."""
    statement, sentence = LATE[way]
    text = CONTROL.read_text().replace(
        "    def forward(self, x):\n", f"    def forward(self, x):\n        {statement}\n"
    )
    path = tmp_path / "late.py"
    path.write_text(
        text.replace("import torch\n", "import os, subprocess\nimport torch\n", 1).replace(
            "import torch.nn as nn\n", "import torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n", 1
        )
    )
    (evaluation,) = run_eval(path, *SMALL, "--device", "cpu").results["evaluations"]
    assert evaluation["reason"] == "raised"
    assert sentence in evaluation["message"]


@pytest.mark.parametrize("nested", ["-" * 100_000 + "1", "+".join("1" * 20_000)], ids=["signs", "sums"])
def test_source_nested_deeper_than_a_parser_goes_is_rejected_and_costs_the_others_nothing(tmp_path, nested):
    path = tmp_path / "nested.py"
    path.write_text(f"{CONTROL.read_text()}\nx = {nested}\n")
    evaluations = run_eval(path, CONTROL, *SMALL).results["evaluations"]
    assert {e["submission"]: (e["status"], e["reason"]) for e in evaluations} == {
        "nested": ("rejected", "load_failed"), "control": ("accepted", None),
    }  # fmt: skip


def test_text_that_is_not_utf8_is_judged_as_python_reads_it(tmp_path):
    text = CONTROL.read_text().encode()
    (tmp_path / "declared.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n" + text)
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbf# of cuda only a comment speaks\n" + text)
    (tmp_path / "undeclared.py").write_bytes(b"x = '\xe9'\n" + text)
    evaluations = run_eval(tmp_path, *SMALL).results["evaluations"]
    assert {e["submission"]: (e["status"], e["reason"], e["device"]) for e in evaluations} == {
        "declared": ("accepted", None, "cpu"),
        "marked": ("accepted", None, "cpu"),
        "undeclared": ("rejected", "load_failed", "cpu"),
    }


def test_a_file_name_forges_no_line_and_ends_no_run(tmp_path):
    forged = "x\nACCEPTED  forged\x1b[2J"
    names = (f"{forged}.py".encode(), b"\xff\xfe.py", b"'; touch owned; '.py")
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text((HOSTILE / "form" / "raises.py").read_text())
    run = run_eval(tmp_path, *SMALL, json_results=False)
    assert run.code == 1 and "harness" not in run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert sum(line.startswith("REJECTED") for line in lines) == len(names)
    assert not any(line.startswith("ACCEPTED") for line in lines)
    assert all(line.isprintable() for line in lines)
    (repeated,) = (line for line in lines if "repeat: " in line and "touch" in line)
    assert shlex.split(repeated)[3] == os.fsdecode(bytes(tmp_path / os.fsdecode(names[2])))
    evaluations = run_eval(tmp_path, *SMALL).results["evaluations"]
    assert {e["submission"] for e in evaluations} == {"x?ACCEPTED  forged?[2J", "??", "'; touch owned; '"}


def test_a_worker_that_removes_its_own_folder_ends_no_run(tmp_path):
    path = tmp_path / "removes.py"
    removing = "import os, shutil, time\nshutil.rmtree(os.path.dirname(os.environ['HOME']))\ntime.sleep(0.5)\n"
    path.write_text(CONTROL.read_text().replace("import torch\n", f"{removing}import torch\n", 1))
    run = run_eval(path, *SMALL, "--isolation", "basic")
    assert run.results["evaluations"][0]["status"] == "accepted", run.results["evaluations"][0]["message"]


def test_an_error_of_the_harness_costs_the_others_nothing(tmp_path):
    """A judge with a mistake in it: it fails on one submission in a way that nobody foresaw."""
    program = tmp_path / "mistaken.py"
    program.write_text(
        "import sys\nfrom harness import cli\nfrom harness.judging import correctness\n\n"
        "right = correctness.check_case\n\n"
        "def mistaken(runner, *arguments):\n"
        "    if 'second' in correctness.now:\n        return {}['a mistake']\n"
        "    return right(runner, *arguments)\n\n"
        "correctness.check_case = mistaken\n"
        "judge = correctness.Correctness.run\n\n"
        "def run(self, *arguments):\n    correctness.now = self._submission.name\n    judge(self, *arguments)\n\n"
        "correctness.Correctness.run = run\nsys.exit(cli.main())\n"
    )
    paths = [tmp_path / f"{name}.py" for name in ("first", "second", "third")]
    for path in paths:
        path.write_text(CONTROL.read_text())
    done = subprocess.run(
        [sys.executable, program, *paths, *SMALL, "--no-timing", "--json", "-"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    evaluations = {e["submission"]: e for e in json.loads(done.stdout)["evaluations"]}
    assert done.returncode == 3
    assert {name: e["status"] for name, e in evaluations.items()} == {
        "first": "accepted", "second": "error", "third": "accepted",
    }  # fmt: skip
    assert evaluations["second"]["reason"] == "harness_error"
    (kept,) = tmp_path.glob("kernelgate-error-*.txt")
    assert kept.name in evaluations["second"]["message"]
    assert "a mistake" in kept.read_text()
    assert "Traceback" not in done.stderr


def test_the_version_is_that_of_the_judge():
    from harness.version import judge_version

    run = run_eval("--version", json_results=False)
    assert run.code == 0
    assert run.stdout.splitlines()[-1] == f"judge {judge_version()}"


@pytest.mark.parametrize("asked, shown", [("fp16", "float16"), ("float16", "float16")])
def test_cases_are_chosen_by_their_dtype(asked, shown):
    chosen = "submissions/layernorm/cpu_vectorised.py", "--problem", "layernorm_dtypes", "--dtype", asked
    (evaluation,) = run_eval(*chosen).results["evaluations"]
    assert len(evaluation["cases"]) > 3
    assert {case["dtype"] for case in evaluation["cases"]} == {shown}


def test_a_dtype_that_no_case_has_is_answered_with_those_that_there_are():
    run = run_eval("submissions/rmsnorm/read_once.py", "--dtype", "int8", json_results=False)
    assert run.code == 2
    assert "No case of rmsnorm matches --dtype int8. Its dtypes, and how many cases have each: fp32 (32)" in run.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{}/kernel.cu"], "{}/kernel.cu is no Python file. A submission is one, FILE.py, and its CUDA source"),
        (["--db", "{}/x.db", "leaderboard"], "leaderboard is a verb, and a verb comes first: eval.py leaderboard"),
        (["audit", "rmsnorm", "--memory", "nan"], "--memory is nan; it should be a number of GiB"),
        (["audit", "rmsnorm", "--memory", "-1"], "--memory is -1; it should be a number of GiB"),
        (["new", "layernorm", "/proc/kernel.py"], "/proc/kernel.py cannot be written: "),
    ],
)
def test_what_cannot_be_done_is_a_sentence(tmp_path, words, said):
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}")
    (tmp_path / "results" / "folder.json").mkdir(parents=True)
    (tmp_path / "results" / "gone.json").symlink_to("/no/such/file")
    run = run_eval(*(word.format(tmp_path) for word in words), json_results=False)
    assert run.code == 2
    assert f"eval.py: {said.format(tmp_path)}" in run.stderr
