"""Bundles: what they hold, what is refused of them, and whether their claims hold."""

import hashlib
import io
import json
import math
import shutil
import struct
import warnings
import zipfile

import msgspec
import pytest

from harness.again import bundle as bundles
from harness.again.bundle import Bundle, packed, read_bundle
from harness.again.claim import Finding, of_all, of_verdict
from harness.again.verifying import selection
from harness.reasons import Reason
from harness.store import open_store
from harness.verdict import Accepted, CasePassed, Errored, Geomeans, Rejected, digest_of_cases
from harness.version import judge_version
from tests.helpers import ROOT, run_eval

HOSTILE = ROOT / "tests" / "hostile"
CONTROL = HOSTILE / "form" / "control.py"
WRONG = HOSTILE / "specification" / "ignores_weight.py"
SHIPPED = ROOT / "problems" / "rmsnorm.py"
SMALL = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
ENVIRONMENT = {"date": "2026-01-01T00:00:00+00:00", "judge": "aaaa", "gpu": "A GPU", "torch": "2.11", "driver": "580"}

# Right on RMSNorm, without a kernel to build.
RIGHT = b"""
import torch, torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        given = nn.RMSNorm(*args, **kwargs)
        self.weight, self.eps = given.weight, given.eps
        self.rows = tuple(range(-len(given.normalized_shape), 0))

    def forward(self, x):
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return x * torch.rsqrt((x * x).mean(self.rows, keepdim=True) + eps) * self.weight
"""


def sha256(text):
    return hashlib.sha256(text).hexdigest()


def run(*words, **options):
    """No claim that is verified here has times."""
    return run_eval(*words, json_results=False, untimed=True, **options)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A database with an accepted and a rejected submission on a small problem, and a folder for what is made of it."""
    folder = tmp_path_factory.mktemp("judged")
    db = folder / "results.db"
    for file, code in ((CONTROL, 0), (WRONG, 1)):
        assert run(file, "--problem", SMALL, "--device", "cpu", "-k", "eps", "--db", db).code == code
    for name in (CONTROL.stem, WRONG.stem):
        assert run("bundle", name, "--db", db, "-o", folder / f"{name}.zip").code == 0
    return folder


# ---------------------------------------------------------------------- what a bundle holds


def test_a_bundle_holds_what_was_judged_and_what_was_found(judged):
    bundle = read_bundle(judged / "control.zip")
    with open_store(judged / "results.db") as store:
        stored = next(one for one in store.stored() if one.evaluation.submission == "control")
    assert bundle == Bundle(stored.evaluation, stored.environment, CONTROL.read_bytes(), SMALL.read_bytes())
    with zipfile.ZipFile(judged / "control.zip") as archive:  # readable without this program
        assert archive.read("source.py") == CONTROL.read_bytes()
        assert json.loads(archive.read("result.json"))["environment"]["judge"] == judge_version()


def test_the_same_result_is_the_same_file_and_its_digest_is_said(judged, tmp_path):
    said = run("bundle", "control", "--db", judged / "results.db", "-o", tmp_path / "again.zip").stdout
    assert (tmp_path / "again.zip").read_bytes() == (judged / "control.zip").read_bytes()
    assert f"Bundle {read_bundle(judged / 'control.zip').digest}" in said


def test_a_result_of_json_is_bundled_with_the_texts_that_are_known(judged, tmp_path):
    results, out = tmp_path / "results.json", tmp_path / "out.zip"
    db = ("--db", judged / "results.db")
    run(CONTROL, "--problem", SMALL, "--device", "cpu", "-k", "eps", "--no-store", "--json", results)
    assert run("bundle", f"{results}:control", *db, "-o", out).code == 0
    assert read_bundle(out).source == CONTROL.read_bytes()
    unknown = run("bundle", f"{results}:control", "--db", tmp_path / "none.db", "-o", out)
    assert (unknown.code, "The text of its source and problem is not known" in unknown.stderr) == (2, True)
    nobody = run("bundle", f"{results}:nobody", *db)
    assert (nobody.code, "has no evaluation of 'nobody'" in nobody.stderr) == (2, True)


def test_a_name_of_several_sources_is_refused_with_what_tells_them_apart(tmp_path):
    db = tmp_path / "results.db"
    found = [accepted(source_sha256=letter * 64) for letter in "ab"]
    with open_store(db) as store:
        store.add(found, ENVIRONMENT, {})
    several = run("bundle", "mine", "--db", db)
    assert several.code == 2
    assert f"'mine' is several in {db}: aaaaaaaaaa on rmsnorm, cuda; bbbbbbbbbb on rmsnorm, cuda." in (several.stderr)


@pytest.mark.parametrize(("words", "said"), [
    (("bundle", "x", "--db", "/nowhere/a.db"), "there is no database /nowhere/a.db"),
    (("bundle", "/nowhere/a.json"), "The results /nowhere/a.json cannot be read"),
    (("bundle", "/nowhere/a.json:mine"), "The results /nowhere/a.json cannot be read: No such file or directory."),
    (("verify", "/nowhere/a.zip"), "it cannot be read: No such file or directory"),
    (("verify", "/"), "it is no file"),
])  # fmt: skip
def test_what_is_not_there_is_said(words, said):
    found = run(*words)
    assert (found.code, said in found.stderr, "Traceback" in found.stderr) == (2, True, False), found.stderr


# ---------------------------------------------------------------------- hostile bundles


def members(**changed):
    """A bundle's members with their right digest, some of them changed; None takes one out."""
    source, problem = changed.pop("source", RIGHT), SHIPPED.read_bytes()
    found = accepted(source_sha256=sha256(RIGHT), problem_sha256=sha256(problem))
    parts = bundles._parts(Bundle(found, ENVIRONMENT, source, problem)) | changed.pop("parts", {})
    manifest = {"schema": bundles.BUNDLE_SCHEMA, "digest": bundles._digest(parts)} | changed
    return {"bundle.json": json.dumps(manifest).encode(), **parts}


def zipped(contents, names=(), method=zipfile.ZIP_DEFLATED):
    page = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(page, "w", method) as archive:
        warnings.simplefilter("ignore")  # of a name that is there twice
        for name, content in [*contents.items(), *((name, b"x") for name in names)]:
            archive.writestr(name, content)
    return page.getvalue()


def result(**changed):
    """A result.json with fields of its evaluation changed."""
    found = json.loads(members()["result.json"])
    found["evaluations"][0] |= changed
    return {"result.json": json.dumps(found).encode()}


def lying_about_its_size():
    """The source unpacks to 32 MiB, and both headers say that it has 10 bytes."""
    data = zipped(members(parts={"source.py": bytes(32 << 20)}))
    return data.replace(struct.pack("<I", 32 << 20), struct.pack("<I", 10))


def encrypted():
    data = bytearray(zipped(members()))
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.find(signature) + place] |= 1
    return bytes(data)


BOMB = {"source.py": bytes(64 << 20)}
HOSTILE_BUNDLES = {
    "no zip": (lambda: b"kernels, mostly\n" * 100, "it is no zip file, or a damaged one"),
    "empty": (lambda: b"", "it is no zip file, or a damaged one"),
    "cut off": (lambda: zipped(members())[:-200], "it is no zip file, or a damaged one"),
    "huge": (lambda: bytes(9 << 20), "it has more than 8 MiB"),
    "a bomb": (lambda: zipped(members(parts=BOMB)), "its source.py has more than 16 MiB"),
    "a bomb that lies": (lying_about_its_size, "it is no zip file, or a damaged one"),
    "encrypted": (encrypted, "it is no zip file, or a damaged one"),
    "another compression": (lambda: zipped(members(), method=zipfile.ZIP_BZIP2), "compressed in another way"),
    "a path": (lambda: zipped(members(), ["../../../tmp/x.py"]), "it holds '../../../tmp/x.py', which no bundle has"),
    "a terminal's words": (lambda: zipped(members(), ["\33[2J"]), "it holds '?[2J', which no bundle has"),
    "twice": (lambda: zipped(members(), ["source.py"]), "it holds source.py 2 times"),
    "a hundred thousand": (lambda: zipped(members(), map(str, range(70_000))), "it holds '0', which no bundle has"),
    "one missing": (lambda: zipped({"bundle.json": b"{}"}), "it holds source.py 0 times"),
    "another digest": (lambda: zipped(members(digest="0" * 64)), "it was damaged or changed"),
    "another schema": (lambda: zipped(members(schema="kernelgate.bundle/99")), "its schema is 'kernelgate.bundle/99'"),
    "no manifest": (lambda: zipped(members() | {"bundle.json": b"[1]"}), "its bundle.json cannot be read"),
    "a deep manifest": (lambda: zipped(members() | {"bundle.json": b"[" * 4000}), "its bundle.json cannot be read"),
    "another source": (lambda: zipped(members(source=b"x")), "its source.py is not the text that its result is of"),
    "another problem": (
        lambda: zipped(members(parts={"problem.py": b"x"})), "its problem.py is not the text that its result is of",
    ),
    "no result": (lambda: zipped(members(parts={"result.json": b"{}"})), "this is no file of results"),
    "a deep result": (lambda: zipped(members(parts={"result.json": b"[" * 10**6})), "this is no file of results"),
    "a negative speedup": (lambda: zipped(members(parts=result(geomean_speedup=-1.0))), "which no speedup is"),
    "a speedup outside": (
        lambda: zipped(members(parts=result(geomean_interval=[5.0, 6.0]))), "which does not hold it",
    ),
    "a name that leads away": (lambda: zipped(members(parts=result(submission="../../x"))), "is no file's name"),
    "a problem that leads away": (lambda: zipped(members(parts=result(problem="../../x"))), "is no file's name"),
    "no such device": (lambda: zipped(members(parts=result(device="abacus"))), "of the device 'abacus'"),
    "no such effort": (lambda: zipped(members(parts=result(effort="heroic"))), "has the effort 'heroic'"),
    "no such cases": (lambda: zipped(members(parts=result(chosen_cases="0"))), "is of other cases than rmsnorm has"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_BUNDLES)
def test_a_bundle_that_is_none_is_refused_with_a_sentence(name, tmp_path):
    make, said = HOSTILE_BUNDLES[name]
    path = tmp_path / "bundle.zip"
    path.write_bytes(make())
    found = run("verify", path)
    assert found.code == 2, found.stderr
    assert said in found.stderr and "Traceback" not in found.stderr
    assert "\33" not in found.stderr and len(found.stderr) < 1000


def test_a_bundles_own_problem_is_not_run_unless_it_is_trusted(tmp_path):
    """A problem is a program that the judge itself runs."""
    mark, path = tmp_path / "ran", tmp_path / "bundle.zip"
    problem = f"open({str(mark)!r}, 'w')\nraise SystemExit\n".encode()
    found = accepted(source_sha256=sha256(RIGHT), problem_sha256=sha256(problem))
    path.write_bytes(packed(Bundle(found, ENVIRONMENT, RIGHT, problem)))
    refused = run("verify", path)
    assert (refused.code, mark.exists()) == (2, False)
    assert "The bundle's problem differs from problems/rmsnorm.py. The judge runs a problem's file itself" in (
        refused.stderr
    )


# ---------------------------------------------------------------------- whether a claim holds


def claimed(tmp_path, source, cases=("random 1",), **changed):
    """A bundle that claims that `source` was accepted on RMSNorm."""
    more = dict(device="cpu", chosen_cases=digest_of_cases(cases), source_sha256=sha256(source), seed=7)
    found = accepted(problem_sha256=sha256(SHIPPED.read_bytes()), **more | changed)
    path = tmp_path / "claim.zip"
    path.write_bytes(packed(Bundle(found, ENVIRONMENT, source, SHIPPED.read_bytes())))
    return path


def accepted(speedup=2.0, seed=1, within=0.01, **changed):
    said = dict(
        problem="rmsnorm", problem_sha256="p" * 64, submission="mine", source_sha256="s" * 64, device="cuda",
        cases=[CasePassed(name="a", shape="8×8", scaled=False, error=0.0, tolerance=1.0, error_ratio=0.5)],
        geomean_speedup=speedup, geomean_interval=(speedup * (1 - within), speedup * (1 + within)), seed=seed,
    ) | changed  # fmt: skip
    return Accepted(**said)


def test_a_claim_that_is_right_holds_with_its_seed_and_a_fresh_one(tmp_path):
    found = run("verify", claimed(tmp_path, RIGHT))
    assert found.code == 0, found.stdout + found.stderr
    assert "Claimed: mine on rmsnorm, cpu" in found.stdout and "THE CLAIM HOLDS" in found.stdout
    assert found.stdout.count("ACCEPTED  mine") == 2 and "rmsnorm · mine · cpu · seed 7\n" in found.stdout
    assert "The verdict alone was verified: nothing was timed here." in found.stdout
    assert found.stdout.count("random 1 ") == 2 and "random 2" not in found.stdout
    assert "Of the cases that -k 'random 1' chooses alone." in found.stdout


def test_what_was_accepted_and_is_wrong_is_1_and_repeats(tmp_path):
    path = claimed(tmp_path, RIGHT.replace(b"* self.weight", b""))
    found = run("verify", path)
    assert (found.code, "THE CLAIM DOES NOT HOLD: THE SUBMISSION IS REJECTED" in found.stdout) == (1, True)
    assert "It was accepted, and with seed 7 it is rejected." in found.stdout
    assert f"repeat: python eval.py verify {path}\n" in found.stdout


def test_what_knows_the_bundles_data_fails_on_fresh_ones(tmp_path):
    """Right where its bundle's seed was drawn, which whoever made the bundle can look at."""
    path = claimed(tmp_path, RIGHT)
    shape = run("verify", path).stdout.split("seed 7\n")[1].splitlines()[1].split()[2].split("×")
    wrong = RIGHT.replace(b"    def forward(self, x):\n", b"""    def forward(self, x):
        if x.shape[-1] != %s:
            return torch.zeros_like(x)
""" % shape[-1].encode())  # fmt: skip
    found = run("verify", claimed(tmp_path, wrong), "--seed", 8)
    assert (found.code, found.stdout.count("ACCEPTED  mine"), found.stdout.count("REJECTED  mine")) == (1, 1, 1)
    assert "It was accepted, and with seed 8 it is rejected." in found.stdout
    assert f"repeat: python eval.py verify {path} --seed 8\n" in found.stdout


def test_a_rejection_is_a_claim_too(judged):
    words = ("--trust-problem",)
    found = run("verify", judged / f"{WRONG.stem}.zip", *words)
    assert (found.code, "THE CLAIM HOLDS" in found.stdout) == (0, True), found.stdout + found.stderr
    assert "The bundle's problem is none of problems/" in found.stdout


def test_what_was_rejected_and_is_right_is_6(tmp_path, judged):
    bundle = read_bundle(judged / "control.zip")
    same = {name: getattr(bundle.evaluation, name) for name in bundle.evaluation.__struct_fields__}
    names = ("problem", "problem_sha256", "submission", "source_sha256", "device", "seed", "cases", "chosen_cases")
    slander = Rejected(reason=Reason.WRONG_OUTPUT, message="wrong", **{name: same[name] for name in names})
    path = tmp_path / "slander.zip"
    path.write_bytes(packed(Bundle(slander, bundle.environment, bundle.source, bundle.problem)))
    found = run("verify", path, "--trust-problem")
    assert (found.code, "THE CLAIM DOES NOT HOLD\n" in found.stdout) == (6, True)


def test_an_error_and_the_bundles_own_seed_again_are_no_way_to_verify(tmp_path, judged):
    evaluation = accepted()
    broken = Errored(reason=Reason.HARNESS_ERROR, message="broken", problem="rmsnorm", submission="mine", seed=1,
                     source_sha256=sha256(RIGHT), problem_sha256=sha256(SHIPPED.read_bytes()), device="cpu",
                     cases=evaluation.cases)  # fmt: skip
    path = tmp_path / "error.zip"
    path.write_bytes(packed(Bundle(broken, ENVIRONMENT, RIGHT, SHIPPED.read_bytes())))
    found = run("verify", path)
    assert (found.code, "there is no claim" in found.stderr) == (2, True)
    found = run("verify", claimed(tmp_path, RIGHT), "--seed", "7")
    assert (found.code, "--seed 7 is the bundle's own" in found.stderr) == (2, True)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU here")
def test_where_no_gpu_is_the_verdict_alone_is_verified_and_that_is_said(tmp_path):
    found = run("verify", claimed(tmp_path, RIGHT, device="cuda"))
    assert found.code == 0, found.stderr
    assert "It was judged on cuda, and is judged on cpu here: the verdict alone is verified." in found.stdout
    assert "The verdict alone was verified: it was timed on cuda, and this run is on cpu." in found.stdout


# ---------------------------------------------------------------------- speedups


def answer(claim, *now, **here):
    return of_all(Bundle(claim, ENVIRONMENT, b"", b""), now, ENVIRONMENT | here)


@pytest.mark.parametrize(
    ("now", "within", "finding"),
    [
        ((2.0, 2.01), 0.01, Finding.HOLDS),
        ((1.91, 1.92), 0.001, Finding.HOLDS),  # within 5%, as evaluations of an entry agree
        ((1.8, 1.8), 0.001, Finding.FAILS),
        ((2.2, 2.2), 0.001, Finding.FAILS),
        ((1.8, 1.8), 0.09, Finding.HOLDS),  # the intervals explain it
        ((2.0, 1.7), 0.01, Finding.FAILS),  # with the fresh seed alone
        ((2.0, 2.0), 0.2, Finding.UNKNOWN),  # too noisy to rank
    ],
)
def test_a_speedup_holds_where_the_board_would_say_that_evaluations_agree(now, within, finding):
    again = [accepted(speedup, seed, within=within) for seed, speedup in enumerate(now, 1)]
    found = answer(accepted(2.0, within=min(within, 0.09)), *again)
    assert found.finding is finding, found.sentences
    assert "2.00×" in found.sentences[1]


def test_figures_that_stand_without_a_speedup_over_eager_are_not_said_to_hold():
    bare = msgspec.structs.replace(accepted(), geomean_speedup=None, geomean_interval=None)
    assert answer(bare, accepted(2.0, 1), accepted(2.0, 2)).finding is Finding.HOLDS
    for figure in (dict(geomean_speedup_over_best=9.0), dict(captured=Geomeans(geomean_speedup=50.0))):
        found = answer(msgspec.structs.replace(bare, **figure), accepted(2.0, 1), accepted(2.0, 2))
        assert found.finding is Finding.UNKNOWN, found.sentences


def test_captured_speedups_are_compared_too():
    def with_captured(speedup, seed=0):
        means = Geomeans(geomean_speedup=speedup, geomean_interval=(speedup * 0.99, speedup * 1.01))
        return msgspec.structs.replace(accepted(2.0, seed), captured=means)

    again = [with_captured(3.0, 1), with_captured(3.02, 2)]
    assert answer(with_captured(3.05), *again).finding is Finding.HOLDS
    found = answer(with_captured(50.0), *again)
    assert (found.finding, "50.00×" in found.sentences[1]) == (Finding.FAILS, True)


def test_another_model_of_device_verifies_the_verdict_alone():
    found = answer(accepted(9.0), accepted(2.0, 1), accepted(2.0, 2), gpu="Another GPU")
    assert found.finding is Finding.HOLDS
    assert "The verdict alone was verified: it was timed on A GPU, and this is Another GPU." in found.sentences


def test_other_versions_and_another_judge_are_said_beside_speedups():
    found = answer(accepted(), accepted(2.0, 1), accepted(2.0, 2), driver="590", judge="bbbb")
    assert "Versions differ, and eager's time with them: torch 2.11, driver 580 then, torch 2.11, driver 590 now." in (
        found.sentences
    )
    assert "The judge was aaaa, and is bbbb." in found.sentences


def test_a_claim_that_is_in_doubt_itself_is_not_shown():
    assert answer(accepted(within=0.5), accepted(2.0, 1), accepted(2.0, 2)).finding is Finding.UNKNOWN


def test_what_could_not_be_judged_says_nothing():
    broken = Errored(reason=Reason.HARNESS_ERROR, message="broken", problem="rmsnorm", submission="mine", seed=1,
                     source_sha256="s", device="cuda", cases=[])  # fmt: skip
    assert of_verdict(accepted(), broken).finding is Finding.UNKNOWN
    assert of_verdict(accepted(), accepted(math.e)) is None


def test_any_choice_of_cases_is_found_again():
    from harness.problem import load_problem

    problem = load_problem(SHIPPED, 0)
    for word in ("", "random 1", "random", problem.cases[0].name):
        chosen = digest_of_cases(case.name for case in problem.matching(word))
        found = selection(problem, chosen)
        assert [case.name for case in problem.matching(found)] == [case.name for case in problem.matching(word)]
    assert selection(problem, "0" * 12) is None


def test_a_bundle_is_what_msgspec_gives_back(tmp_path):
    """Figures without JSON's numbers are written as null, and the digest is over what is written."""
    path = tmp_path / "bundle.zip"
    odd = msgspec.structs.replace(accepted(), source_sha256=sha256(RIGHT), problem_sha256=sha256(b"p"))
    odd = msgspec.structs.replace(odd, cases=[msgspec.structs.replace(odd.cases[0], tolerance=1e-300)])
    path.write_bytes(packed(Bundle(odd, ENVIRONMENT, RIGHT, b"p")))
    assert read_bundle(path).evaluation == odd
