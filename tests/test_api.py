"""`from harness import Pool, evaluate`: judging from a Python program, with real processes; and docs/examples."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import msgspec
import psutil
import pytest

from harness import Pool, Result, Source, Stage, evaluate
from harness.errors import UsageError
from harness.lanes.clock import Clock
from harness.lanes.options import Given, Options
from harness.lanes.standby import Standby
from harness.plan import Arguments
from harness.reasons import Reason
from harness.report.formats import json as results_json
from harness.verdict import SCHEMA, Accepted, Errored, Rejected, Results
from tests.helpers import ROOT, is_alive

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"
RIGHT = (ROOT / "tests" / "hostile" / "form" / "control.py").read_text()
WRONG = RIGHT.replace("+ self.bias", "+ self.bias + x")
CRASHES = RIGHT.replace(
    "        y = (x", "        import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n        y = (x"
)
HANGS = RIGHT.replace("        y = (x", "        while True: pass\n        y = (x")

OPTIONS = dict(problem=str(PROBLEM), device="cpu", timing=False)
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def pool():
    """One for all tests that do not end it. Nothing of it is left."""
    with one_thread(), Pool(2, **OPTIONS) as pool:
        yield pool
        children = lanes()
    assert [child for child in children if is_alive(child)] == []


@contextlib.contextmanager
def one_thread():
    """What is started in here computes with one thread, which leaves cores to other tests."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)


def lanes(beside=()):
    """The processes that judge, of all pools of this one; without those `beside`."""
    return [child for child in psutil.Process().children() if child not in beside and is_lane(child)]


def is_lane(process):
    with contextlib.suppress(psutil.NoSuchProcess):  # it may end while it is looked at
        return is_alive(process) and "harness.lanes.judging" in process.cmdline()
    return False


def wait_for(found):
    """What `found` gives as soon as that is something."""
    ends_s = time.monotonic() + LIMIT_S
    while not (result := found()):
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    return result


async def collected(results):
    return sorted([result async for result in results], key=lambda result: result.index)


def program(text, *words, **environment):
    """A Python program of its own, which finds the harness."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, words)], capture_output=True, text=True, timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment},
    )  # fmt: skip


# ---------------------------------------------------------------------- without torch


def test_importing_loads_neither_torch_nor_more_than_was_asked_for():
    run = program(
        "import sys, harness\n"
        "assert not {'torch', 'harness.api', 'msgspec'} & sys.modules.keys()\n"
        "from harness import Pool, evaluate\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert run.returncode == 0, run.stderr


NO_TORCH = """
import sys
sys.modules["torch"] = None  # whoever imports it here fails
from harness import evaluate
result = evaluate(sys.stdin.read(), problem=sys.argv[1], device="cpu", timing=False)
print(result.status, result.stage, result.source)
"""


def test_a_program_without_torch_judges(tmp_path):
    submission = tmp_path / "mine.py"
    submission.write_text(RIGHT)
    run = program(NO_TORCH.replace("sys.stdin.read()", f"{str(submission)!r}"), PROBLEM)
    assert (run.stdout, run.stderr) == ("accepted done mine\n", "")


def test_what_the_package_does_not_have_is_an_attribute_error():
    import harness

    assert {"Pool", "evaluate"} <= set(harness.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'pool'"):
        harness.pool  # noqa: B018


# ---------------------------------------------------------------------- results


def test_every_source_gets_a_result_whatever_others_do(pool):
    sources = [RIGHT, CRASHES, HANGS, WRONG, "def (", RIGHT]
    results = asyncio.run(collected(pool.evaluate(sources, limit_s=20.0)))
    assert [result.index for result in results] == list(range(6))
    assert [result.source for result in results] == [f"source_{index}" for index in range(6)]
    kinds = [(type(result.evaluation), result.evaluation.reason, result.stage) for result in results]
    assert kinds == [
        (Accepted, None, Stage.DONE),
        (Rejected, Reason.CRASHED, Stage.VERDICT),
        (Errored, Reason.NOT_JUDGED, Stage.VERDICT),
        (Rejected, Reason.WRONG_OUTPUT, Stage.VERDICT),
        (Rejected, Reason.LOAD_FAILED, Stage.COMPILE),
        (Accepted, None, Stage.DONE),
    ]
    assert "after 20 s, the limit that its caller gave" in results[2].evaluation.message


def test_files_and_texts_are_judged_in_the_order_in_which_they_were_given(pool, tmp_path):
    mine, other = tmp_path / "mine.py", tmp_path / "other.py"
    mine.write_text(RIGHT)
    other.write_text(WRONG)
    results = pool.run([mine, str(other), RIGHT, Source.of_text(WRONG, "named"), tmp_path / "none.py"])
    assert [(result.source, result.status) for result in results] == [
        ("mine", "accepted"), ("other", "rejected"), ("source_2", "accepted"), ("named", "rejected"), ("none", "error")
    ]  # fmt: skip
    assert [result.evaluation.submission for result in results] == [result.source for result in results]
    assert results[4].evaluation.message == f"There is no file or folder {tmp_path}/none.py."


def test_an_evaluation_is_what_json_has(pool):
    (result,) = pool.run([WRONG], seed=7)
    assert isinstance(result, Result)
    results = Results(schema=SCHEMA, environment={}, evaluations=[result.evaluation])
    assert results_json.loads(results_json.dumps(results)) == results
    assert result.evaluation.seed == 7
    assert [case.name for case in result.evaluation.cases] == ["large eps", "large mean"]
    with pytest.raises(AttributeError):
        result.evaluation.seed = 8


def test_options_are_those_of_the_command_line_with_its_defaults():
    command_line = Arguments()
    assert {name: getattr(command_line, name) for name in Options.__struct_fields__} == msgspec.structs.asdict(
        Options()
    )
    assert set(Given.__annotations__) == set(Options.__struct_fields__)


def test_options_of_a_call_go_before_those_of_the_pool(pool):
    (result,) = pool.run([WRONG], select="large mean")
    assert [case.name for case in result.evaluation.cases] == ["large mean"]


def test_sources_may_come_as_they_are_made(pool):
    taken = []

    async def made():
        for index in range(12):
            taken.append(index)
            yield WRONG

    async def first():
        async with contextlib.aclosing(pool.evaluate(made())) as results:
            async for result in results:
                return result

    assert asyncio.run(first()).status == "rejected"
    assert 1 <= len(taken) <= 4  # twice as many as workers


def test_a_maker_of_sources_may_wait_for_results(pool):
    async def search():
        best = asyncio.Queue()

        async def made():
            yield WRONG
            assert (await best.get()).status == "rejected"  # of the one before
            yield RIGHT

        found = []
        async for result in pool.evaluate(made()):
            found.append(result.status)
            best.put_nowait(result)
        return found

    assert asyncio.run(asyncio.wait_for(search(), LIMIT_S)) == ["rejected", "accepted"]


def test_an_error_of_the_maker_of_sources_is_the_callers(pool):
    def made():
        yield WRONG
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(collected(pool.evaluate(made())))
    with pytest.raises(ZeroDivisionError):
        pool.run(made())
    assert pool.run([RIGHT])[0].status == "accepted"


def test_a_source_that_is_none_and_options_that_are_none_are_refused(pool):
    with pytest.raises(UsageError, match="A source is text or a path, and this is an int"):
        pool.run([1])
    with pytest.raises(UsageError, match="There is no option 'devise'"):
        pool.run([RIGHT], devise="cpu")
    with pytest.raises(UsageError, match=r"timeout_s: expected a number, got a text\."):
        pool.run([RIGHT], timeout_s="3")
    with pytest.raises(UsageError, match="There is no problem file"):
        evaluate(RIGHT, problem="layer")
    with pytest.raises(UsageError, match="at least one process"):
        Pool(0)
    with pytest.raises(UsageError, match="a whole number, and '2' was given"):
        Pool("2")
    with pytest.raises(UsageError, match=r"isolation is one of auto, require, .*'required' was given"):
        Pool(isolation="required")
    for not_several in (RIGHT, Path("mine.py"), 3):
        with pytest.raises(UsageError, match="Sources are a list"):
            pool.run(not_several)
    with Pool(device="cpu") as other, pytest.raises(UsageError, match="Which problem is a text for"):
        other.run([RIGHT])


def test_what_forks_workers_is_kept_and_not_where_a_submission_has_spoiled_it():
    attacks = sorted((ROOT / "tests" / "hostile" / "judge").glob("*what_forks_workers.py"))
    assert len(attacks) == 2
    with one_thread(), Pool(1, isolation="basic", **OPTIONS) as pool:
        for attack in attacks:
            results = pool.run([RIGHT, attack, RIGHT, WRONG])
            assert [result.status for result in results] == ["accepted", "rejected", "accepted", "rejected"]


# ---------------------------------------------------------------------- stages


def test_a_caller_stops_paying_before_a_stage_and_its_process_goes_on(pool):
    pool.run([RIGHT, RIGHT])
    before = lanes()
    told = []

    def only_compile(index, stage):
        told.append((index, stage))
        return stage is not Stage.VERDICT

    (result,) = pool.run([RIGHT], on_stage=only_compile)
    assert told == [(0, "static"), (0, "compile"), (0, "verdict")]
    assert (result.status, result.stage) == ("error", Stage.COMPILE)
    assert result.evaluation.message == "Its caller stopped it before the stage 'verdict'."
    assert pool.run([RIGHT])[0].status == "accepted"
    assert lanes() == before


@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError, UsageError])
def test_an_error_of_the_callers_function_is_the_callers(pool, error):
    def fails(_index, _stage):
        raise error

    with pytest.raises(error):
        pool.run([RIGHT], on_stage=fails)
    assert pool.run([RIGHT])[0].status == "accepted"


# ---------------------------------------------------------------------- leaving, cancelling, closing


def processes(beside):
    """Those that judge, without those `beside`, and all that they have started."""
    return [process for lane in lanes(beside) for process in (lane, *started_by(lane))]


def started_by(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


class Reached:
    """Says when a source has come to its verdict, where those that hang do."""

    def __init__(self):
        self.verdict = threading.Event()

    def __call__(self, _index, stage):
        if stage is Stage.VERDICT:
            self.verdict.set()


def test_leaving_the_loop_ends_what_runs():
    async def leave(pool, reached, others):
        async for result in pool.evaluate([CRASHES, HANGS], on_stage=lambda i, stage: i and reached(i, stage)):
            assert result.index == 0
            await asyncio.to_thread(reached.verdict.wait, LIMIT_S)
            running = processes(others)
            break
        await asyncio.to_thread(wait_for, lambda: hanging_ended(running, others))

    async def close(pool, reached, others):
        async with contextlib.aclosing(pool.evaluate([CRASHES, HANGS], on_stage=lambda i, s: i and reached(i, s))) as r:
            await anext(r)
            await asyncio.to_thread(reached.verdict.wait, LIMIT_S)
            running = processes(others)
        assert hanging_ended(running, others)

    def hanging_ended(running, others):
        """Whether what runs are the one lane that had nothing to do, and what it keeps."""
        kept = processes(others)
        return len(lanes(others)) == 1 and not [one for one in running if is_alive(one) and one not in kept]

    others = lanes()
    with one_thread(), Pool(2, **OPTIONS) as pool:
        asyncio.run(leave(pool, Reached(), others))
        asyncio.run(close(pool, Reached(), others))
        assert [result.status for result in pool.run([RIGHT, RIGHT])] == ["accepted", "accepted"]


def test_cancelling_the_task_ends_what_runs():
    async def cancelled(pool, reached, others):
        task = asyncio.create_task(collected(pool.evaluate([HANGS], on_stage=reached)))
        await asyncio.to_thread(reached.verdict.wait, LIMIT_S)
        running = processes(others)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return running

    others = lanes()
    with one_thread(), Pool(1, **OPTIONS) as pool:
        running = asyncio.run(cancelled(pool, Reached(), others))
        assert [process for process in running if is_alive(process)] == []
        assert pool.run([RIGHT])[0].status == "accepted"


def test_a_judging_process_that_was_ended_unnoticed_costs_nobody_anything(monkeypatch):
    """asyncio learns of an end a moment after it. What it was given then, it had not begun."""
    others = lanes()
    with one_thread(), Pool(1, **OPTIONS) as pool:
        assert pool.run([RIGHT])[0].status == "accepted"
        (lane,) = lanes(others)
        lane.terminate()  # which ends what it has started, too
        lane.wait(LIMIT_S)
        monkeypatch.setattr(Standby, "is_alive", True)
        assert pool.run([RIGHT])[0].status == "accepted"
        monkeypatch.undo()


def test_threads_share_a_pool(pool):
    results = {}

    def judge(name, source):
        results[name] = [result.status for result in pool.run([source] * 3)]

    threads = [threading.Thread(target=judge, args=item) for item in {"right": RIGHT, "wrong": WRONG}.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert results == {"right": ["accepted"] * 3, "wrong": ["rejected"] * 3}


def test_closing_ends_what_runs_and_what_others_wait_for():
    ended, others = [], lanes()

    def judge():
        try:
            pool.run([HANGS, RIGHT], on_stage=reached)
        except CancelledError:
            ended.append("cancelled")

    with one_thread():
        pool, reached = Pool(1, **OPTIONS), Reached()
    thread = threading.Thread(target=judge)
    thread.start()
    assert reached.verdict.wait(LIMIT_S)
    running = processes(others)
    pool.close()
    assert [process for process in running if is_alive(process)] == []
    thread.join(LIMIT_S)
    assert ended == ["cancelled"]
    pool.close()  # once more does no harm
    with pytest.raises(UsageError, match="The pool is closed"):
        pool.run([RIGHT])


LEFT_OPEN = """
import sys, psutil
from harness import Pool
pool = Pool(1, problem=sys.argv[1], device="cpu", timing=False)
pool.run([sys.argv[2]])
print(*[child.pid for child in psutil.Process().children(recursive=True)])
"""


def test_a_pool_that_nobody_needs_any_more_is_closed():
    others = lanes()
    with one_thread():
        pool = Pool(1, **OPTIONS)
    assert pool.run([WRONG])[0].status == "rejected"
    (lane,) = lanes(others)
    del pool
    assert not is_alive(lane)


def test_a_program_that_closes_nothing_leaves_nothing():
    run = program(LEFT_OPEN, PROBLEM, RIGHT)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split()
    assert [pid for pid in run.stdout.split() if psutil.pid_exists(int(pid))] == []


PLANS = """
import gc, os, sys
from pathlib import Path
from harness.plan import Arguments, make_plan
from harness.run import run

def files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

plan = make_plan(Arguments(paths=(Path(sys.argv[1]),), problem=sys.argv[2], device="cpu", timing=False))
run(plan)
before = files()
for _ in range(3):
    run(plan)
print(files() - before)
"""


def test_one_plan_after_the_other_opens_no_more_files(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(RIGHT)
    run = program(PLANS, mine, PROBLEM)
    assert (run.returncode, run.stdout) == (0, "0\n"), run.stderr


CLOSED = """
import sys
from pathlib import Path
import harness.run
from harness.plan import Arguments, make_plan

closed, open_device = [], harness.run.open_device

def opened(name, memory):
    device = open_device(name, memory)
    device.close = lambda: closed.append(name)
    return device

harness.run.open_device = opened
paths = tuple(map(Path, sys.argv[2:]))
harness.run.run(make_plan(Arguments(paths=paths, problem=sys.argv[1], device="cpu", timing=False)))
print(closed)
"""


def test_a_run_closes_its_device_which_gives_up_a_gpus_memory(tmp_path):
    """A lane, and the gate's second run, judge on that GPU again."""
    mine = tmp_path / "mine.py"
    mine.write_text(RIGHT)
    run = program(CLOSED, PROBLEM, mine)
    assert (run.returncode, run.stdout) == (0, "['cpu']\n"), run.stderr


# ---------------------------------------------------------------------- times


def test_who_times_is_alone_and_nobody_begins_meanwhile():
    async def scene():
        clock, said, go = Clock(), [], asyncio.Event()

        async def timed(name, begins):
            async with clock.turn() as turn:
                begins.set()
                await turn.alone()
                said.append(f"{name} is timed")
                await go.wait()
                said.append(f"{name} ends")

        async def judged(name, ends):
            async with clock.turn():
                said.append(f"{name} begins")
                await ends.wait()
                said.append(f"{name} ends")

        begun, ends = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(judged("a", ends)), asyncio.create_task(timed("b", begun))]
        await begun.wait()
        tasks.append(asyncio.create_task(judged("c", ends)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert said == ["a begins"]  # b waits for a, and c for b
        ends.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert said == ["a begins", "a ends", "b is timed"]
        go.set()
        await asyncio.gather(*tasks)
        return said

    assert asyncio.run(scene()) == ["a begins", "a ends", "b is timed", "b ends", "c begins", "c ends"]


def test_who_gives_up_waiting_for_the_clock_holds_nobody_up():
    async def scene():
        clock, ends = Clock(), asyncio.Event()

        async def judged():
            async with clock.turn():
                await ends.wait()

        async def timed():
            async with clock.turn() as turn:
                await turn.alone()

        one, other = asyncio.create_task(judged()), asyncio.create_task(timed())
        await asyncio.sleep(0.01)
        other.cancel()
        await asyncio.wait({other})
        async with clock.turn():  # beside the first
            ends.set()
        await one
        await timed()

    asyncio.run(asyncio.wait_for(scene(), LIMIT_S))


# ---------------------------------------------------------------------- docs/examples

EXAMPLES = ROOT / "docs" / "examples"


def example(name, *words):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, words)], capture_output=True, text=True, timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_best_of_n_is_one_that_is_right_and_the_same_each_time():
    said = example("best_of_n.py", 6)
    right = {line.split(":")[0] for line in said.splitlines() if line.endswith(": accepted ")}
    best = said.split("best: ")[1].splitlines()[0]
    assert best in right and len(right) < 6
    assert example("best_of_n.py", 6).split("best: ")[1] == said.split("best: ")[1]


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


def test_an_environment_rewards_what_is_right(pool, examples):
    from verifier import KernelEnv, Rubric

    env = KernelEnv(pool, str(PROBLEM), attempts=2, limit_s=400.0)
    observation, info = env.reset(seed=1)
    assert "ModelNew" in observation and info == {}
    observation, worth, terminated, truncated, info = env.step(f"I try this:\n```python\n{WRONG}```\n")
    assert observation.startswith("rejected in the stage 'verdict': wrong_output")
    assert (0 < worth < 1, terminated, truncated, info["result"].index) == (True, False, False, 0)
    _, worth, terminated, truncated, _ = env.step(f"```python\n{RIGHT}```")
    assert (worth, terminated, truncated) == (1.0, True, True)

    async def scores():
        rubric = Rubric(pool, str(PROBLEM))
        return await asyncio.gather(*[rubric(completion=text, prompt="") for text in (RIGHT, "def (", CRASHES)])

    assert asyncio.run(scores()) == [1.0, 0.0, 0.1]


def test_an_environment_says_nothing_of_what_was_not_judged(pool, examples):
    from verifier import KernelEnv, Rubric

    env = KernelEnv(pool, str(PROBLEM), limit_s=1.0)
    env.reset()
    observation, worth, terminated, truncated, _ = env.step(HANGS)
    assert "not_judged" in observation
    assert (worth, terminated, truncated) == (0.0, False, True)
    with pytest.raises(RuntimeError, match="the limit that its caller gave"):
        asyncio.run(Rubric(pool, str(PROBLEM), limit_s=1.0)(HANGS))


def test_the_client_prints_what_the_server_answers(tmp_path):
    files = [tmp_path / "right.py", tmp_path / "wrong.py"]
    for file, text in zip(files, (RIGHT, WRONG), strict=True):
        file.write_text(text)
    said = example("client.py", PROBLEM, *files, "--", "--device", "cpu", "--no-timing", "-k", "large eps")
    assert f"{files[0]}: verdict …" in said
    assert f"{files[0]}: accepted" in said
    assert f"{files[1]}: rejected wrong_output" in said
