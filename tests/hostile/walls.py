"""The judge's walls by name, and a judge that lacks one: `python -m tests.hostile.walls judge WALL ARGUMENT…`.

A file of the corpus that says `opens: wall WALL` must be accepted by that judge, or what stops it elsewhere is not that
wall. The walls are taken down in the test's own process, by changing the harness's objects there; the workers that it
starts run through this file, too, and lose their share. eval.py has no such way in.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def nothing(*_args: Any, **_options: Any) -> None:
    """In place of a function that refuses."""


@dataclass(frozen=True)
class Wall:
    """What takes a wall down: in the judge's process, in a worker's before it runs, there once torch is loaded, and on
    the command line."""

    what: str
    judge: Callable[[], None] = nothing
    worker: Callable[[], None] = nothing
    worker_loaded: Callable[[], None] = nothing
    options: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Options that it takes from the command line."""


def put(place: str, thing: object) -> None:
    """Put `thing` in place of `module:attribute` or `module:Class.attribute`. Raises AttributeError where there is
    none: a wall that has moved must be named anew here."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    getattr(owner, name)
    setattr(owner, name, thing)


def around(place: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put in `place` what `make` gives for what is there."""
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    put(place, make(found))


# ---------------------------------------------------------------------- the judge's comparisons


def _no_values() -> None:
    """Whatever has the right form is right."""
    import torch

    put("harness.oracle.comparison:_difference", lambda _value, exact, _ulp, **_: torch.zeros_like(exact))
    put("harness.timing.rounds.inspection:Inspector._as_expected", lambda *_: True)


def _no_timed_values() -> None:
    """In timed calls whatever has the right form is right."""
    put("harness.timing.rounds.inspection:Inspector._as_expected", lambda *_: True)
    put("harness.timing.rounds.inspection:Inspector._compare_fully", nothing)


def _no_masks() -> None:
    put("harness.timing.rounds.inspection:Inspector._compare_masks", nothing)


def _any_masks() -> None:
    put("harness.oracle.dropout:unlikely", nothing)


def _no_more_calls() -> None:
    """What was right in its first call is right."""
    put("harness.judging.repeated:check", nothing)
    put("harness.judging.randomness:_check_further", nothing)


def _no_form() -> None:
    put("harness.judging.observe:check_form", nothing)
    put("harness.judging.observe:check_apart", nothing)
    put("harness.judging.observe:check_strides", nothing)
    put("harness.timing.rounds.inspection:check_form", nothing)


def _no_look_at_inputs() -> None:
    put("harness.judging.observe:Observation._require_unchanged", nothing)
    put("harness.timing.data.input_pool:InputPool.written_by_others", lambda *_: False)


def _no_findings() -> None:
    import msgspec

    def blind(observe: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: msgspec.structs.replace(observe(*given), findings=[])

    around("harness.judging.runner:Runner.observe", blind)


def _both(*downs: Callable[[], None]) -> Callable[[], None]:
    def take_down() -> None:
        for down in downs:
            down()

    return take_down


# ---------------------------------------------------------------------- what a submission must not call


def _all_operators_allowed() -> None:
    import msgspec

    from harness.norms import NORMALISATIONS, ONEDNNS_LAYOUT
    from harness.protocol.wire import Load

    def allowing(tell: Callable[..., None]) -> Callable[..., None]:
        def told(worker: Any, request: Any) -> None:
            if isinstance(request, Load):
                request = msgspec.structs.replace(
                    request, allowed_ops=[*NORMALISATIONS, *ONEDNNS_LAYOUT], forbidden_ops=[]
                )
            tell(worker, request)

        return told

    around("harness.isolation.sandbox:Worker.tell", allowing)


def _compilers_allowed() -> None:
    """Inductor's own trials of the processor, and headers compiled for many kernels, take longer than one kernel."""
    put("harness.worker.walls.guard:Guard._forbid_compile", nothing)
    os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
    os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    _processes_allowed()


def _any_processes() -> None:
    put("harness.isolation.hold:Hold.require_alone", nothing)


def _processes_allowed() -> None:
    put("harness.worker.session:refuse_processes", nothing)


def _any_settings() -> None:
    from contextlib import nullcontext

    put("harness.worker.observed:kept", lambda _model: nullcontext())
    put("harness.worker.observed:require_of_this_mode", nothing)


def _symbols_not_read() -> None:
    put("harness.worker.session:require_no_door", nothing)


def _nothing_said_at_once() -> None:
    put("harness.protocol.testimony:Testimony.checked", lambda _testimony, reply: reply)
    put("harness.protocol.testimony:Testimony.read", nothing)


# ---------------------------------------------------------------------- isolation


def _no_landlock() -> None:
    put("harness.worker.walls.limits:restrict_writes", nothing)


def _no_seccomp() -> None:
    put("harness.worker.walls.limits:refuse_userfaultfd", nothing)


def _judge_open_to_its_user() -> None:
    """The judge, and what workers are forked from, are open to processes of their user, and the seed is in sight."""
    put("harness.process:protect_judge", nothing)


def _any_work_on_the_device() -> None:
    put("harness.device.cuda:CudaDevice.wait_until_idle", lambda *_: 0.0)


def _any_work_beside_the_clock() -> None:
    put("harness.timing.concluding:refuse_work_beside_the_clock", nothing)


def _any_time() -> None:
    put("harness.timing.concluding:is_impossible", lambda *_: False)


def _not_held() -> None:
    """A contender runs on while others are timed."""
    put("harness.isolation.hold:Hold.pause", nothing)
    put("harness.isolation.hold:Hold.resume", nothing)


def _no_limit(name: str) -> Callable[[], None]:
    return lambda: put(f"harness.isolation.holdings:Holdings.{name}", nothing)


WALLS = {
    "values": Wall("outputs are compared with the reference, and stay", judge=_both(_no_values, _no_more_calls)),
    "timed values": Wall("outputs of timed calls are compared with the reference", judge=_no_timed_values),
    "timed values and device": Wall(
        "outputs of timed calls are compared, and contenders leave the device idle",
        judge=_both(_no_timed_values, _any_work_on_the_device),
    ),
    "timed values, called again, device": Wall(
        "outputs of timed calls are compared, further calls, and contenders leave the device idle",
        judge=_both(_no_timed_values, _no_more_calls, _any_work_on_the_device),
    ),
    "timed values and impossible times": Wall(
        "outputs of timed calls are compared, and no call is faster than its bytes can be moved",
        judge=_both(_no_timed_values, _any_time),
    ),
    "inputs and timed values": Wall(
        "inputs are the same after a call, and outputs of timed calls are compared",
        judge=_both(_no_look_at_inputs, _no_more_calls, _no_timed_values),
    ),
    "timed values, called again, landlock": Wall(
        "outputs of timed calls are compared, further calls, and writes in own folders only",
        judge=_both(_no_timed_values, _no_more_calls),
        worker=_no_landlock,
    ),
    "timed values and beside": Wall(
        "outputs of timed calls are compared, and little work beside the clock",
        judge=_both(_no_timed_values, _any_work_beside_the_clock),
    ),
    "hold and beside": Wall(
        "contenders stand still while others are timed, and work little beside the clock",
        judge=_both(_not_held, _any_work_beside_the_clock),
    ),
    "timed values, beside, called again": Wall(
        "outputs of timed calls are compared, little work beside the clock, and further calls",
        judge=_both(_no_timed_values, _any_work_beside_the_clock, _no_more_calls),
    ),
    "timed values, called again": Wall(
        "outputs of timed calls are compared, and further calls", judge=_both(_no_timed_values, _no_more_calls)
    ),
    "timed masks": Wall("masks of timed calls have to be random", judge=_no_masks),
    "masks": Wall("masks have to be random", judge=_any_masks),
    "called again": Wall("further calls, on other data, weights and rows", judge=_no_more_calls),
    "form": Wall("outputs have the reference's type, dtype, shape and strides", judge=_no_form),
    "form and values": Wall("their form, and comparisons", judge=_both(_no_form, _no_values)),
    "inputs": Wall("inputs are the same after a call", judge=_both(_no_look_at_inputs, _no_more_calls)),
    "findings": Wall("what the emulator finds", judge=_no_findings, without=("--check",)),
    "findings and values": Wall(
        "what the emulator finds, and comparisons",
        judge=_both(_no_findings, _no_values),
        without=("--check",),
    ),
    "operators": Wall(
        "forbidden operators and compilers", judge=_all_operators_allowed, worker_loaded=_compilers_allowed
    ),
    "operators and values": Wall(
        "forbidden operators, some of which are less exact than what is compared with",
        judge=_both(_all_operators_allowed, _no_values),
        worker_loaded=_compilers_allowed,
    ),
    "settings": Wall("a call leaves PyTorch's settings as they were", worker_loaded=_any_settings),
    "symbols": Wall("what an extension takes from other libraries", worker_loaded=_symbols_not_read),
    "testimony": Wall("what happened is told at once", judge=_nothing_said_at_once),
    "judge": Wall(
        "the judge's memory and its seed are out of sight",
        judge=_judge_open_to_its_user,
        options=("--isolation", "basic"),
    ),
    "landlock": Wall("writes in own folders only", worker=_no_landlock, options=("--isolation", "landlock")),
    "seccomp": Wall("no userfaultfd", worker=_no_seccomp),
    "processes": Wall(
        "no processes beside the one that makes the calls", judge=_any_processes, worker_loaded=_processes_allowed
    ),
    "hold": Wall("contenders stand still while others are timed", judge=_not_held),
    "device": Wall("contenders leave the device idle", judge=_any_work_on_the_device),
    "beside": Wall("little work beside the clock", judge=_any_work_beside_the_clock),
    "memory": Wall("the limit on memory", judge=_no_limit("_check_memory")),
    "disk": Wall("the limit on files", judge=_no_limit("_check_disk")),
}


# ---------------------------------------------------------------------- the processes


def command(wall: str) -> list[str]:
    """What starts eval.py without `wall`; its arguments follow."""
    return [sys.executable, "-m", "tests.hostile.walls", "judge", wall]


def _start_workers_through_this_file(wall: str) -> None:
    from harness.isolation import launch

    def popen(words: list[str], **options: Any) -> Any:
        at = words.index("-m")
        through = ["-m", "tests.hostile.walls", "worker", wall, words[at + 1]]
        return launch_subprocess.Popen([*words[:at], *through, *words[at + 2 :]], **options)

    launch_subprocess = launch.subprocess
    own = {name: getattr(launch_subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
    launch.subprocess = SimpleNamespace(**own, Popen=popen)  # type: ignore[assignment]


def _judge(wall: Wall, name: str, arguments: list[str]) -> None:
    """What eval.py is, without the wall."""
    wall.judge()
    _start_workers_through_this_file(name)
    sys.argv = [str(ROOT / "eval.py"), *(word for word in arguments if word not in wall.without), *wall.options]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _worker(wall: Wall, module: str, arguments: list[str]) -> None:
    """What `python -m module` is, without the wall."""
    wall.worker()

    def then(load: Callable[..., None]) -> Callable[..., None]:
        def loading(*given: Any) -> None:
            load(*given)
            wall.worker_loaded()

        return loading

    around("harness.worker.process:load", then)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """`judge WALL ARGUMENT…`, or `worker WALL MODULE ARGUMENT…`."""
    kind, name, *rest = sys.argv[1:]
    if kind == "judge":
        os.environ.setdefault("PYTHONPATH", "")
        _judge(WALLS[name], name, rest)
    else:
        _worker(WALLS[name], rest[0], rest[1:])


if __name__ == "__main__":
    main()
