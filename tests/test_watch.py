"""`eval.py watch`: what is saved is judged, as its users see it; and what it says of two verdicts."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time

import psutil
import pytest

from harness.reasons import Reason
from harness.verdict import Accepted, CaseFailed, CaseNotRun, CasePassed, Errored, Rejected
from harness.watch.changes import Change, Turn, change_of_times, changes
from tests.helpers import ROOT, is_alive, is_compiler, run_eval

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
RIGHT = (ROOT / "tests" / "hostile" / "form" / "control.py").read_text()
WRONG = RIGHT.replace("+ self.bias", "+ self.bias + x")

# C++ that takes a compiler longer than any test waits: it includes torch's headers, and counts to a large number.
SLOW_BUILD = (
    RIGHT
    + """
from torch.utils.cpp_extension import load_inline

CPP = '''
constexpr long count() { long n = 0; for (long i = 0; i < 3000000000000; ++i) n += i & 1; return n; }
long counted() { constexpr long n = count(); return n; }
'''
load_inline(name="slow", cpp_sources=CPP, functions=["counted"], extra_cflags=["-fconstexpr-ops-limit=9000000000000",
            "-fconstexpr-loop-limit=2000000000"])
"""
)

LIMIT_S = 120.0


# ---------------------------------------------------------------------- what got better or worse


def passed(name, error_ratio=1.0):
    return CasePassed(name=name, shape="8", scaled=False, error=1.0, tolerance=2.0, error_ratio=error_ratio)


def failed(name, reason=Reason.WRONG_OUTPUT):
    return CaseFailed(name=name, shape="8", scaled=False, reason=reason, message="It is wrong.", repeat="")


COMMON = dict(problem="layernorm", submission="mine", source_sha256="", device="cpu", seed=1)


def accepted(*cases, **more):
    return Accepted(**COMMON, cases=list(cases), **more)


def rejected(*cases, reason=Reason.WRONG_OUTPUT):
    return Rejected(**COMMON, cases=list(cases), reason=reason, message="It is wrong.")


def test_cases_that_passed_and_fail_are_worse_and_are_named():
    found = changes(accepted(passed("a"), passed("b")), rejected(failed("a"), passed("b")))
    assert found == [
        Change(Turn.WORSE, "accepted → rejected"),
        Change(Turn.WORSE, "1 case passed and now fails: 'a'"),
    ]


def test_cases_that_failed_and_pass_are_better():
    found = changes(rejected(failed("a"), failed("b")), accepted(passed("a"), passed("b")))
    assert found == [
        Change(Turn.BETTER, "rejected → accepted"),
        Change(Turn.BETTER, "2 cases failed and now pass: 'a', 'b'"),
    ]


def test_one_save_may_mend_one_case_and_break_another():
    found = changes(rejected(failed("a"), passed("b"), failed("c")), rejected(passed("a"), failed("b"), failed("c")))
    assert found == [
        Change(Turn.WORSE, "1 case passed and now fails: 'b'"),
        Change(Turn.BETTER, "1 case failed and now passes: 'a'"),
        Change(Turn.SAME, "1 case still fails: 'c'"),
    ]


def test_many_names_are_folded():
    names = [f"D = {width}" for width in range(30)]
    (_, change) = changes(accepted(*map(passed, names)), rejected(*map(failed, names)))
    assert change.text == "30 cases passed and now fail: 'D = 0', 'D = 1', 'D = 2', 'D = 3' and 26 more"


def test_what_was_not_judged_says_nothing_of_its_cases():
    not_run = CaseNotRun(name="a", shape="8", scaled=False, message="")
    compiled = rejected(reason=Reason.LOAD_FAILED)
    assert changes(accepted(passed("a")), compiled) == [Change(Turn.WORSE, "accepted → rejected")]
    assert changes(rejected(failed("a")), rejected(not_run)) == []
    assert changes(compiled, rejected(failed("a"))) == [Change(Turn.OTHER, "load_failed → wrong_output")]


def test_what_could_not_be_judged_is_neither_better_nor_worse():
    unknown = Errored(**COMMON, cases=[], reason=Reason.HARNESS_ERROR, message="")
    assert changes(accepted(passed("a")), unknown) == [Change(Turn.OTHER, "accepted → error")]
    assert changes(unknown, accepted(passed("a"))) == [Change(Turn.OTHER, "error → accepted")]


def test_the_largest_error_stands_beside_that_of_before():
    found = changes(accepted(passed("a", 0.5), passed("b", 1.25)), accepted(passed("a", 3.5), passed("b", 1.0)))
    assert found == [Change(Turn.OTHER, "error at most 3.50 × eager's, was 1.25")]


@pytest.mark.parametrize("said, turn", [("faster", Turn.BETTER), ("slower", Turn.WORSE), ("no different", Turn.SAME)])
def test_a_test_of_the_rounds_says_whether_it_is_faster(said, turn):
    before = accepted(passed("a"), geomean_speedup=1.5, geomean_interval=(1.4, 1.6))
    after = accepted(passed("a"), geomean_speedup=2.0, geomean_interval=(1.9, 2.1))
    change = change_of_times(before, after, said)
    assert change == Change(turn, f"{said}; speedup over eager 2.00× [1.90, 2.10], was 1.50× [1.40, 1.60]")


# ---------------------------------------------------------------------- the command


class Watch:
    """`eval.py watch`, and what it has said until now."""

    def __init__(self, *words, terminal=None, env=None):
        command = [sys.executable, ROOT / "eval.py", "watch", *words, "--no-store", "--color", "never"]
        opened = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if terminal is not None:
            opened = dict(stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=own_terminal)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(env or {})}
        self.process = subprocess.Popen([*map(str, command)], env=environment, cwd=ROOT, **opened)
        self.said = ""
        self._seen = 0

    def listen_to(self, number):
        """Hear what comes from there, until its end."""

        def listen():
            with contextlib.suppress(OSError):  # a terminal that nobody has open any more
                while read := os.read(number, 1 << 16):
                    self.said += read.decode(errors="replace")

        threading.Thread(target=listen, daemon=True).start()

    def until(self, pattern):
        """What was said behind what an earlier call found, up to a pattern."""
        found = wait_for(lambda: re.compile(pattern).search(self.said, self._seen), lambda: self.said)
        text, self._seen = self.said[self._seen : found.end()], found.end()
        return text

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    @property
    def descendants(self):
        return psutil.Process(self.process.pid).children(recursive=True)


def own_terminal():
    """Be the first of a session whose terminal standard input is."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def wait_for(found, otherwise=lambda: ""):
    """What `found` gives as soon as that is something."""
    ends_s = time.monotonic() + LIMIT_S
    while not (result := found()):
        assert time.monotonic() < ends_s, otherwise()
        time.sleep(0.02)
    return result


@contextlib.contextmanager
def watching(*words, **options):
    """A watch without a terminal. Nothing of it is left."""
    watch = Watch(*words, **options)
    watch.listen_to(watch.process.stdout.fileno())
    with left_behind(watch):
        yield watch


@contextlib.contextmanager
def left_behind(watch):
    """Stop it, and see that nothing is left of what it has started."""
    try:
        yield
        children = watch.descendants
        assert watch.end() == 0, watch.said
        psutil.wait_procs(children, timeout=20)  # who was ended may take a moment to give its memory back
        assert [child for child in children if is_alive(child)] == []
        assert "Traceback" not in watch.said
    finally:
        watch.process.kill()
        watch.process.wait()


def save_as_a_new_file(path, text):
    """As editors do that never leave half a file."""
    beside = path.with_name(f".{path.name}.swp")
    beside.write_text(text)
    os.replace(beside, path)


def test_a_fault_that_is_saved_is_worse_and_its_repair_is_better(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(RIGHT)
    with watching(mine, "--problem", PROBLEM) as watch:
        watch.until(r"\nACCEPTED  mine  2 cases correct; .*; \d+\.\d s\n")
        save_as_a_new_file(mine, WRONG)
        watch.until(r"\nREJECTED  mine  wrong_output, 2 of 2 cases fail; \d+\.\d s\n  worse: accepted → rejected\n")
        watch.until(r"  worse: 2 cases passed and now fail: 'large eps', 'large mean'\n  wrong_output: 2 of 2 cases")
        mine.unlink()  # as others do, for a moment
        time.sleep(0.3)
        mine.write_text(RIGHT)
        watch.until(r"\nACCEPTED  mine  .*\n  better: rejected → accepted\n  better: 2 cases failed and now pass: 'la")
        mine.write_text(RIGHT.replace("return y *", "return why *"))
        watch.until(r"\nREJECTED  mine  raised, .*\n(.*\n)+.*name 'why' is not defined")
        assert "20 │     return why *" in watch.until(r"\n +│ +\^")


def test_a_newer_save_ends_the_build_of_the_older(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(SLOW_BUILD)
    with watching(mine, "--problem", PROBLEM, env={"KERNELGATE_CACHE": str(tmp_path / "cache")}) as watch:
        compilers = wait_for(lambda: [p for p in watch.descendants if is_compiler(p)], lambda: watch.said)
        old = watch.descendants
        mine.write_text(RIGHT)
        watch.until(r"\nACCEPTED  mine  2 cases correct")
        assert [process for process in (*compilers, *old) if is_alive(process)] == []
        assert watch.said.count("\nACCEPTED") + watch.said.count("\nREJECTED") == 1
        assert "Stopped by" not in watch.said


def test_who_stops_it_ends_the_build(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(SLOW_BUILD)
    with watching(mine, "--problem", PROBLEM, env={"KERNELGATE_CACHE": str(tmp_path / "cache")}) as watch:
        wait_for(lambda: [p for p in watch.descendants if is_compiler(p)], lambda: watch.said)


def test_of_a_folder_the_file_that_was_saved_is_judged(tmp_path):
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(RIGHT)
    with watching(tmp_path, "--problem", PROBLEM) as watch:
        watch.until(r"\nACCEPTED  one ")
        watch.until(r"\nACCEPTED  other ")
        (tmp_path / "one.py").write_text(WRONG)
        watch.until(r"\nREJECTED  one ")
        (tmp_path / "third.py").write_text(RIGHT)
        assert "other" not in watch.until(r"\nACCEPTED  third ")


# ---------------------------------------------------------------------- keys


@contextlib.contextmanager
def at_a_terminal(*words):
    """A watch, its terminal's master, and how the terminal was."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(master)
    try:
        watch = Watch(*words, terminal=slave)
        watch.listen_to(master)
        yield watch, master
        assert termios.tcgetattr(master) == before
    finally:
        watch.process.kill()
        watch.process.wait()
        os.close(slave)
        os.close(master)


def test_keys_show_the_failing_case_time_and_stop(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(WRONG)
    words = (mine, "--problem", timed_problem(tmp_path), "--device", "cpu", "--quick", "--against", "eager")
    with at_a_terminal(*words) as (watch, master):
        watch.until(r"judging mine …[\s\S]*REJECTED  mine  wrong_output, 2 of 2 cases fail")
        assert not termios.tcgetattr(master)[3] & termios.ICANON
        os.write(master, b"h")
        watch.until(r"Keys: t times it")
        os.write(master, b"t")
        watch.until(r"What is wrong is not timed")
        os.write(master, b"f")
        watch.until(r"repeat: python eval.py ")
        watch.until(r"large mean +8×4096 +wrong_output")
        mine.write_text(RIGHT)
        watch.until(r"ACCEPTED  mine  2 cases correct; not timed; ")
        os.write(master, b"ft")
        watch.until(r"No case fails.\s+It is being timed.")
        assert "not timed" not in watch.until(r"(ACCEPTED|ERROR)  mine  .*\r\n")
        children = watch.descendants
        os.write(master, b"q")
        assert watch.process.wait(LIMIT_S) == 0
        assert [child for child in children if is_alive(child)] == []


def timed_problem(folder):
    path = folder / "problems" / "timed_layernorm.py"
    path.parent.mkdir()
    path.write_text(PROBLEM.read_text().replace('distribution="rows"', 'distribution="rows", timed=True'))
    return path


def test_the_emulator_is_not_asked_for_times(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(RIGHT)
    with at_a_terminal(mine, "--problem", PROBLEM, "--device", "emulator") as (watch, master):
        watch.until(r"ACCEPTED  mine ")
        os.write(master, b"t")
        watch.until(r"The emulator gives verdicts and never times")
        os.write(master, b"\x03")  # Ctrl-C
        assert watch.process.wait(LIMIT_S) == 0


RAISES = """
from harness.watch import keys
with keys.one_at_a_time() as terminal:
    print("cbreak", terminal, flush=True)
    input()
    raise RuntimeError
"""


def test_a_terminal_is_as_it_was_after_an_error():
    master, slave = pty.openpty()
    before = termios.tcgetattr(master)
    with subprocess.Popen(
        [sys.executable, "-c", RAISES], cwd=ROOT, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=own_terminal,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"cbreak 0\n"
        assert termios.tcgetattr(master) != before
        os.write(master, b"\n")
        assert process.wait(LIMIT_S) == 1
    assert termios.tcgetattr(master) == before
    os.close(slave)
    os.close(master)


# ---------------------------------------------------------------------- what cannot be watched


def test_what_cannot_be_watched_is_said_in_a_sentence(tmp_path):
    text, mine = tmp_path / "mine.txt", tmp_path / "mine.py"
    text.write_text("")
    mine.write_text(RIGHT)
    for words, said in (
        ([tmp_path / "none.py"], f"There is no file or folder {tmp_path}/none.py."),
        ([text], f"{text} is no .py file, which a submission is."),
        ([mine, "--problem", "layer"], "There is no problem file"),
        ([mine], f"Which problem is {mine} for?"),
        ([tmp_path], f"Which problem is {mine} for?"),
        ([mine, "--db", "some.db", "--no-store"], "--db and --no-store exclude each other"),
    ):
        run = run_eval("watch", *words, json_results=False)
        assert (run.code, run.stdout) == (2, "")
        assert run.stderr.startswith(f"eval.py: {said}")


def test_without_watchfiles_it_is_said_how_to_install_it(tmp_path):
    (tmp_path / "watchfiles.py").write_text("raise ModuleNotFoundError(name='watchfiles')\n")
    mine = tmp_path / "mine.py"
    mine.write_text(RIGHT)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    run = run_eval("watch", mine, "--problem", PROBLEM, json_results=False, env={"PYTHONPATH": path})
    assert run.code == 2
    assert "pip install 'kernelgate[watch]'" in run.stderr
