"""`--cluster`: eval.py on a local Ray of several nodes, one of which is lost in the middle; and what it refuses."""

import importlib.metadata
import io
import os
import platform
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import harness.cluster
from harness.cluster import building, driver
from harness.cluster.connection import connected
from harness.cluster.places import builders, places
from harness.cluster.seat import Seat, keep_built
from harness.cluster.wire import About, decode_task, encode
from harness.errors import HarnessError, UsageError
from harness.events import OnCluster, SeatLost
from harness.plan import Arguments, make_plan
from harness.reasons import Reason
from harness.report.formats import json as results_json
from harness.report.progress import listening
from harness.report.view import View
from harness.store import open_store
from harness.verdict import SCHEMA, Accepted, Errored, Results
from harness.version import judge_version
from tests.helpers import ROOT, run_eval
from tests.test_shared_builds import NATIVE

RIGHT = (ROOT / "tests" / "hostile" / "form" / "control.py").read_text()
WRONG = RIGHT.replace("+ self.bias", "+ self.bias + x")
PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"

# A node has one processor, so that two are two seats; Ray counts them and takes none.
NODE = dict(num_cpus=1, object_store_memory=80 << 20)


@pytest.fixture(scope="module")
def local_ray():
    """A head that judges nothing, and two nodes."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE | dict(num_cpus=0, include_dashboard=False))
    for _ in range(2):
        cluster.add_node(**NODE)
    yield cluster
    for node in [*cluster.worker_nodes, cluster.head_node]:
        cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def submissions(tmp_path):
    """Writes submissions into a folder, beside a problem that no node has."""
    (tmp_path / "theirs.py").write_text(PROBLEM.read_text())

    def write(**texts):
        folder = tmp_path / "submissions"
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        return folder, "--problem", tmp_path / "theirs.py", "--device", "cpu"

    return write


def statuses(results):
    return {e["submission"]: (e["status"], e["reason"]) for e in results["evaluations"]}


def judged(seat, local_ray, folder, problem, on_event, **given):
    """The evaluations of a run with seats of that class."""
    arguments = Arguments(
        paths=(folder,), problem=str(problem), device="cpu", cluster=local_ray.address, **{"timing": False} | given
    )
    return harness.cluster.run(make_plan(arguments), arguments, on_event, seat).evaluations


# ---------------------------------------------------------------------- judged on nodes


def test_submissions_are_judged_on_nodes_and_reported_and_kept_as_those_judged_here(local_ray, submissions, tmp_path):
    words = submissions(right=RIGHT, wrong=WRONG, broken="def (")
    kept = tmp_path / "results.db"
    run = run_eval(*words, "--cluster", local_ray.address, "--db", kept, "--seed", "7", program=True)
    assert run.code == 1, run.stderr
    assert statuses(run.results) == {
        "broken": ("rejected", "load_failed"),
        "right": ("accepted", None),
        "wrong": ("rejected", "wrong_output"),
    }
    assert [*statuses(run.results)] == ["broken", "right", "wrong"]  # as the plan has them, whoever came first
    environment = run.results["environment"]
    assert environment["judge"] == judge_version()
    assert environment["isolation"]["cpu"]["level"]
    wrong = run.results["evaluations"][2]
    words = shlex.split(wrong["cases"][0]["repeat"])
    assert words[2:5] == [str(tmp_path / "submissions" / "wrong.py"), "--problem", str(tmp_path / "theirs.py")]
    with open_store(kept) as store:
        stored = list(store.stored("1"))
    assert {each.evaluation.submission for each in stored} == {"right", "wrong", "broken"}
    assert {each.environment["judge"] for each in stored} == {judge_version()}


class Held(Seat):
    """Judges as seats do, once the test lets it."""

    def judge(self, task, source, problem, built):
        while not Path(self.held_by).exists():
            time.sleep(0.1)
        return super().judge(task, source, problem, built)


def test_a_node_that_is_lost_rejects_nothing(local_ray, submissions, tmp_path):
    """It is lost when each of two seats has a submission to judge and one that waits."""
    folder, _, problem, *_ = submissions(**{f"right_{number}": f"{RIGHT}\n# {number}\n" for number in range(6)})
    free = tmp_path / "free"
    console, told = Console(file=io.StringIO(), width=10_000), []

    def lose_a_node(event):
        told.append(event)
        log(event)
        if event == OnCluster(2, 4) and not free.exists():
            local_ray.remove_node(next(iter(local_ray.worker_nodes)), allow_graceful=False)
            local_ray.add_node(**NODE)  # as a batch system gives another
            free.touch()

    held = type("Held", (Held,), {"held_by": str(free)})
    with listening(console, View()) as log:
        evaluations = judged(held, local_ray, folder, problem, lose_a_node)
    assert [type(evaluation) for evaluation in evaluations] == [Accepted] * 6
    lost = [event for event in told if isinstance(event, SeatLost) and event.submission]
    assert len(lost) == 1, told
    said = console.file.getvalue()
    assert re.search(
        r"In the cluster: \S+ was lost: .*; right_\d was judged there, and that says nothing about it",
        " ".join(said.split()),
    )
    assert said.count(" of 6: ACCEPTED") == 6


class Patient(Seat):
    """Waits for what others build as long as that takes: a seat builds itself what comes late on a slow machine."""

    def judge(self, task, source, problem, built):
        import ray

        ray.wait([*built], num_returns=len(built))
        return super().judge(task, source, problem, built)


def test_a_processor_that_no_seat_has_builds_what_one_will_judge(local_ray, submissions, tmp_path):
    """One node has the seat, since it alone has what is asked for; the other only builds. Each has a cache."""

    def cache_of(name):
        return {"env_vars": {"KERNELGATE_CACHE": str(tmp_path / name)}}

    seats = local_ray.add_node(**NODE, **cache_of("seat"), resources={"accelerator_type:X": 1})
    builds = local_ray.add_node(**(NODE | {"num_cpus": 2}), **cache_of("builder"))
    folder, _, problem, *_ = submissions(first=NATIVE, second=NATIVE.replace("41", "42"))
    try:
        evaluations = judged(Patient, local_ray, folder, problem, [].append, accelerator="X")
    finally:
        for node in (seats, builds):
            local_ray.remove_node(node, allow_graceful=False)
        local_ray.wait_for_nodes(timeout=600)  # or the next run has a seat for one that is gone, and waits for it
    assert [evaluation.message.rpartition(": ")[2] for evaluation in evaluations] == [
        "the answer is 41",
        "the answer is 42",
    ]
    assert [evaluation.build.cached for evaluation in evaluations] == [True, True]
    built, used = ({each.name for each in (tmp_path / name / "shared").iterdir()} for name in ("builder", "seat"))
    assert len(built) == 2
    assert used == built


def test_what_nobody_could_build_the_seat_builds(local_ray, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", os.devnull)
    assert building.built("cpu", "auto", "", False, "native.py", NATIVE.encode()) == building.NOTHING

    def fails():
        raise ValueError

    with connected(local_ray.address) as ray:
        keep_built(ray.remote(num_cpus=0)(fails).remote())


def test_nothing_judges_any_more_when_a_run_has_ended(local_ray, submissions):
    import psutil

    ends_s = time.monotonic() + 60
    programs = {"harness.lanes.judging", "harness.cluster.building"}
    while any(programs & {*words_of(process)} for process in psutil.process_iter()):
        assert time.monotonic() < ends_s
        time.sleep(0.2)


def words_of(process):
    """Of those that an actor of Ray's started."""
    import psutil

    try:
        return process.cmdline() if any("ray::" in each.name() for each in process.parents()) else []
    except psutil.NoSuchProcess:
        return []


# ---------------------------------------------------------------------- seats that stand in for real ones


class StandIn:
    """Says that all is right, and what it judges with as a test wants."""

    differs = ""

    def __init__(self, _device, _isolation):
        pass

    def about(self):
        import ray

        own = {"judge": judge_version(), "kernelgate": importlib.metadata.version("kernelgate")}
        own |= {"python": platform.python_version(), "processor": "one model"}
        if self.differs:
            own[self.differs] = f"that of {ray.get_runtime_context().get_node_id()}"
        return encode(About(node="10.0.0.1", environment=own))

    def judge(self, task, source, _problem, _built):
        if b"brings its seat down" in source:
            time.sleep(0.5)  # what it answered before is on its way
            os._exit(1)
        evaluation = Accepted(
            problem="theirs", submission=Path(decode_task(task).file).stem, device="cpu", seed=1, cases=[],
            source_sha256="", problem_sha256="0",
        )  # fmt: skip
        return results_json.dumps(Results(schema=SCHEMA, environment={}, evaluations=[evaluation]))

    def close(self):
        pass


class WithoutKernelgate(StandIn):
    def __init__(self, *_given):
        import kernelgate_that_is_not_there  # noqa: F401


class SlowToStart(StandIn):
    """Is lost before it says what it judges with, the first two times."""

    def about(self):
        with open(self.starts, "a") as file:
            file.write("started\n")
        if len(Path(self.starts).read_text().splitlines()) < 3:
            os._exit(1)
        return super().about()


class OfManyModels(StandIn):
    differs = "processor"


class OfAnotherJudge(StandIn):
    differs = "judge"


class OfAnotherPython(StandIn):
    differs = "python"


def run_with(seat, local_ray, words, **given):
    """The results of a run with stand-ins, and what was told of seats."""
    folder, _, problem, *_ = words
    told = []
    evaluations = judged(seat, local_ray, folder, problem, told.append, **given)
    return evaluations, [event for event in told if isinstance(event, SeatLost)]


def test_what_brings_its_seat_down_three_times_is_not_judged_and_costs_the_others_nothing(local_ray, submissions):
    words = submissions(a=RIGHT, b="# brings its seat down", c=RIGHT + "#", d=RIGHT + "##")
    evaluations, lost = run_with(StandIn, local_ray, words)
    assert [type(evaluation) for evaluation in evaluations] == [Accepted, Errored, Accepted, Accepted]
    assert evaluations[1].reason == Reason.NOT_JUDGED
    assert evaluations[1].message.startswith("Each of 3 processes that judged it was lost")
    assert [event.submission for event in lost if event.submission] == ["b", "b", "b"], lost


def test_times_of_two_models_are_refused_before_anything_is_judged(local_ray, submissions, monkeypatch):
    monkeypatch.setattr(driver, "START_S", 300.0)  # both must have come, on a machine that tests keep busy
    words = submissions(a=RIGHT, b=WRONG)
    with pytest.raises(UsageError, match=r"10\.0\.0\.1 has that of \w+, .* and 10\.0\.0\.1 that of \w+, .*--no-timing"):
        run_with(OfManyModels, local_ray, words, timing=True)
    evaluations, _ = run_with(OfManyModels, local_ray, words)
    assert [type(evaluation) for evaluation in evaluations] == [Accepted, Accepted]  # verdicts are of no model


@pytest.mark.parametrize(
    ("seat", "called"), [(OfAnotherJudge, "judge"), (OfAnotherPython, "Python")], ids=["judge", "Python"]
)
def test_a_node_with_another_kernelgate_or_python_is_refused(local_ray, submissions, seat, called):
    words = submissions(a=RIGHT)
    with pytest.raises(UsageError, match=f"The node 10.0.0.1 has {called} that of .* Install the same kernelgate"):
        run_with(seat, local_ray, words)


def test_a_node_that_cannot_start_what_judges_is_a_sentence(local_ray, submissions):
    with pytest.raises(HarnessError, match=r"does not start in the cluster: ModuleNotFoundError: .*_not_there'"):
        run_with(WithoutKernelgate, local_ray, submissions(a=RIGHT))


def test_one_that_is_lost_while_it_starts_is_started_again(local_ray, submissions, tmp_path):
    slow = type("SlowToStart", (SlowToStart,), {"starts": str(tmp_path / "starts")})
    evaluations, _ = run_with(slow, local_ray, submissions(a=RIGHT))
    assert [type(evaluation) for evaluation in evaluations] == [Accepted]


def test_an_empty_file_is_sent_as_any_other(local_ray, submissions):
    evaluations, _ = run_with(StandIn, local_ray, submissions(empty="", a=RIGHT))
    assert [evaluation.submission for evaluation in evaluations] == ["a", "empty"]


def test_ray_leaves_what_ends_a_run_and_what_it_prints_alone(local_ray, capsys):
    """Ray's own handler of SIGTERM ends a process at once, with nothing said; and it prints what nodes fail of."""
    before = signal.getsignal(signal.SIGTERM)
    with connected(local_ray.address):
        assert signal.getsignal(signal.SIGTERM) == before
        print("a message of Ray's")
    assert capsys.readouterr().out == ""


def test_a_submission_that_changes_meanwhile_is_not_judged(local_ray, submissions, monkeypatch):
    words = submissions(a=RIGHT, b=RIGHT + "#")
    planned = make_plan

    def changed_behind(arguments):
        plan = planned(arguments)
        (words[0] / "b.py").write_text(WRONG)
        return plan

    monkeypatch.setattr(sys.modules[__name__], "make_plan", changed_behind)
    evaluations, _ = run_with(StandIn, local_ray, words)
    assert [type(evaluation) for evaluation in evaluations] == [Accepted, Errored]
    assert "changed since this run began" in evaluations[1].message


# ---------------------------------------------------------------------- refused in a sentence


def test_without_ray_a_sentence_says_what_to_install(tmp_path, submissions):
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    run = run_eval(
        *submissions(a=RIGHT), "--cluster", "127.0.0.1:6379", json_results=False, env={"PYTHONPATH": str(tmp_path)}
    )
    assert run.code == 2
    assert "--cluster needs the package ray" in run.stderr
    assert "pip install -e '.[cluster]'" in run.stderr


def test_an_address_that_nobody_answers(submissions):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    run = run_eval(*submissions(a=RIGHT), "--cluster", f"127.0.0.1:{free}", json_results=False)
    assert run.code == 3
    assert run.stderr.startswith(f"eval.py: No cluster answers at 127.0.0.1:{free}: ")


def test_a_cluster_without_a_gpu(local_ray, submissions):
    *words, _ = submissions(a=RIGHT)
    run = run_eval(*words, "cuda", "--cluster", local_ray.address, json_results=False, program=True)
    assert run.code == 3
    assert "--device cuda cannot be judged on this cluster: none of its" in " ".join(run.stderr.split())
    run = run_eval(
        *words, "cuda", "--cluster", local_ray.address, "--accelerator", "H100", json_results=False, program=True
    )
    assert run.code == 2
    assert "--accelerator H100: no node of the cluster has it" in run.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--cluster", "somewhere", "--device", "cpu"), "--cluster takes HOST:PORT"),
        (("--cluster", "127.0.0.1:6379"), "--cluster needs --device"),
        (("--cluster", "127.0.0.1:6379", "--device", "cpu", "-j", "2"), "--jobs is of this machine"),
        (("--accelerator", "H100"), "give --cluster, too"),
        (("--cluster", "127.0.0.1:6379", "--device", "cpu", "--against", "eager,a.py"), "do not go to a cluster"),
    ],
    ids=["address", "device", "jobs", "accelerator", "against"],
)
def test_what_no_cluster_does_is_refused(tmp_path, given, said):
    (tmp_path / "a.py").write_text(RIGHT)
    words = [
        str(tmp_path / word) if word == "a.py" else word.replace(",a.py", f",{tmp_path / 'a.py'}") for word in given
    ]
    run = run_eval(tmp_path / "a.py", "--problem", PROBLEM, *words, json_results=False)
    assert run.code == 2
    assert said in " ".join(run.stderr.split())


# ---------------------------------------------------------------------- where there is room


def node(alive=True, **has):
    return {"Alive": alive, "Resources": has}


def test_a_seat_that_times_has_its_share_of_its_node():
    nodes = [node(CPU=16.0, GPU=2.0), node(CPU=4.0), node(alive=False, CPU=8.0, GPU=8.0)]
    assert places(nodes, "cuda", timed=True) == [{"num_cpus": 4, "num_gpus": 1}] * 2
    assert places(nodes, "cuda", timed=False) == [{"num_cpus": 1, "num_gpus": 1}] * 2
    assert places(nodes, "cpu", timed=True) == [{"num_cpus": 16, "num_gpus": 0}, {"num_cpus": 4, "num_gpus": 0}]
    assert places(nodes, "cpu", timed=False) == [{"num_cpus": 1, "num_gpus": 0}] * 20


def test_processors_that_no_seat_has_build():
    nodes = [node(CPU=16.0, GPU=2.0), node(CPU=5.0), node(alive=False, CPU=8.0, GPU=8.0)]
    assert builders(nodes, "cuda", timed=True) == 4 + 2
    assert builders(nodes, "cuda", timed=False) == 7 + 2
    assert builders(nodes, "cpu", timed=True) == builders(nodes, "emulator", timed=False) == 0
    assert builders(nodes, "emulator", timed=False, accelerator="H100") == 8 + 2


def test_an_accelerator_is_asked_for_by_rays_name():
    nodes = [node(GPU=1.0, **{"accelerator_type:H100": 1.0}), node(GPU=1.0, **{"accelerator_type:A100": 1.0})]
    (options,) = places(nodes, "cuda", timed=True, accelerator="H100")
    assert options == {"num_cpus": 0, "num_gpus": 1, "accelerator_type": "H100"}


def test_a_cluster_that_lacks_what_judges_is_told_so():
    from harness.cluster.places import require_some

    with pytest.raises(HarnessError, match="none of its 1 nodes has a processor that Ray may use"):
        require_some([], [node()], "cpu", "")


# ---------------------------------------------------------------------- docs/examples


def test_the_example_for_slurm_starts_nodes_that_find_its_head(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    import slurm

    options = slurm.parser().parse_args(["--gpus", "8", "--cpus", "64", "--", "mine.py", "--device", "cuda"])
    assert options.words == ["mine.py", "--device", "cuda"]
    *_, address, cpus, number, gpus, other, _ = slurm.node_command("10.0.0.1:6379", options.cpus, options.gpus)
    assert (address, cpus, number, gpus, other) == ("10.0.0.1:6379", "--num-cpus", "64", "--num-gpus", "8")
    said = subprocess.run([*slurm.head_command(6379), "--help"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
