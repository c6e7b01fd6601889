"""The gate's configuration, and the rules that a candidate is held to."""

import re

import msgspec
import pytest

from harness.errors import UsageError
from harness.exits import Exit
from harness.gate import config
from harness.gate.config import Config
from harness.gate.rules import decide
from harness.gate.targets import find_targets
from harness.gate.values import Compiled, NoVerdict, Slower
from harness.records import KernelResources
from harness.timed import Kind
from harness.verbs.gating.runner import Runner
from harness.verdict import Speedup
from tests.gate.candidates import FILE, candidate
from tests.sample_results import FAST, NOISY, UNTIMED, WRONG


def test_a_folder_without_submissions_is_no_gate(tmp_path):
    """Those that ship with the judge are not who is asked about."""
    with pytest.raises(UsageError, match="There is no folder submissions/ in"):
        find_targets([], Config(), tmp_path)


# ---------------------------------------------------------------------- kernelgate.toml


def written(tmp_path, text):
    path = tmp_path / "kernelgate.toml"
    path.write_text(text)
    return path


def test_every_key_can_be_said(tmp_path):
    text = """
        problems = ["layernorm", "problems/own.py"]
        devices = ["cuda", "emulator"]
        min-speedup = 1.2
        no-slower-than-best = "problem"
        max-spills = 0
        max-registers = 128
        require-check = false
        require-isolation = true
        compile-for = ["sm_80", "sm_90a"]
    """
    read = config.read(written(tmp_path, text))
    assert {key for key in config.KEYS if f"{key} =" in text} == set(config.KEYS)
    assert all(getattr(read, name) != getattr(Config(), name) for name in Config.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min-speedupp = 1.1", "the key 'min-speedupp', which is none. Did you mean 'min-speedup'?"),
        ("max_spills = 0", "Did you mean 'max-spills'?"),
        ("[gate]\nmax-spills = 0", "the key 'gate', which is none. Keys are problems, devices"),
        ("max-spills = -1", "max-spills: expected a whole number >= 0"),
        ("max-registers = 'few'", "max-registers: expected a whole number or nothing, got a text"),
        ("devices = ['gpu']", "each of devices is one of cuda, cpu, emulator, and 'gpu' was given"),
        ("compile-for = ['90']", "compile-for has '90', which is no architecture; write it as sm_80 or sm_90a"),
        ("min-speedup 1.1", "is no TOML: "),
    ],
)
def test_what_is_wrong_with_the_file_is_said(tmp_path, text, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        config.read(written(tmp_path, text))


def test_options_go_before_the_file(tmp_path):
    read = config.read(written(tmp_path, "max-spills = 0\nmax-registers = 64"))
    given = config.with_options(read, {"max-registers": 32, "require-check": False})
    assert (given.max_spills, given.max_registers, given.require_check) == (0, 32, False)
    with pytest.raises(UsageError, match="The command line: min-speedup: expected a number > 0"):
        config.with_options(read, {"min-speedup": -1.0})


# ---------------------------------------------------------------------- rules


def broken(one, **asked):
    return decide([one], Config(**asked)).broken


def lines(one, **asked):
    return [found.line for found in broken(one, **asked)]


def test_what_holds_breaks_nothing():
    outcome = decide([candidate(FAST, UNTIMED, needs_check=True)], Config(min_speedup=2.7, devices=("cuda",)))
    assert (outcome.broken, outcome.remarks, outcome.exit, outcome.judged) == ((), (), Exit.ACCEPTED, 1)


def test_a_rejection_and_an_error_are_told_apart():
    (rejected,), (error,) = broken(candidate(WRONG)), broken(candidate(NOISY))
    assert rejected.line.startswith(f"{FILE}: verdict: rejected on emulator: wrong_output: ")
    assert "\n" not in rejected.line and rejected.line.endswith("; asked for: accepted")
    assert (rejected.exit, rejected.case) == (Exit.REJECTED, "large")
    assert error.line.startswith(f"{FILE}: verdict: error on cpu: too_noisy")
    assert error.exit is Exit.HARNESS


def test_the_worst_decides_the_exit_code():
    assert decide([candidate(NOISY), candidate(WRONG)], Config()).exit is Exit.REJECTED
    assert decide([candidate(FAST), candidate(NOISY)], Config(min_speedup=9)).exit is Exit.HARNESS
    assert decide([candidate(FAST)], Config(min_speedup=9)).exit is Exit.TOO_SLOW


@pytest.mark.parametrize("candidates", [[], [candidate()]])
def test_a_gate_without_any_result_is_closed(candidates):
    outcome = decide(candidates, Config())
    assert [found.rule for found in outcome.broken] == ["results"]
    assert outcome.exit is Exit.NOTHING


def test_a_device_that_is_required_must_have_given_a_verdict():
    assert lines(candidate(UNTIMED), devices=("cuda",)) == [f"{FILE}: devices: no verdict; asked for: cuda"]
    without = (NoVerdict("cuda", "There is no GPU here."),)
    assert lines(candidate(UNTIMED, without=without), devices=("cuda",)) == [
        f"{FILE}: devices: no verdict: There is no GPU here; asked for: cuda"
    ]


def test_a_device_that_cannot_run_it_need_not_have():
    assert broken(candidate(FAST, cannot=("emulator",)), devices=("cuda", "emulator")) == ()


def test_host_code_and_kernels_of_a_gpu_alone_are_judged_where_they_can(repository):
    text = "from torch.utils.cpp_extension import load_inline\nload_inline('x', cpp_sources='')\n"
    (repository / "submissions/tiny/mine.py").write_text(text)
    (repository / "submissions/tiny/triton.py").write_text("import triton\n")
    rules = Config(devices=("cuda", "emulator"))
    runner = Runner(rules, repository / "r.db", keeps=False, color="never", quiet=True)
    host, triton = find_targets([], rules, repository)
    assert [runner._devices(target) for target in (host, triton)] == [["cpu"], ["cuda"]]
    assert [runner._candidate(target).cannot for target in (host, triton)] == [("cuda", "emulator"), ("emulator",)]


def test_detectors_must_have_watched_what_they_can_watch():
    (found,) = broken(candidate(UNTIMED, needs_check=True, checked=False))
    assert (found.rule, found.exit) == ("require-check", Exit.HARNESS)
    assert broken(candidate(UNTIMED, needs_check=True)) == ()
    assert broken(candidate(UNTIMED, needs_check=False, checked=False)) == ()
    assert broken(candidate(UNTIMED, needs_check=True, checked=False), require_check=False) == ()


def test_the_whole_interval_must_reach_the_speedup():
    assert broken(candidate(FAST), min_speedup=2.71) == ()  # 2.79 [2.71, 2.86]
    assert lines(candidate(FAST), min_speedup=2.75) == [
        f"{FILE}: min-speedup: 2.79× [2.71, 2.86] on cuda; asked for: 2.75×"
    ]
    untimed = msgspec.structs.replace(FAST, geomean_speedup=None, geomean_interval=None)
    (found,) = broken(candidate(untimed), min_speedup=1)
    assert found.line.startswith(f"{FILE}: min-speedup: unknown on cuda") and found.exit is Exit.HARNESS


def test_without_times_a_speedup_is_left_out_and_said():
    outcome = decide([candidate(UNTIMED)], Config(min_speedup=2))
    assert outcome.passed
    assert [remark.line for remark in outcome.remarks] == [
        f"{FILE}: min-speedup left out: the emulator gives verdicts, never times."
    ]


KERNELS = (KernelResources("lean", 40, 0, 0, 0), KernelResources("rich<float>", 168, 1024, 8, 16))


def test_kernels_are_held_to_what_a_thread_may_need_on_each_architecture():
    compiled = (Compiled("sm_80", KERNELS[:1]), Compiled("sm_120", KERNELS))
    assert lines(candidate(UNTIMED, compiled=compiled), max_spills=23, max_registers=160) == [
        f"{FILE}: max-spills: rich<float> spills 24 bytes on sm_120; asked for: 23 bytes",
        f"{FILE}: max-registers: rich<float> needs 168 on sm_120; asked for: 160",
    ]
    assert lines(candidate(UNTIMED, compiled=compiled), max_spills=24, max_registers=168) == []


def test_the_build_for_a_gpu_counts_as_compiled():
    (found,) = broken(candidate(FAST), max_spills=0)
    assert found.line == f"{FILE}: max-spills: spilling spills 40 bytes on cuda; asked for: 0 bytes"


def test_kernels_that_were_compiled_for_nothing_are_left_out_and_said():
    outcome = decide([candidate(UNTIMED, needs_check=True)], Config(max_spills=0, max_registers=64))
    assert outcome.passed
    assert "max-spills and max-registers left out" in outcome.remarks[0].line


def test_a_compiler_that_refuses_an_architecture_rejects():
    (found,) = broken(candidate(UNTIMED, compiled=(Compiled("sm_80", error="mine.py:3: no such instruction"),)))
    assert found.line == f"{FILE}: compile-for: refused: mine.py:3: no such instruction; asked for: sm_80"
    assert found.exit is Exit.REJECTED


ALARM = Slower("headline", Kind.CAPTURED, Speedup(ratio=0.95, interval=(0.94, 0.96)), noise=0.012)


def test_a_case_that_is_slower_than_the_best_is_named_with_its_noise():
    one = candidate(FAST, slower=(ALARM,), best="best, source 0123456789, stored 2026-01-01")
    (found,) = broken(one)
    assert found.line == (
        f"{FILE}: no-slower-than-best: 'headline', captured is 5.3% slower [4.2%, 6.4%] than best, source 0123456789, "
        "stored 2026-01-01; asked for: 1.2%, the case's own noise"
    )
    assert found.exit is Exit.TOO_SLOW
    assert broken(one, no_slower_than_best="off") == ()
