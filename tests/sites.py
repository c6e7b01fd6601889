"""A database with one of everything that a site can show, and sites made of it."""

import hashlib
import random

import msgspec

from harness.reasons import Reason
from harness.report.formats import json
from harness.report.site.build import build_site
from harness.store import open_store
from harness.verdict import Accepted, Build, Rejected, Worst
from tests.helpers import ROOT
from tests.sample_results import FAST, RESULTS, SWINGING, UNTIMED, WRONG, failed, passed

ENVIRONMENT = {
    **RESULTS.environment, "date": "2026-11-25T00:00:00+00:00", "judge": "0123456789ab", "gpu": "Another GPU",
    "driver": "580", "cpus": 2, "processor": "A processor",
}  # fmt: skip
EARLIER = {**ENVIRONMENT, "date": "2026-11-20T00:00:00+00:00", "judge": "an older one"}
HOSTILE_NAMES = (
    "<script>document.title='stolen'</script>", '"onload="document.title=1', "../../x", "x' onerror='alert(1)",
    "</title><img src=x onerror=alert(1)>", "fast\u202egnorw", "{{ 7 * 7 }}", "a\x00b", "\\u003cb>",
    "]]>--><svg/onload=alert(1)>",
)  # fmt: skip
HOSTILE_SOURCE = (
    '"""</script><img src=x onerror="document.title=\'stolen\'">"""\nCUDA = r"""\n'
    '__global__ void f(float* x) {\n    x[0] = 1.0f;  // <b onclick=alert(1)>\n}\n\n\n"""\n\'<!--\'\n'
)
WRONG_SOURCE = 'CUDA = r"""\n' + "".join(f"    x[{n}] = {n};\n" for n in range(60)) + '"""\n'


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def of_source(evaluation, text, **changed):
    return msgspec.structs.replace(evaluation, source_sha256=sha256(text), **changed)


def hostile_evaluations():
    """Accepted and rejected ones whose every text tries to be more than a text."""
    for number, name in enumerate(HOSTILE_NAMES):
        cases = [passed(name, name, timing=FAST.cases[0].timing), failed(f"{name} 2", name, Reason.WRONG_OUTPUT, name)]
        cases[1] = msgspec.structs.replace(
            cases[1], repeat=name, worst=Worst(output=0, index=[1], got=0.5, expected=1.0)
        )
        common = dict(problem=name, submission=name, device="cuda", source_sha256=sha256(HOSTILE_SOURCE), cases=cases)
        yield Rejected(**common, seed=number, reason=Reason.WRONG_OUTPUT, message=f"{name}\n{name}.py:4: {name}")
        yield Accepted(
            **{**common, "cases": cases[:1], "submission": f"{name} again", "source_sha256": name}, seed=number,
            notes=FAST.notes, build=FAST.build, geomean_speedup=2.0, geomean_interval=(1.9, 2.1),
        )  # fmt: skip


def again(evaluation, drawn):
    """Another evaluation of the same source, with other data and nearly the same speedup."""
    factor = drawn.uniform(0.995, 1.005)
    speedup, (low, high) = evaluation.geomean_speedup, evaluation.geomean_interval
    return msgspec.structs.replace(
        evaluation, seed=evaluation.seed + 1, geomean_speedup=speedup * factor,
        geomean_interval=(low * factor, high * factor),
    )  # fmt: skip


# What an H200 gave for layernorm, kept for tests: what they say of it stays true when it is measured again.
KEPT = ROOT / "tests" / "fixtures" / "results" / "layernorm.json"


def measured_files():
    """Files of results that a GPU gave."""
    files = {path.name: path for path in (ROOT / "results" / "h200").glob("*.json")}
    return [path for _, path in sorted((files | {KEPT.name: KEPT}).items())]


def measured(name="layernorm"):
    """Results that a GPU gave."""
    (path,) = [path for path in measured_files() if path.stem == name]
    return json.load(path)


def fill(db):
    """Measured results, those of layernorm twice, so that they are ranked; and one of everything."""
    drawn = random.Random(7)
    shipped = {sha256(text): text.encode() for text in map(read, (ROOT / "submissions").rglob("*.py"))}
    reference = read(ROOT / "problems" / "layernorm.py")
    with open_store(db) as store:
        for path in measured_files():
            if b'"schema"' in path.read_bytes()[:64]:
                results = json.load(path)
                store.add(results.evaluations, results.environment, shipped)
        results = measured()
        on_gpu = [e for e in results.evaluations if e.device == "cuda"]
        store.add([again(e, drawn) for e in on_gpu], results.environment, {})
        mine = [
            of_source(FAST, "fast", problem_sha256=sha256(reference)), of_source(FAST, "fast 2", seed=6),
            of_source(WRONG, WRONG_SOURCE), of_source(UNTIMED, "untimed"), of_source(SWINGING, "swinging"),
        ]  # fmt: skip
        texts = ["fast", WRONG_SOURCE, HOSTILE_SOURCE, reference]
        store.add([*mine, *hostile_evaluations()], ENVIRONMENT, {sha256(text): text.encode() for text in texts})
        store.add([of_source(FAST, "fast before", seed=8)], EARLIER, {})
        taken = next(e for e in on_gpu if e.submission == "rung1_block_per_row")
        store.withdraw(taken.source_sha256, "layernorm", "It was <b>a copy</b>.", "2026-11-25")


def read(path):
    return path.read_text()


def site_of_everything(folder):
    """Its database and folder."""
    db, out = folder / "results.db", folder / "site"
    fill(db)
    build_site(db, out)
    return db, out


def huge():
    """An evaluation that no page has room for."""
    name = "n" * 100_000
    timing = msgspec.structs.replace(FAST.cases[0].timing, samples_us=[float(n % 97 + 1) for n in range(5000)])
    cases = [passed(f"case {n} {name[:300]}", "8×8" * 100, timing=timing) for n in range(300)]
    kernels = list(FAST.build.kernels) * 200
    return Accepted(
        problem="huge", submission=name, source_sha256=sha256(huge_source()), device="cuda", seed=1, cases=cases,
        notes=list(FAST.notes) * 100, build=Build(seconds=1.0, cached=False, kernels=kernels), geomean_speedup=2.0,
        geomean_interval=(1.9, 2.1),
    )  # fmt: skip


def huge_source():
    return "".join(f"x{n} = '<&>' + {n}  # {'<' * 50}\n" for n in range(20_000))
