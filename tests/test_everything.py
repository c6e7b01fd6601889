"""The plan of all measurements: its programs take its commands, and a run can be stopped and continued."""

import importlib
import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests import machine
from tests.helpers import BUSY, PATIENCE, ROOT
from tests.sites import KEPT

sys.path.insert(0, str(ROOT / "benchmarks"))
import everything
import mutants
import plan
import variants

STEPS = [step for steps in (plan.gpu(), plan.cpu()) for together in steps for step in together]

# Scripts that give eval.py what they do not know themselves.
PASS_ON = {
    f"benchmarks/{name}.py" for name in ("same_twice", "clock_accuracy", "repeatability", "replay", "warm_evaluation")
}


def module(path):
    """A script, which may be called like another's module."""
    spec = importlib.util.spec_from_file_location(f"script_{path.split('/')[-1].removesuffix('.py')}", ROOT / path)
    loaded = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def parse(words):
    """What the program's own parser makes of its words; SystemExit or UsageError where it refuses them."""
    from harness.options import parse as parse_eval

    program, *rest = words
    if program == "eval.py":
        return parse_eval(rest)
    if program == "-m":
        program, *rest = rest
        return importlib.import_module(f"{program}.__main__").parser().parse_args(rest)
    options, unknown = module(program).parser().parse_known_args(rest)
    assert program in PASS_ON or not unknown, unknown
    parse_eval(["submission.py", *unknown])
    return options


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.name)
def test_programs_take_the_commands_of_the_plan(step):
    for words in (step.words, step.dry_run):
        parse(words)
        named = [
            word for word in words if word.startswith(("submissions/", "tests/", "benchmarks/")) or word == "eval.py"
        ]
        assert named or words[0] == "-m"
        assert [word for word in (*named, *step.reads) if not (ROOT / word).exists()] == []
        written = [word.removeprefix(f"{plan.FOLDER}/") for word in words if word.startswith(plan.FOLDER)]
        assert step.printed or set(step.files) <= set(written)


def test_every_problem_with_submissions_is_measured_and_every_step_is_named_once():
    names = [step.name for together in plan.gpu() for step in together]
    assert len(names) == len(set(names))
    assert {folder.name for folder in (ROOT / "submissions").iterdir() if any(folder.glob("*.py"))} <= set(names)


# ---------------------------------------------------------------------- a run


def step(name, code, *, reads=(), seconds=1.0, limit_s=20.0):
    words = ("-c", f"folder = '{plan.FOLDER}'\n{code}")
    return plan.Step(name=name, words=words, files=(f"{name}.json",), seconds=seconds, limit_s=limit_s,
                     dry_run=words, reads=reads)  # fmt: skip


def write(name, content="1"):
    return f"open(folder + '/{name}.json', 'a').write('{content}')"


def outcomes(folder):
    return {name: done["outcome"] for name, done in json.loads((folder / "run.json").read_text()).items()}


def test_a_step_that_fails_or_hangs_is_named_and_the_others_go_on(tmp_path, capsys):
    steps = [
        [step("fails", "raise SystemExit('no such thing')"), step("hangs", "import time; time.sleep(60)", limit_s=1)],
        [step("partial", write("partial") + "\nraise SystemExit(75)")],
        [step("works", write("works"))],
        [step("large", write("large"), seconds=1000)],
    ]
    assert not everything.measure(steps, tmp_path, budget_s=100)
    said = capsys.readouterr().out
    assert outcomes(tmp_path) == {
        "fails": "left no fails.json",
        "hangs": "stopped after 1 s",
        "partial": "ran out of its own time; what was done is there",
        "works": "done",
    }
    assert "no such thing" in said
    assert "large (about 1000 s)" in said.splitlines()[-2]
    assert (tmp_path / "works.json").read_text() == "1"


def test_each_gpu_takes_the_next_step_once_it_has_done_its_last(tmp_path):
    """Both first steps wait for each other: they run side by side."""

    def meets(name, other):
        code = f"""
import os, pathlib, time
pathlib.Path(folder, '{name}.met').touch()
while not pathlib.Path(folder, '{other}.met').exists(): time.sleep(0.01)
pathlib.Path(folder, '{name}.json').write_text(os.environ['CUDA_VISIBLE_DEVICES'])
"""
        return step(name, code)

    gpu = "import os; open(folder + '/last.json', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"
    steps = [[meets("one", "two")], [meets("two", "one")], [step("last", gpu)]]
    assert everything.measure(steps, tmp_path, budget_s=100, gpus=("0", "1"))
    written = {name: (tmp_path / f"{name}.json").read_text() for name in ("one", "two", "last")}
    assert {written["one"], written["two"]} == {"0", "1"}
    assert written["last"] in ("0", "1")
    assert outcomes(tmp_path) == dict.fromkeys(("one", "two", "last"), "done")


def test_ctrl_c_ends_the_step_and_those_before_it_stay_done(tmp_path):
    """In a process of its own: pytest, too, hears a Ctrl-C."""
    ready = tmp_path / "ready"
    program = f"""
import sys
import time
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import everything, signal, pathlib
from tests.test_everything import step, write
signal.signal(signal.SIGINT, signal.default_int_handler)
waits = "import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
steps = [[step("done", write("done"))], [step("waits", waits, limit_s=60)], [step("next", write("next"))]]
everything.measure(steps, pathlib.Path({str(tmp_path)!r}), budget_s=100)
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert outcomes(tmp_path) == {"done": "done", "waits": "interrupted"}


def test_what_is_done_is_left_out_until_what_it_read_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    source = tmp_path / "kernel.py"
    source.write_text("a")
    steps = [[step("one", write("one"), reads=("kernel.py",))]]
    for content, written in (("a", "1"), ("a", "1"), ("b", "11")):
        source.write_text(content)
        assert everything.measure(steps, tmp_path, budget_s=100)
        assert (tmp_path / "one.json").read_text() == written


def test_a_machine_without_builds_makes_them_first_unless_the_verdicts_do(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "empty"))
    whole, one = plan.gpu(), everything.chosen(plan.gpu(), ["rmsnorm"])
    assert everything.with_builds(whole, tmp_path) == whole
    ((builds,), *rest) = everything.with_builds(one, tmp_path)
    assert rest == one
    assert set(builds.reads) == {
        f"submissions/rmsnorm/{path.name}" for path in (ROOT / "submissions/rmsnorm").glob("*.py")
    }
    parse(builds.words)


def test_an_unknown_step_is_answered_with_those_that_there_are():
    with pytest.raises(SystemExit, match=r"No step is called nothing\. The steps: .*hostile"):
        everything.chosen(plan.gpu(), ["nothing"])


# ---------------------------------------------------------------------- its tables


def test_what_was_not_measured_says_which_step_measures_it(tmp_path):
    from documents import agreement, measurements

    elsewhere = {"checks", "peers", "launches", "runs", "audit kernelbench level 1", "mutants", "hostile opened"}
    for name in set(measurements.TABLES) - elsewhere:
        text = measurements.table(name, tmp_path)
        assert text.startswith("Not measured yet: `python benchmarks/everything.py"), name
        assert text.split("--only ")[1].removesuffix("`.\n") in {s.name for s in STEPS}
    for name in agreement.TABLES:
        assert agreement.table(name, tmp_path / "h200").startswith("Not measured yet: ")
    assert measurements.table("runs", tmp_path).startswith("No run has been recorded yet: ")
    assert measurements.table("checks", tmp_path).count("not measured yet") == 5


def test_checks_count_what_is_asked_and_hide_no_miss(tmp_path):
    from documents import measurements

    environment = {"date": "2026-01-02T03:04:05+00:00", "gpu": "GPU", "torch": "2"}
    rows = [
        {
            "counted": counted,
            "long": True,
            "within": within,
            "outer_us": outer_us,
            "device_us": 100.0,
            "counted_queued": counted,
            "within_queued": counted,
            "queued_us": 103.0,
            "counted_graphs": counted,
            "within_graphs": not within,
            "graphs_us": 102.0,
        }
        for counted, within, outer_us in ((True, True, 101.0), (True, False, 104.0), (False, False, 200.0))
    ]
    outcomes = [
        {"device": "cuda", "family": "f", "name": name, "got": got, "must_get": [must], "right": got == must}
        for name, got, must in (("a", "accepted", "rejected crashed"), ("b", "accepted", "accepted"))
    ]
    warm = {"submission": "mine", "device": "cuda", "cases": 3, "timed_cases": 1,
            "ways": {"timed, --quick": {"seconds": [7.0, 7.2], "median_s": 7.1, "ratio": 1.9}}}  # fmt: skip
    files = {
        "clock_accuracy": {"environment": environment, "rows": rows},
        "hostile": {"environment": {"cuda": environment}, "outcomes": outcomes},
        "warm_evaluation": {"environment": environment, **warm},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    text = measurements.table("checks", tmp_path)
    assert "one CUDA graph of all calls, over 50 µs | within 2% | 1 of 2; +1.0% to +4.0% | 2026-01-02 |" in text
    assert "a CUDA graph of each call, over 50 µs | within 2% | 1 of 2; -1.0% to +2.0% | 2026-01-02 |" in text
    assert "launched one by one, over 50 µs | within 2% | 2 of 2; -1.9% to +1.0% | 2026-01-02 |" in text
    assert "| at most 2 times torch and a tensor | 7.1 s, 1.90 times | 2026-01-02 |" in text
    assert "2 files: 1 hostile accepted, 1 of 1 controls; 1 as named" in text
    assert "`f/a` on cuda got accepted, and must get rejected crashed" in measurements.table("hostile", tmp_path)


def test_a_replay_shows_what_unchanged_runs_and_slower_ones_are_called(tmp_path):
    from documents import measurements

    def row(difference, ratio, doubt=""):
        speed = {"ratio": ratio, "interval": [ratio - 0.01, ratio + 0.01]}
        return {"headline, called": {"difference": difference, "doubt": doubt, "speed": speed}}

    names = ("submission", "rank", "standing", "evaluations", "speedup")
    entries = [("mine", 1, "ranked", 3, 44.4), ("mine_slow", None, "provisional", 1, None)]
    content = {
        "submission": "mine", "slower": 0.05, "wait_us": 9.4, "complete": False, "copy": row("no different", 1.0),
        "slow": row("slower", 0.952),
        "unchanged": [row("no different", 1.0), row("no different", 1.0, "too noisy"), row("faster", 1.05)],
        "board": [dict(zip(names, entry, strict=True)) for entry in entries],
        "environment": {"gpu": "GPU", "torch": "2", "date": "2027-01-02", "command": "python replay.py --json x"},
    }  # fmt: skip
    (tmp_path / "replay.json").write_text(json.dumps(content))
    text = measurements.table("replay", tmp_path)
    assert "It was stopped before its last run." in text
    assert "| one made 5% slower (9.4 µs longer) is |" in text
    assert "| headline, called | 1 of 3 | no different, 1.000× [0.990, 1.010] | slower, 0.952× [0.942, 0.962] |" in text
    assert "| `mine` | rank 1 | 3 | 44.400× |" in text and "| `mine_slow` | provisional | 1 | – |" in text


def test_the_gates_proof_shows_the_run_that_decided(tmp_path):
    from documents import measurements

    def run(name, got, **slower):
        return {"name": name, "expected": got, "got": got, "seconds": 30.0, "as_expected": True, "slower": slower}

    content = {
        "submission": "mine", "median_us": 150.0, "complete": True,
        "environment": {"gpu": "GPU", "torch": "2", "date": "2027-01-02"},
        "runs": [
            run("main", 0), run("wrong", 1),
            run("slower", 4, called=[[0.04, -0.01, 0.09], [0.05, 0.04, 0.06]], captured=[[0.03, -0.2, 0.3]]),
            run("unchanged 1", 0, called=[[0.01, -0.01, 0.02]]), run("unchanged 2", 0, called=[[-0.02, -0.03, 0.0]]),
        ],
    }  # fmt: skip
    (tmp_path / "gate_proof.json").write_text(json.dumps(content))
    text = measurements.table("gate proof", tmp_path)
    assert "| wrong | 1 | red | 1 of 1 | – | 30.0 |" in text
    assert "| slower | 1 | red | 1 of 1 | called +5.0% [+4.0%, +6.0%] | 30.0 |" in text
    assert "| unchanged | 2 | green | 2 of 2 | -2.0% to +1.0% | 30.0 |" in text


def test_a_report_is_printed_from_kept_results(monkeypatch, capsys):
    results = str(KEPT)
    monkeypatch.setattr(sys, "argv", ["report.py", results, "speed_of_light"])
    module("benchmarks/report.py").main()
    printed = capsys.readouterr().out
    assert "\nACCEPTED  speed_of_light  60 cases correct" in printed
    assert "rung4" not in printed
    head, row = (line for line in printed.splitlines() if line.startswith(("case ", "8192x4096 ")))
    eager = json.loads(Path(results).read_text())["evaluations"]
    (eager_us,) = (c["timing"]["baselines"]["eager"]["median_us"] for e in eager if e["submission"] == "speed_of_light"
                   for c in e["cases"] if c["name"] == "8192x4096")  # fmt: skip
    end = head.index(" eager ") + len(" eager")
    assert row[:end].endswith(f" {eager_us:.1f} µs")


def test_places_are_of_a_device_and_of_those_with_a_speedup_that_is_known():
    from harness.report.formats import json as results_json
    from harness.report.formats import terminal
    from harness.report.view import View

    results = results_json.load(KEPT)
    intervals = {"cpu_vectorised": (1.4, 1.6), "speed_of_light": (1.0, 9.0)}
    evaluations = [
        msgspec.structs.replace(e, geomean_speedup=1.5, geomean_interval=intervals.get(e.submission, (1.45, 1.55)))
        for e in results.evaluations
    ]
    results = msgspec.structs.replace(results, evaluations=evaluations)
    wide = View()
    ranking = terminal.render(results, wide).split("Ranking · layernorm\n")[1].splitlines()[1:]
    rows = [line.split()[:3] for line in ranking if line[0].isdigit()]
    assert [place for place, _, device in rows if device == "cuda"] == ["1", "2", "3", "4", "5"]
    assert "speed_of_light" not in [name for _, name, _ in rows]
    assert ["1", "cpu_vectorised", "cpu"] in rows
    untimed = [msgspec.structs.replace(e, geomean_speedup=None) for e in results.evaluations]
    report = terminal.render(msgspec.structs.replace(results, evaluations=untimed), wide)
    ranking = report.split("Verdicts · layernorm\n")[1].splitlines()[1:]
    assert [line[0] for line in ranking[: len(untimed)]] == ["–"] * len(untimed)


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_has_one_place_in_the_code(mutant):
    """Where what it changes is gone, or is there twice, it changes nothing and kills no test."""
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1


def timed_alone(command):
    """What a command ended with that times something: another try where the machine was too busy."""
    with machine.alone():
        for _ in range(PATIENCE):
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if not re.search(BUSY, ended.stdout + ended.stderr):
                break
    return ended


@pytest.mark.alone
def test_what_a_round_costs_is_shown_for_everybody_who_is_timed():
    words = ["submissions/layernorm/cpu_vectorised.py", "--problem", "layernorm", "--device", "cpu", "--quick"]
    words += ["--against", "eager", "-k", "32x128x768"]
    run = [sys.executable, "benchmarks/round_costs.py", *words]
    ended = timed_alone(run)
    printed = ended.stderr
    shown = [line.split() for line in printed.splitlines() if " rounds " in line]
    assert [words[0] for words in shown] == ["submission", "eager", "null_kernel"], ended.stdout + printed
    assert all({"before", "timed", "after"} <= set(words) for words in shown)
    assert "thread python" in printed


VARIED = """
import torch
from torch import nn

REPEATS = 8
ADDED = 0


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(REPEATS):
            y = torch.relu(x)
        return y + ADDED
"""
RELU = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(512, 512)]

def get_init_inputs():
    return []
"""


@pytest.mark.alone
def test_variants_of_constants_are_timed_against_the_file_as_it_is(tmp_path):
    """One is timed; one is wrong, is named, and has no time."""
    files = [tmp_path / "varied.py", tmp_path / "relu.py"]
    for file, text in zip(files, (VARIED, RELU), strict=True):
        file.write_text(text)
    words = [files[0], "REPEATS=1", "ADDED=1", "--problem", files[1], "--device", "cpu", "--json", tmp_path / "v.json"]
    run = [sys.executable, "benchmarks/variants.py", *map(str, words)]
    ended = timed_alone(run)
    printed = ended.stdout
    assert ended.returncode == 0, printed + ended.stderr
    over = json.loads((tmp_path / "v.json").read_text())["cases"]["relu"]["called"]["over"]
    assert list(over) == ["REPEATS_1"], printed + ended.stderr
    ratio, low, high = over["REPEATS_1"]
    assert 0 < low <= ratio <= high
    assert "ADDED_1 was left out: 262,144 of 262,144 elements" in printed


def test_every_combination_is_a_variant_and_a_constant_that_is_not_there_is_said():
    words = [variants.parsed("A=1,2 * 3"), variants.parsed("B=4,5+C=6,7 + 1")]
    assert words == [[{"A": "1"}, {"A": "2 * 3"}], [{"B": "4", "C": "6"}, {"B": "5", "C": "7 + 1"}]]
    names = [variants.label(v) for v in variants.combined(words)]
    assert names == ["A_1_B_4_C_6", "A_1_B_5_C_7_1", "A_2_3_B_4_C_6", "A_2_3_B_5_C_7_1"]
    assert variants.changed("constexpr int A = 1, B = 2;", {"A": "2 * 3"}) == "constexpr int A = 2 * 3, B = 2;"
    with pytest.raises(SystemExit, match="stands 0 times"):
        variants.changed("int A = 1;", {"B": "2"})
    with pytest.raises(SystemExit, match="is no NAME=VALUE"):
        variants.parsed("kSlots")
    with pytest.raises(SystemExit, match="as many values as the others"):
        variants.parsed("A=1,2+B=3")
