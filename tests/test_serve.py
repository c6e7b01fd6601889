"""`eval.py serve` as a program in any language sees it: lines in, lines out; and what a line holds of an evaluation."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from harness.explanations import Unexplained
from harness.lanes.lanes import Outcome
from harness.lanes.stages import Stage
from harness.reasons import Reason
from harness.records import KernelCounts, KernelResources
from harness.serve.answers import MOST_BYTES, Complaint, answer, clipped, encode
from harness.serve.requests import MOST_OF_AN_ID
from harness.serve.server import MOST_OF_A_LINE
from harness.verdict import (
    Accepted,
    Build,
    CaseFailed,
    CasePassed,
    CaseTiming,
    CodeFrame,
    CodeLine,
    Geomeans,
    Mark,
    Rejected,
    Worst,
)
from tests.helpers import ROOT, is_alive, run_eval

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
RIGHT = (ROOT / "tests" / "hostile" / "form" / "control.py").read_text()
WRONG = RIGHT.replace("+ self.bias", "+ self.bias + x")
CRASHES = RIGHT.replace(
    "        y = (x", "        import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n        y = (x"
)
HANGS = RIGHT.replace("        y = (x", "        while True: pass\n        y = (x")
NO_MODEL = RIGHT.replace("class ModelNew", "class ModelOld")

LIMIT_S = 120.0


class Served:
    """A server, and the lines that it has answered."""

    def __init__(self, *options):
        command = [sys.executable, str(ROOT / "eval.py"), "serve", *map(str, options)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment
        )
        self._lines = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def say(self, line):
        self.process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode())
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def line(self):
        """The next line, as a value; None at the end."""
        line = self._lines.get(timeout=LIMIT_S)
        assert len(line) <= MOST_BYTES
        return json.loads(line) if line else None

    def until(self, is_it):
        """Lines up to one that is it."""
        lines = [self.line()]
        while not is_it(lines[-1]):
            assert lines[-1] is not None
            lines.append(self.line())
        return lines

    def answers(self, *ids):
        """Answers by their ids, when all of these are there; other lines are passed over."""
        found = {}
        while not set(ids) <= found.keys():
            line = self.line()
            assert line is not None
            found |= {line["id"]: line} if line["type"] == "answer" else {}
        return found

    def end_of_input(self):
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0, self.process.stderr.read()

    @property
    def descendants(self):
        return psutil.Process(self.process.pid).children(recursive=True)


@contextlib.contextmanager
def serving(*options):
    served = Served("--problem", PROBLEM, "--no-timing", *options)
    try:
        yield served
    finally:
        served.process.kill()
        served.process.wait()


@pytest.fixture(scope="module")
def served():
    """One server for what disturbs nobody else."""
    with serving("--device", "cpu", "--jobs", "2", "--limit", "100") as served:
        yield served
        children = served.descendants
        served.end_of_input()
        assert [child for child in children if is_alive(child)] == []


def test_each_request_gets_one_answer_whatever_its_submission_does(served):
    sources = {"right": RIGHT, "wrong": WRONG, "crashes": CRASHES, "no model": NO_MODEL, "no Python": "def ("}
    for name, source in sources.items():
        served.say({"id": name, "source": source})
    served.say({"id": "hangs", "source": HANGS, "limit_s": 10})
    found = served.answers(*sources, "hangs")
    said = {name: (line["status"], line.get("reason"), line["stage"]) for name, line in found.items()}
    assert said == {
        "right": ("accepted", None, "done"),
        "wrong": ("rejected", "wrong_output", "verdict"),
        "crashes": ("rejected", "crashed", "verdict"),
        "no model": ("rejected", "load_failed", "compile"),
        "no Python": ("rejected", "load_failed", "compile"),
        "hangs": ("error", "not_judged", "verdict"),
    }
    assert found["right"]["cases"] == {"passed": 2, "failed": 0, "not_run": 0}
    assert found["wrong"]["worst"].keys() == {"case", "output", "index", "got", "expected"}
    assert found["crashes"]["message"].endswith("was ended by SIGSEGV.")
    assert "the limit that its caller gave" in found["hangs"]["message"]
    assert found["no Python"]["line"] == {"line": 1, "text": "def ("}


def test_stages_are_lines_for_who_asks(served):
    served.say({"id": 1, "source": WRONG, "stages": True})
    *stages, last = served.until(lambda line: line["type"] == "answer")
    assert stages == [{"type": "stage", "id": 1, "stage": name} for name in ("static", "compile", "verdict")]
    assert last["stage"] == "verdict"


def test_a_file_is_judged_with_the_options_of_its_request(served, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(WRONG)
    served.say({"id": 1, "path": str(mine), "select": "large mean", "seed": 7, "first_failure": True})
    found = served.answers(1)[1]
    assert (found["submission"], found["seed"]) == ("mine", 7)
    assert found["cases"] == {"passed": 0, "failed": 1, "not_run": 0}
    assert found["why"].startswith("the result is ")


@pytest.mark.parametrize(
    "line, said",
    [
        (b"nonsense", "A request is one line of JSON"),
        (b"[1]", "A request is a JSON object"),
        (b'{"id": 1, "source": "\xff"}', "A request is one line of JSON"),
        (b"[" * 100_000, "A request is one line of JSON"),
        ({"source": RIGHT}, 'The request has no "id"'),
        ({"id": True, "source": RIGHT}, "An id is a text or a whole number"),
        ({"id": "x" * MOST_OF_AN_ID, "source": RIGHT}, "An id is a text or a whole number"),
        ({"id": 1}, 'A request has either "source"'),
        ({"id": 1, "source": RIGHT, "path": "mine.py"}, 'A request has either "source"'),
        ({"id": 1, "source": 1}, "The request is wrong: source: expected a text or nothing, got a whole number"),
        ({"id": 1, "source": RIGHT, "limit_s": 0}, "The request is wrong: limit_s: expected a number > 0.0"),
        ({"id": 1, "source": RIGHT, "name": "../mine"}, "A source cannot be called '../mine'"),
        ({"id": 1, "source": RIGHT, "devise": "cpu"}, "There is no option 'devise'. Did you mean 'device'?"),
        (
            {"id": 1, "source": RIGHT, "device": "tpu"},
            "device is one of cuda, cpu, emulator, and 'tpu' was given.",
        ),
        ({"id": 1, "source": RIGHT, "problem": "layer"}, "There is no problem file"),
        ({"id": 1, "source": RIGHT, "timeout_s": -1}, "timeout_s must be more than 0 seconds"),
        ({"cancel": 1}, "Nothing is judged under this id"),
        (b"x" * (MOST_OF_A_LINE + 1), "A request has at most 16 MiB"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_line_is_answered_by_an_error_line_and_ends_nothing(served, line, said):
    served.say(line)
    error = served.line()
    assert error["type"] == "error"
    assert error["message"].startswith(said)


def test_a_file_that_has_no_end_keeps_nobody_waiting(served, tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    with open(tmp_path / "huge.py", "wb") as file:
        file.truncate(1 << 36)
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    for number, name in enumerate(("pipe", "huge", "endless")):
        served.say({"id": number, "path": str(tmp_path / f"{name}.py")})
    served.say({"id": 3, "source": RIGHT})
    found = served.answers(0, 1, 2, 3)
    assert [found[number]["reason"] for number in range(3)] == ["not_judged"] * 3
    assert found[3]["status"] == "accepted"


def test_what_cannot_be_judged_is_an_error_and_says_why(served, tmp_path):
    served.say({"id": 1, "path": str(tmp_path / "none.py")})
    served.say({"id": 2, "source": RIGHT, "select": "no case has this"})
    served.say({"id": 3, "path": str(tmp_path)})
    found = served.answers(1, 2, 3)
    assert {line["reason"] for line in found.values()} == {"not_judged"}
    assert found[1]["message"] == f"There is no file or folder {tmp_path}/none.py."
    assert "no case has this" in found[2]["message"]
    assert found[3]["message"] == f"{tmp_path} is a folder, and a lane judges one file at a time."


def test_a_request_is_cancelled_by_its_id_and_its_processes_are_gone():
    with serving("--device", "cpu") as served:
        served.say({"id": 1, "source": HANGS, "stages": True})
        served.until(lambda line: line.get("stage") == "verdict")
        running = served.descendants
        served.say({"id": 2, "source": RIGHT})  # waits
        served.say({"id": 3, "source": RIGHT})
        served.say({"id": 1, "source": RIGHT})
        assert served.line()["message"].startswith("This id is that of a request without an answer")
        served.say({"cancel": 2})
        assert served.line() == {"type": "answer", "id": 2, "status": "cancelled", "stage": "static"}
        served.say({"cancel": 1})
        assert served.line() == {"type": "answer", "id": 1, "status": "cancelled", "stage": "verdict"}
        assert served.answers(3)[3]["status"] == "accepted"
        assert [process for process in running if is_alive(process)] == []
        served.say({"id": 1, "source": RIGHT})  # the id may come again
        assert served.answers(1)[1]["status"] == "accepted"
        served.end_of_input()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_runs_and_says_so(number):
    with serving("--device", "cpu", "--jobs", "2") as served:
        served.say({"id": 1, "source": HANGS, "stages": True})
        served.until(lambda line: line.get("stage") == "verdict")
        children = served.descendants
        served.process.send_signal(number)
        assert served.process.wait(LIMIT_S) == 0
        assert served.line() == {"type": "answer", "id": 1, "status": "cancelled", "stage": "verdict"}
        assert [child for child in children if is_alive(child)] == []
        assert served.process.stderr.read() == b""


def test_who_reads_no_answer_any_more_ends_it():
    command = [sys.executable, str(ROOT / "eval.py"), "serve", "--problem", str(PROBLEM), "--no-timing"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as process:
        process.stdin.write(json.dumps({"id": 1, "source": HANGS, "stages": True}).encode() + b"\n")
        process.stdin.flush()
        for stage in ("static", "compile", "verdict"):
            assert json.loads(process.stdout.readline())["stage"] == stage
        children = psutil.Process(process.pid).children(recursive=True)
        process.stdout.close()
        process.stdin.write(b"nonsense\n")  # which would be answered
        process.stdin.flush()
        assert process.wait(LIMIT_S) == 3
    assert [child for child in children if is_alive(child)] == []


def test_a_judging_process_that_is_killed_costs_one_answer():
    with serving("--device", "cpu") as served:
        served.say({"id": 1, "source": HANGS, "stages": True})
        served.say({"id": 2, "source": RIGHT})
        served.until(lambda line: line.get("stage") == "verdict")
        (lane,) = psutil.Process(served.process.pid).children()
        lane.kill()
        found = served.answers(1, 2)
        assert (found[1]["status"], found[1]["reason"]) == ("error", "not_judged")
        assert found[1]["message"].startswith("The process that judged it ended by SIGKILL.")
        assert found[2]["status"] == "accepted"
        (lane,) = psutil.Process(served.process.pid).children()
        lane.kill()  # while it judges nothing, which costs nobody anything
        lane.wait(LIMIT_S)
        served.say({"id": 3, "source": RIGHT})
        assert served.answers(3)[3]["status"] == "accepted"
        served.end_of_input()


def test_both_sites_of_a_race_are_in_the_answer():
    with serving("--device", "emulator", "-k", "large eps") as served:
        served.say({"id": 1, "path": "tests/hostile/fragile/no_barrier.py"})
        found = served.answers(1)[1]
        assert (found["status"], found["finding"]) == ("rejected", "data_race")
        assert [(site["text"], site["does"]) for site in found["race"]] == [
            ("partial[threadIdx.x] = value;", "wrote"),
            ("for (int i = 0; i < 64; i++) total += partial[i];", "reads"),
        ]
        assert found["line"] == found["race"][1]
        served.end_of_input()


def test_what_is_no_option_of_the_server_is_said():
    for words, said in (
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--limit", "0"], "--limit must be more than 0 seconds"),
        (["--problem", "layer"], "There is no problem file"),
    ):
        run = run_eval("serve", *words, json_results=False)
        assert (run.code, run.stdout) == (2, "")
        assert run.stderr.startswith(f"eval.py: {said}")


# ---------------------------------------------------------------------- what a line holds

LONG = 'a"\\\u20ac' * 3000  # each of these takes more bytes in JSON than it has characters
COMMON = dict(problem=LONG, submission=LONG, source_sha256="", device="emulator", seed=2**63 - 1)
FRAME = CodeFrame(
    file=LONG,
    lines=[CodeLine(number=2**40, text=LONG), CodeLine(number=2**40 + 1, text=LONG)],
    marks=[Mark(line=2**40 + i, column=0, length=1, label=LONG) for i in (0, 1)],
)
RACE = CaseFailed(
    name=LONG, shape=LONG, scaled=False, reason=Reason.DATA_RACE, message=LONG, repeat=LONG, frame=FRAME,
    worst=Worst(output=2**40, index=[2**62] * 64, got=-1.2345678901234567e-300, expected=float("nan")),
    explanation=Unexplained(), also=[LONG] * 9,
)  # fmt: skip


def said_of(evaluation):
    return encode(answer("i" * (MOST_OF_AN_ID - 2), Outcome(evaluation=evaluation, stage=Stage.VERDICT, judged_s=1e9)))


@pytest.mark.parametrize("finding", [None, RACE])
def test_a_race_with_long_messages_is_a_short_line(finding):
    line = said_of(Rejected(**COMMON, cases=[RACE] * 100, reason=Reason.DATA_RACE, message=LONG, finding=finding))
    assert len(line) <= MOST_BYTES
    said = json.loads(line)
    assert [site["line"] for site in said["race"]] == [2**40, 2**40 + 1]
    assert said["worst"]["expected"] is None
    assert said["message"].endswith("…") and LONG.startswith(said["message"][:-1])


def test_a_timed_evaluation_is_a_short_line_with_its_speed():
    times = dict(median_us=2.0, interval_us=(1.9, 2.1), samples_us=[2.0] * 1000, calls_per_round=1, fixed_us=0.0)
    fast = CaseTiming(**times, floor_us=1.0, floor_fraction=0.9, bytes_min=1, launch_bound=False, baselines={})
    slow = CaseTiming(**times, floor_us=1.0, floor_fraction=0.4, bytes_min=1, launch_bound=False, baselines={})
    counts = KernelCounts(kernel="k", launches=2**62, global_read_bytes=3, global_write_bytes=4, bank_conflicts=5)
    cases = [
        CasePassed(name=name, shape="8", scaled=False, error=0, tolerance=1, error_ratio=0, timing=timing,
                   counts=[counts])
        for name, timing in (("first", fast), (LONG, slow))
    ]  # fmt: skip
    kernels = [KernelResources("k", registers, 0, 8, 8) for registers in (32, 64)]
    line = said_of(
        Accepted(**COMMON, cases=cases, geomean_speedup=1.5, geomean_interval=(1.4, 1.6),
                 captured=Geomeans(geomean_speedup=1.2, geomean_interval=(1.1, 1.3)),
                 build=Build(seconds=3.5, cached=False, kernels=kernels))
    )  # fmt: skip
    assert len(line) <= MOST_BYTES
    said = json.loads(line)
    assert said["speedup"] == {
        "over_eager": {"ratio": 1.5, "low": 1.4, "high": 1.6},
        "captured_over_eager": {"ratio": 1.2, "low": 1.1, "high": 1.3},
    }
    floor = said["floor"]
    assert (floor["first_case"], floor["first_us"], floor["first_fraction"]) == ("first", 2.0, 0.9)
    assert floor["mean_fraction"] == pytest.approx(0.6)
    assert said["build_s"] == 3.5
    assert said["counters"] == {
        "registers": 64, "spilled_bytes": 32, "launches": 2**63 - 1, "global_bytes": 14, "bank_conflicts": 10
    }  # fmt: skip


@pytest.mark.parametrize("most", [2, 3, 10, 100, 5000])
def test_a_clipped_text_takes_no_more_than_it_may(most):
    for text in ("", "short", LONG, "\x00" * 100, "€" * 100):
        said = clipped(text, max(most, 8))
        assert len(json.dumps(said, ensure_ascii=False).encode()) <= max(most, 8)
        assert text.startswith(said.removesuffix("…"))


def test_a_complaint_about_a_long_line_is_short():
    assert len(encode(Complaint(message="x" * 10_000, id="i"))) <= MOST_BYTES
