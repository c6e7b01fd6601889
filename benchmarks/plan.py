"""What is measured, in order of importance: each step's command, what it leaves, and how long it may take.

Seconds are estimates for one H200 and 16 cores with nothing built, from measured parts: a build 30 to 80 s, a start of
eval.py 4 s, a timed part 1.2 s for each baseline, the corpus of hostile files 250 s one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from common import ROOT

from harness.paths import PROBLEMS, build_cache
from harness.problem import Problem, load_problem
from harness.submission import read_submission, shipped_for

# In a step's words: the folder that results go to.
FOLDER = "{folder}"

PEERS = "eager,compile,reduce-overhead,liger,cudnn,quack"

# For the problems beside layernorm, one fewer: the time of a GPU is short.
FEWER_PEERS = "eager,compile,reduce-overhead,liger,quack"

# For training steps, those that may have a backward. Whoever has none is left out with a note.
TRAINING_PEERS = "eager,compile,reduce-overhead,liger,cudnn,quack,apex,unfused"

# The step that others wait for.
BUILDS = "builds"

LADDER = "submissions/layernorm"
FIRST_RUNG = f"{LADDER}/rung1_block_per_row.py"
FOURTH_RUNG = f"{LADDER}/rung4_vectorised_registers.py"
HEADLINE = f"{LADDER}/speed_of_light.py"
ON_CPU = f"{LADDER}/cpu_vectorised.py"
BACKWARD = "submissions/layernorm_train/speed_of_light.py"

# The fast submission of each problem, for what is too slow for all of them.
FAST = (
    HEADLINE,
    BACKWARD,
    "submissions/layernorm_forward/speed_of_light.py",
    "submissions/layernorm_options/read_once.py",
    "submissions/layernorm_dropout/mask_drawn_again.py",
    "submissions/add_layernorm/read_once.py",
    "submissions/rmsnorm/read_once.py",
    "submissions/rmsnorm_train/read_once.py",
    "submissions/bias_gelu/vectorised.py",
    "submissions/layernorm_train_dtypes/row_on_chip.py",
    "submissions/bias_gelu_train/columns_in_registers.py",
)

# The least that shows a script at work where there is no GPU.
ONE_SMALL_CASE = ("--device", "emulator", "--no-timing", "-k", "random 1")
ONE_SMALL_SHAPE = ("--device", "emulator", "--no-timing", "-k", "2x33")
ONE_TIMED_CASE = ("--device", "cpu", "-k", "2048x16384")
PUBLIC_FORMS = "tests/fixtures/public_forms"
ONE_FORM = f"{PUBLIC_FORMS}/plus_one/parentheses.py"
FEW_VERDICTS = (FIRST_RUNG, "tests/hostile/fragile/no_barrier.py", "-k", "l")


@dataclass(frozen=True)
class Step:
    """One command. `words` follow `python`; `files` lie in the folder afterwards."""

    name: str
    words: tuple[str, ...]
    files: tuple[str, ...]
    seconds: float
    """How long it takes, about."""
    limit_s: float
    dry_run: tuple[str, ...]
    """The same program where there is no GPU, with the least to do."""
    reads: tuple[str, ...]
    """Files and folders whose change makes the results old."""
    refusal: str = ""
    """What the dry_run must be refused with, where nothing stands in for a GPU."""
    printed: str = ""
    """The file of results that is what the command prints."""

    def digest(self) -> str:
        """SHA-256, 16 digits, of the command and of what it reads."""
        read = hashlib.sha256("\0".join(self.words).encode())
        for path in sorted(_files(self.reads)):
            read.update(path.encode() + (ROOT / path).read_bytes())
        return read.hexdigest()[:16]


def _files(paths: Iterable[str]) -> list[str]:
    found = [f for path in paths for f in ((ROOT / path).rglob("*.*") if (ROOT / path).is_dir() else [ROOT / path])]
    return [str(file.relative_to(ROOT)) for file in found if file.suffix in (".py", ".cu")]


# A list's steps run side by side; what is timed is alone.
Plan = list[list[Step]]


def gpu() -> Plan:
    """What needs a GPU."""
    problems = {problem.name: problem for problem in _problems()}
    first = problems.pop("layernorm")
    return [
        [_verdicts(), _sanitized_corpus()],  # what is shipped is built here, side by side
        [_forms()],
        [_evaluation(first, PEERS)],
        [_report()],
        [_gate_proof()],  # the longest first, so that lanes end together
        [_replay()],
        [_clock_accuracy()],
        [_same_twice(HEADLINE, 330)],
        [_warm_evaluation()],
        [_api_costs()],
        [_hostile(), _sanitized()],
        *([_evaluation(problem, _peers_of(problem))] for problem in problems.values()),
        [_shapes()],
        [_repeatability()],
        [_full_machine()],
        [_full_machine_usual()],
        [_build_speed()],
        [_counters()],
        [_profile(HEADLINE)],
        [_profile(BACKWARD)],
        [_same_twice(BACKWARD, 240)],
        [_same_twice(f"{LADDER}/rung5_split_rows.py", 300)],
    ]


def cpu() -> Plan:
    """What is compared with a GPU's results, and the CPU's own targets. Seconds are of two cores."""
    agreement, emulated = "benchmarks/agreement", ("--device", "emulator")
    verdicts = (f"{agreement}/verdicts.py", *emulated)
    counters = (f"{agreement}/counters.py", *emulated)
    warm = ("benchmarks/warm_evaluation.py", f"{LADDER}/rung3_warp_shuffle.py", *emulated)
    twice = ("benchmarks/same_twice.py", ON_CPU)
    forms = (f"{agreement}/forms.py", *emulated, "--jobs", "2")
    on_emulator = (f"{agreement}/corpus_on_emulator.py",)
    everything = ("submissions", "problems", "tests/hostile")
    api = ("benchmarks/api_costs.py", f"{LADDER}/rung3_warp_shuffle.py", *emulated)
    cluster = ("benchmarks/cluster_simulation.py",)
    cold = ("benchmarks/cold_gate.py", "--warm-cache")
    full = ("benchmarks/full_machine.py", *emulated, "--count", "50")
    hostile = ("-m", "tests.hostile", "--device", "cpu", "--device", "emulator", "--jobs", "2", "--timed-jobs", "1")
    return [
        [_on_cpu("hostile", 270, hostile, ("-k", "form/control"), ("tests/hostile",))],
        [_on_cpu("emulator_corpus", 140, on_emulator, (), ("tests/emulator",))],
        [_on_cpu("verdicts_emulator", 1200, (*verdicts, "--jobs", "2", "--limit-s", "3000"), FEW_VERDICTS, everything)],
        [_on_cpu("forms_emulator", 60, forms, (ONE_FORM,), (PUBLIC_FORMS,))],
        [_on_cpu("counters_emulator", 120, counters, (FIRST_RUNG,), (LADDER,))],
        [_on_cpu("warm_evaluation", 60, warm, ("-k", "random 1", "--runs", "1"), (LADDER, "problems/layernorm.py"))],
        [_on_cpu("api_costs", 200, api, ("--case", "random 1", "--runs", "1"), (LADDER, "problems/layernorm.py"))],
        [_on_cpu("pool_of_faults", 600, ("benchmarks/pool_of_faults.py",), ("--count", "4"), ("tests/hostile",))],
        [_on_cpu("full_machine", 330, full, ("--count", "2", "--alone", "1"), (FOURTH_RUNG,))],
        [_on_cpu("cluster_simulation", 240, cluster, ("--count", "4", "--actors", "2"), ("tests/hostile",))],
        [_on_cpu("build_speed", 80, ("benchmarks/build_speed.py", ON_CPU), ("--runs", "1"), (ON_CPU,))],
        [_on_cpu("cold_gate", 130, cold, (), (f"{LADDER}/rung3_warp_shuffle.py",))],
        [_on_cpu("same_twice_cpu_vectorised", 60, twice, ONE_TIMED_CASE, (ON_CPU, "problems/layernorm.py"))],
    ]


def _on_cpu(name: str, seconds: float, words: tuple[str, ...], least: tuple[str, ...], reads: tuple[str, ...]) -> Step:
    """A step that runs here and is tried by itself, with `least` to do."""
    words = (*words, "--json", f"{FOLDER}/{name}.json")
    return Step(
        name=name,
        words=words,
        files=(f"{name}.json",),
        seconds=seconds,
        limit_s=5 * seconds,
        dry_run=(*words, *least),
        reads=reads,
    )


def builds(due: Iterable[Step]) -> Plan:
    """What builds side by side the submissions that some steps read and this machine has no build of."""
    read = {file for step in due for file in _files(step.reads) if file.startswith("submissions/")}
    files = sorted(file for file in read if _is_unbuilt(ROOT / file))
    program, out = "benchmarks/agreement/verdicts.py", ("--json", f"{FOLDER}/logs/builds.json")
    words = (program, "--device", "cuda", "-k", "random 1", "--jobs", "16", *files, *out)
    seconds = 40 + 6.0 * len(files)
    step = Step(BUILDS, words, ("logs/builds.json",), seconds, 3 * seconds, dry_run=words, reads=tuple(files))
    return [[step]] if files else []


def _is_unbuilt(file: Path) -> bool:
    source = file.read_bytes()
    return b"cuda_sources" in source and not build_cache(hashlib.sha256(source).hexdigest()).exists()


# ---------------------------------------------------------------------- evaluations


def _problems() -> list[Problem]:
    """Those that have submissions; training steps first, since they have the most targets."""
    paths = [path for path in sorted(PROBLEMS.glob("*.py")) if shipped_for(path.stem)]
    found = [load_problem(path, random_seed=0) for path in paths]
    return sorted(found, key=lambda problem: (problem.gradients is None, problem.name != "layernorm_train"))


def _peers_of(problem: Problem) -> str:
    return FEWER_PEERS if problem.gradients is None else TRAINING_PEERS


def _evaluation(problem: Problem, against: str) -> Step:
    """All submissions of a problem."""
    files = shipped_for(problem.name)
    folders = sorted({str(file.parent.relative_to(ROOT)) for file in files})
    for_more = any(read_submission(file).also_for for file in files)
    alone = ("--problem", problem.name) if for_more else ()
    parts = sum(case.timed for case in problem.cases) * (2 if problem.gradients is not None else 1)
    on_cpu = 10 * sum("cuda_sources" not in file.read_text() for file in files)
    out = ("--json", f"{FOLDER}/{problem.name}.json")
    of_a_part = 1.2 * (1 + against.count(","))  # called and captured; of a training step half is called alone
    seconds = 20 + len(files) * (3 + 0.05 * len(problem.cases) + of_a_part * parts) + on_cpu
    return Step(
        name=problem.name,
        words=("eval.py", *folders, *alone, "--against", against, *out),
        files=(f"{problem.name}.json",),
        seconds=seconds,
        limit_s=2 * seconds,
        dry_run=(
            "eval.py",
            str(files[-1].relative_to(ROOT)),
            *alone,
            "--against",
            against,
            *ONE_SMALL_CASE,
            *out,
        ),
        reads=(*folders, f"problems/{problem.name}.py"),
    )


def _shapes() -> Step:
    """The fast LayerNorm on many shapes."""
    out = ("--json", f"{FOLDER}/layernorm_shapes.json")
    return Step(
        name="layernorm_shapes",
        words=("eval.py", HEADLINE, "--problem", "layernorm_shapes", "--against", PEERS, *out),
        files=("layernorm_shapes.json",),
        seconds=250,
        limit_s=500,
        dry_run=("eval.py", HEADLINE, "--problem", "layernorm_shapes", *ONE_SMALL_SHAPE, *out),
        reads=(HEADLINE, "problems/layernorm_shapes.py"),
    )


def _report() -> Step:
    """The report that documents show parts of, from the evaluation of the fast LayerNorm."""
    printed = "report_speed_of_light.txt"
    return Step(
        name="report_speed_of_light",
        words=("benchmarks/report.py", f"{FOLDER}/layernorm.json", "speed_of_light"),
        files=(printed,),
        printed=printed,
        seconds=3,
        limit_s=30,
        dry_run=("benchmarks/report.py", "results/h200/layernorm.json", "speed_of_light"),
        reads=(LADDER, "problems/layernorm.py"),
    )


def _short(submission: str) -> str:
    """A submission in a file's name: the ladder's by their own names, others with their problem's."""
    return submission.removeprefix(f"{LADDER}/").removeprefix("submissions/").removesuffix(".py").replace("/", "_")


def _profile(submission: str) -> Step:
    name = f"profile_{_short(submission)}"
    return Step(
        name=name,
        words=("eval.py", "profile", submission, "--color", "never", "--out", f"{FOLDER}/{name}.ncu-rep"),
        files=(f"{name}.txt",),
        printed=f"{name}.txt",
        seconds=35,
        limit_s=120,
        dry_run=("eval.py", "profile", ON_CPU, "--color", "never", "-k", "random 1"),
        reads=(submission,),
    )


# ---------------------------------------------------------------------- the clock


def _clock_accuracy() -> Step:
    """As published results are timed, and against the usual baselines: more of them leave no memory for
    long rounds."""
    out = ("--json", f"{FOLDER}/clock_accuracy.json")
    return Step(
        name="clock_accuracy",
        words=("benchmarks/clock_accuracy.py", "--thorough", *out),
        files=("clock_accuracy.json",),
        seconds=175,
        limit_s=440,
        dry_run=("benchmarks/clock_accuracy.py", ON_CPU, *ONE_TIMED_CASE, *out),
        reads=(LADDER, "problems/layernorm.py"),
    )


def _same_twice(submission: str, seconds: float) -> Step:
    name = f"same_twice_{_short(submission)}"
    out = ("--json", f"{FOLDER}/{name}.json")
    return Step(
        name=name,
        words=("benchmarks/same_twice.py", submission, *out),
        files=(f"{name}.json",),
        seconds=seconds,
        limit_s=4 * seconds,
        dry_run=("benchmarks/same_twice.py", ON_CPU, *ONE_TIMED_CASE, *out),
        reads=(submission,),
    )


def _warm_evaluation() -> Step:
    out = ("--json", f"{FOLDER}/warm_evaluation.json")
    return Step(
        name="warm_evaluation",
        words=("benchmarks/warm_evaluation.py", HEADLINE, *out),
        files=("warm_evaluation.json",),
        seconds=65,
        limit_s=260,
        dry_run=("benchmarks/warm_evaluation.py", HEADLINE, *ONE_SMALL_CASE, "--runs", "1", *out),
        reads=(HEADLINE, "problems/layernorm.py"),
    )


def _api_costs() -> Step:
    out = ("--json", f"{FOLDER}/api_costs.json")
    return Step(
        name="api_costs",
        words=("benchmarks/api_costs.py", HEADLINE, *out),
        files=("api_costs.json",),
        seconds=240,
        limit_s=900,
        dry_run=(
            "benchmarks/api_costs.py",
            HEADLINE,
            "--device",
            "emulator",
            "--case",
            "random 1",
            "--runs",
            "1",
            *out,
        ),
        reads=(HEADLINE, "problems/layernorm.py"),
    )


def _repeatability() -> Step:
    out = ("--json", f"{FOLDER}/repeatability.json")
    return Step(
        name="repeatability",
        words=("benchmarks/repeatability.py", HEADLINE, "--runs", "20", "-k", "8192x4096", "--thorough", *out),
        files=("repeatability.json",),
        seconds=195,
        limit_s=300,
        dry_run=("benchmarks/repeatability.py", ON_CPU, *ONE_TIMED_CASE, "--runs", "2", *out),
        reads=(HEADLINE, "problems/layernorm.py"),
    )


def _replay() -> Step:
    """The same kernel and one that is 5% slower, on the board and by `compare`, on a case of some 200 µs."""
    out = ("--json", f"{FOLDER}/replay.json")
    return Step(
        name="replay",
        words=("benchmarks/replay.py", HEADLINE, "-k", "headline", *out),
        files=("replay.json",),
        seconds=460,
        limit_s=580,
        dry_run=("benchmarks/replay.py", ON_CPU, *ONE_TIMED_CASE, "--runs", "1", "--quick", *out),
        reads=(HEADLINE, "problems/layernorm.py"),
    )


def _gate_proof() -> Step:
    """Pull requests through the gate: a right one, a wrong one, one that is 5% slower, and 20 that change nothing."""
    out = ("--json", f"{FOLDER}/gate_proof.json")
    return Step(
        name="gate_proof",
        words=("benchmarks/gate_proof.py", FOURTH_RUNG, *out),
        files=("gate_proof.json",),
        seconds=800,
        limit_s=1200,
        dry_run=("benchmarks/gate_proof.py", f"{LADDER}/rung3_warp_shuffle.py", "--unchanged", "1", *out),
        reads=(FOURTH_RUNG,),
    )


def _build_speed() -> Step:
    """Cold builds beside torch's own."""
    program, out = "benchmarks/build_speed.py", ("--json", f"{FOLDER}/build_speed.json")
    return Step(
        name="build_speed",
        words=(program, *out),
        files=("build_speed.json",),
        seconds=200,
        limit_s=600,
        dry_run=(program, ON_CPU, "--runs", "1", *out),
        reads=(f"{LADDER}/rung3_warp_shuffle.py",),
    )


def _full_machine() -> Step:
    """Many submissions that nobody has built, in one run, timed as a search would."""
    program, out = "benchmarks/full_machine.py", ("--quick", "--json", f"{FOLDER}/full_machine.json")
    return Step(
        name="full_machine",
        words=(program, "--count", "64", *out),
        files=("full_machine.json",),
        seconds=650,
        limit_s=1300,
        dry_run=(program, "--device", "emulator", "--count", "2", "--alone", "1", *out),
        reads=(FOURTH_RUNG,),
    )


def _full_machine_usual() -> Step:
    """The same at the usual effort, at which few are enough: on all GPUs, beside one."""
    program = "benchmarks/full_machine.py"
    out = ("--again", "0", "--alone", "0", "--json", f"{FOLDER}/full_machine_usual.json")
    return Step(
        name="full_machine_usual",
        words=(program, "--count", "24", *out),
        files=("full_machine_usual.json",),
        seconds=850,
        limit_s=1300,
        dry_run=(program, "--device", "emulator", "--count", "2", *out),
        reads=(FOURTH_RUNG,),
    )


# ---------------------------------------------------------------------- verdicts


def _hostile() -> Step:
    out = ("--json", f"{FOLDER}/hostile.json")
    return Step(
        name="hostile",
        words=(
            "-m",
            "tests.hostile",
            "--device",
            "cuda",
            "--device",
            "cpu",
            "--jobs",
            "8",
            "--timed-jobs",
            "3",
            "--continue",
            *out,
        ),
        files=("hostile.json",),
        seconds=600,
        limit_s=1000,
        dry_run=("-m", "tests.hostile", "--device", "cpu", "-k", "form/control", "--jobs", "2", *out),
        reads=("tests/hostile",),
    )


def _verdicts() -> Step:
    program, out = "benchmarks/agreement/verdicts.py", ("--json", f"{FOLDER}/verdicts.json")
    return Step(
        name="verdicts",
        words=(program, "--device", "cuda", "--jobs", "8", "--limit-s", "400", *out),
        files=("verdicts.json",),
        seconds=270,
        limit_s=420,
        dry_run=(program, "--device", "emulator", *FEW_VERDICTS, *out),
        reads=("submissions", "problems", "tests/hostile"),
    )


def _forms() -> Step:
    program, out = "benchmarks/agreement/forms.py", ("--json", f"{FOLDER}/forms.json")
    return Step(
        name="forms",
        words=(program, "--device", "cuda", "--jobs", "8", "--limit-s", "280", *out),
        files=("forms.json",),
        seconds=130,
        limit_s=300,
        dry_run=(program, "--device", "emulator", ONE_FORM, *out),
        reads=(PUBLIC_FORMS,),
    )


def _sanitized_corpus() -> Step:
    program, out = "benchmarks/agreement/corpus.py", ("--json", f"{FOLDER}/emulator_agreement.json")
    return Step(
        name="emulator_agreement",
        words=(program, "--jobs", "8", "--limit-s", "400", "--continue", *out),
        files=("emulator_agreement.json",),
        seconds=270,
        limit_s=420,
        dry_run=(program, *out),
        refusal="This needs a GPU",
        reads=("tests/emulator/faults",),
    )


def _counters() -> Step:
    program, out = "benchmarks/agreement/counters.py", ("--json", f"{FOLDER}/counters.json")
    return Step(
        name="counters",
        words=(program, "--device", "cuda", "--limit-s", "150", *out),
        files=("counters.json",),
        seconds=85,
        limit_s=180,
        dry_run=(program, "--device", "emulator", FIRST_RUNG, *out),
        reads=(LADDER,),
    )


def _sanitized() -> Step:
    program, out = "benchmarks/agreement/verdicts.py", ("--json", f"{FOLDER}/sanitized.json")
    return Step(
        name="sanitized",
        words=(program, "--device", "cuda", "--sanitize", *FAST, "--jobs", "9", "--limit-s", "200", *out),
        files=("sanitized.json",),
        seconds=90,
        limit_s=220,
        dry_run=(program, "--device", "cuda", "--sanitize", HEADLINE, *out),
        refusal="--sanitize needs compute-sanitizer",
        reads=(*FAST, "problems"),
    )
