"""Results with one of everything that a report can show, made of fixed figures."""

from harness import notes
from harness.exits import Exit
from harness.explanations import FailingCases, Places, Region
from harness.gate.values import Broken, Candidate, Compiled, Outcome, Ran, Remark
from harness.notes import NotTimed
from harness.reasons import Reason
from harness.records import ClockLimit, KernelCounts, KernelResources
from harness.report.view import View
from harness.verdict import (
    SCHEMA,
    Accepted,
    Baseline,
    Build,
    CaseFailed,
    CaseNotRun,
    CasePassed,
    CaseTiming,
    CodeFrame,
    CodeLine,
    Conditions,
    DeviceTime,
    Errored,
    Geomeans,
    Mark,
    Printed,
    ProcessorUse,
    Rejected,
    Results,
    Speedup,
    Worst,
)

SHA256 = "0123456789abcdef" * 4


def times(median_us, half_us):
    samples_us = [median_us + half_us * step / 4 for step in range(-4, 5)]
    return dict(
        median_us=median_us, interval_us=(median_us - half_us, median_us + half_us), samples_us=samples_us,
        calls_per_round=32, fixed_us=250.0, issue_us=9.5,
    )  # fmt: skip


def ratio_of(ratio, half):
    return Speedup(ratio=ratio, interval=(ratio - half, ratio + half))


def used(median_us, half_us, ratio=None, half=0.0):
    return ProcessorUse(
        median_us=median_us, interval_us=(median_us - half_us, median_us + half_us),
        speedup=ratio and ratio_of(ratio, half),
    )  # fmt: skip


def baseline(median_us, ratio, half=0.02, version="", **more):
    return Baseline(**times(median_us, 1.0), speedup=ratio_of(ratio, half), version=version, **more)


def timing(median_us, floor_us, baselines, **more):
    return CaseTiming(
        **{**times(median_us, 0.7), **more}, floor_us=floor_us, floor_fraction=floor_us / median_us, bytes_min=1 << 20,
        launch_bound="device" in more, baselines=baselines, speedup_over_best=baselines["eager"].speedup,
    )  # fmt: skip


def seen(**more):
    return Conditions(**{
        "sm_mhz": (1980, 1980), "memory_mhz": (3201, 3201), "temperature_c": 50, "power_w": 577.25,
        "power_limit_w": 700.0, "clock_limits": [ClockLimit.IDLE], "other_processes": [], "discarded": 0,
        "sm_mhz_of_rounds": [1980] * 9, "discarded_throttled": [], "discarded_beside": [], **more,
    })  # fmt: skip


SLOWED = seen(
    sm_mhz=(1755, 1980), clock_limits=[ClockLimit.POWER_CAP, ClockLimit.THERMAL], other_processes=None, discarded=5,
    discarded_throttled=[ClockLimit.THERMAL], discarded_beside=[4711], sm_mhz_of_rounds=[1755, *[1980] * 8],
)  # fmt: skip


def passed(name, shape, ratio=0.25, **more):
    return CasePassed(
        name=name, shape=shape, scaled=False, error=1e-7, tolerance=4e-7, error_ratio=ratio, **more
    )  # fmt: skip


def failed(name, shape, reason, message, **more):
    return CaseFailed(
        name=name, shape=shape, scaled=False, reason=reason, message=message,
        repeat=f"python eval.py submissions/layernorm/wrong.py --problem problems/layernorm.py --device emulator -k "
        f"'{name}' --seed 5", **more,
    )  # fmt: skip


COUNTS = KernelCounts(
    kernel="normalise", launches=2, global_read_bytes=4096, global_write_bytes=2048, sectors=192, ideal_sectors=192,
    bank_conflicts=31, worst_bank_conflict=32, worst_bank_conflict_line=40, atomics=3, barriers=8,
    not_followed_bytes=5_000_000,
)  # fmt: skip

BUILD = Build(
    seconds=12.34, cached=False,
    kernels=[KernelResources("normalise<float>", 40, 2048, 0, 0), KernelResources("spilling", 255, 0, 16, 24)],
)  # fmt: skip

FAST = Accepted(
    problem="layernorm", submission="fast", source_sha256=SHA256, device="cuda", seed=5, effort="usual",
    cases=[
        passed("headline", "16×64×256×256", timing=timing(187.0, 133.0, {
            "eager": baseline(8310.0, 44.4, 0.4), "compile": baseline(316.0, 1.69),
            "liger": baseline(188.0, 1.005, version="liger-kernel 0.8.5"),
        }, conditions=seen(), captured=timing(
            183.0, 133.0, {"eager": baseline(8250.0, 45.1, 0.4), "compile": baseline(309.0, 1.69)}, conditions=SLOWED,
        ))),
        passed("32x128x768", "32×128×768", timing=timing(
            9.7, 5.9, {"eager": baseline(29.6, 3.05), "compile": baseline(61.3, 6.32)},
            device=DeviceTime(call_us=8.54, method="queue"),
        )),
        passed("one trailing dim", "6×5×4×128", 0.17),
    ],
    build=BUILD,
    notes=[
        notes.OneCaseTimed(case="headline", untimed=6),
        notes.BaselineLeftOut(baseline="liger", why="liger refuses rows of 4 million elements.", case="32x128x768"),
        notes.BaselineLeftOut(baseline="apex", why="apex is not installed."),
        notes.BaselineBelowNoise(baseline="quack", case="headline", part="backward"),
        notes.BaselineEnded(baseline="compile", case="headline", why="The process that ran it was ended by SIGKILL."),
        notes.NotCaptured(implementation="liger", why="CUDA error: it waits.", cases=["headline", "32x128x768"]),
        notes.InputsUnchanged(case="headline"),
        notes.BusyMachine(case="headline", share=0.375),
        notes.Disturbed(case="headline", captured=True, throttled=["thermal_slowdown"], processes=[4711, 4712],
                        discarded=5),
        notes.SanitizerFound(tool="racecheck", message="Race reported between two writes"),
        notes.SanitizerFailed(tool="synccheck", why="it ended with 1: out of memory"),
        notes.SanitizerSilent(tools=["memcheck", "initcheck"]),
        notes.DetectorsSilent(case="headline"),
        notes.MayRun(operators=["native_layer_norm"]),
        notes.NoKernel(),
        notes.OtherDefaults(arguments=["eps=0.01 (Model: 1e-05)"]),
        notes.Sentence(text="A sentence of a file without values."),
    ],
    geomean_speedup=2.79, geomean_interval=(2.71, 2.86), geomean_speedup_over_best=1.53,
    geomean_over_best_interval=(1.49, 1.57),
    captured=Geomeans(geomean_speedup=2.61, geomean_interval=(2.55, 2.66), geomean_speedup_over_best=1.31,
                      geomean_over_best_interval=(1.3, 1.32)),
)  # fmt: skip

RACE_LINES = {
    6: "    __shared__ float sums[256];",
    7: "    sums[threadIdx.x] = sum;",
    8: "    // no barrier",
    11: "    float total = 0;",
    12: "    for (int i = 0; i < 256; i++) total += sums[i];",
    13: "    return total;",
}
RACE = CodeFrame(
    file="wrong.py",
    lines=[CodeLine(number=number, text=text) for number, text in RACE_LINES.items()],
    marks=[Mark(line=7, column=4, length=17, label="wrote"), Mark(line=12, column=43, length=7, label="reads")],
)

WRONG = Rejected(
    problem="layernorm", submission="wrong", source_sha256=SHA256, device="emulator", seed=5,
    cases=[
        passed("small", "4×8", counts=[COUNTS]),
        failed("large", "8×4096", Reason.WRONG_OUTPUT, "3 of 32,768 elements of the output are wrong.", error=0.5,
               tolerance=1e-6, error_ratio=123456.0, worst=Worst(output=0, index=[1, 2], got=1.5, expected=1.0),
               explanation=Region(content="nan", split=1, columns=Places(start=4092, stop=4096, count=4096))),
        failed("race", "8×64", Reason.DATA_RACE, "Two threads write y[3]. (kernel normalise, wrong.py:40)"),
        failed("larger", "16×4096", Reason.WRONG_OUTPUT, "9 of 65,536 elements of the output are wrong."),
        CaseNotRun(name="last", shape="2×2", scaled=True, message="Not run: an earlier case ended the process."),
    ],
    reason=Reason.WRONG_OUTPUT,
    printed=Printed(lines=["mean of row 3: nan", "ACCEPTED  forged"], left_out=1200, case="large"),
    message="3 of 5 cases failed; 'large': 3 of 32,768 elements of the output are wrong.\nACCEPTED  forged",
    failing=FailingCases(failed=3, judged=4, feature="D", relation=">", value="8"),
)  # fmt: skip

RACING = Rejected(
    problem="layernorm_train", submission="racing", source_sha256=SHA256, device="emulator", seed=5,
    cases=[failed("large", "8×4096", Reason.WRONG_OUTPUT, "3 of 32,768 elements of the output are wrong.")],
    reason=Reason.WRONG_OUTPUT,
    message="1 of 1 cases failed; 'large': 3 of 32,768 elements of the output are wrong.",
    finding=failed("large", "8×4096", Reason.DATA_RACE, "It reads what thread 0 has just written. (wrong.py:12)",
                   also=["out_of_bounds: The kernel reads behind the end of x. (wrong.py:21)"],
                   frame=RACE),
)  # fmt: skip

UNTIMED = Accepted(
    problem="layernorm", submission="emulated", source_sha256=SHA256, device="emulator", seed=5,
    cases=[passed("small", "4×8", counts=[COUNTS])], not_timed=NotTimed.EMULATED,
)  # fmt: skip

SWINGING = Accepted(
    problem="layernorm", submission="swinging", source_sha256=SHA256, device="cpu", seed=5,
    cases=[
        passed("headline", "16×64×32×32", timing=timing(
            455.0, 114.0, {"eager": baseline(438.0, 0.96, 0.3, processor=used(830.0, 9.0, 1.04, 0.02)),
                           "compile": baseline(540.0, 1.19, 0.1)},
            processor=used(798.0, 8.0), interval_us=(400.0, 600.0),
        )),
        passed("8192x1024", "512×1024", timing=timing(230.0, 160.0, {"eager": baseline(250.0, 1.09)})),
    ],
    notes=[
        notes.TooNoisyToRank(case="headline", reaches={"submission": 0.32, "eager": 0.111}),
        notes.TooNoisyToRank(reaches={"eager": 0.25}),
    ],
    geomean_speedup=1.02, geomean_interval=(0.9, 1.28), geomean_speedup_over_best=1.0,
    geomean_over_best_interval=(0.9, 1.2),
)  # fmt: skip

NOISY = Errored(
    problem="rmsnorm", submission="noisy", source_sha256=SHA256, device="cpu", seed=5,
    cases=[passed("small", "4×8")], reason=Reason.TOO_NOISY, message="'small' could not be timed.",
)  # fmt: skip

RESULTS = Results(
    schema=SCHEMA,
    environment={
        "gpu": "NVIDIA H200", "torch": "2.11.0",
        "unwatched": "The GPU's clocks, heat and other processes were not seen. NVML says: Not Found.",
        "isolation": {"cuda": {"level": "namespaces", "contains": ["no network", "limits"], "lacks": None}},
    },
    evaluations=[FAST, WRONG, RACING, UNTIMED, SWINGING, NOISY],
)  # fmt: skip

SOURCE = b"""import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = x
        return y
"""

# What a gate says of RESULTS, for reports that show it.
GATE = Outcome(
    candidates=(
        Candidate("submissions/layernorm/fast.py", "layernorm", True, ran=(Ran(FAST),), compiled=(
            Compiled("sm_120", (KernelResources("normalise<float>", 48, 2048, 0, 8),)),
        )),
        Candidate("submissions/layernorm/wrong.py", "layernorm", True, ran=(Ran(WRONG, checked=True),)),
        Candidate("submissions/rmsnorm/noisy.py", "rmsnorm", False, ran=(Ran(NOISY),)),
    ),
    broken=(
        Broken("submissions/layernorm/wrong.py", "verdict", "rejected on emulator: wrong_output: 2 of 4 cases failed",
               "accepted", Exit.REJECTED, "large"),
        Broken("submissions/layernorm/fast.py", "max-spills", "normalise<float> spills 8 bytes on sm_120", "0 bytes",
               Exit.REJECTED),
        Broken("submissions/layernorm/fast.py", "no-slower-than-best",
               "'headline' is 5.1% slower [4.0%, 6.0%] than fast, source 0123456789, stored 2026-01-01",
               "1.2%, the case's own noise", Exit.TOO_SLOW, "headline"),
        Broken("eval.py gate", "devices", "no verdict", "cuda", Exit.HARNESS),
    ),
    remarks=(Remark("submissions/rmsnorm/noisy.py", "min-speedup left out: it was not timed."),),
)  # fmt: skip

# The reports of a run in CI: where files are, what they hold, what a gate says.
IN_CI = View(
    texts={SHA256: SOURCE},
    files={(e.submission, SHA256): f"submissions/{e.problem}/{e.submission}.py" for e in RESULTS.evaluations},
    gate=GATE,
)
