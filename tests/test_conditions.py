"""What NVML tells of a GPU, by a stand-in for its module, and what becomes of it."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from harness import environment
from harness.device import nvml
from harness.device.cuda import CudaDevice
from harness.device.nvml import NoNvml, Seen
from harness.notes import Disturbed
from harness.records import ClockLimit
from harness.report.formats import terminal
from harness.report.view import View
from harness.report.words import conditions, sentence
from harness.timing import concluding
from harness.timing.rounds.conditions import Lookout, are_spoiled, summary
from harness.verdict import Results
from tests.sample_results import FAST, UNTIMED, seen

UUID = "b5a4c0d2-0d7b-4f8b-9a39-0a2f6a1c2e11"


class NotSupported(Exception):
    def __str__(self):
        return "Not Supported"


class Nvml(SimpleNamespace):
    """The module pynvml with one GPU. `unsupported` holds names of questions that it has no answer to."""

    NVMLError = NotSupported
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, reasons=0x4, pids=(), unsupported=()):
        self.reasons, self.pids, self.unsupported = reasons, list(pids), set(unsupported)
        self.handles = []

    def __getattr__(self, name):
        answers = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: self.handles.append(uuid) or "gpu",
            "nvmlDeviceGetHandleByPciBusId": lambda place: self.handles.append(place) or "gpu",
            "nvmlDeviceGetClockInfo": lambda gpu, clock: {1: 1980, 2: 3201}[clock],
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 50,
            "nvmlDeviceGetPowerUsage": lambda gpu: 577_250,
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: 700_000,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [SimpleNamespace(pid=pid) for pid in self.pids],
        }
        if name not in answers:
            raise AttributeError(name)

        def asked(*arguments):
            if name in self.unsupported:
                raise NotSupported
            return answers[name](*arguments)

        return asked


def properties(**more):
    return SimpleNamespace(pci_domain_id=0, pci_bus_id=0x9A, pci_device_id=0, **more)


@pytest.fixture
def found(monkeypatch):
    """Has `open_watch` find an NVML on a GPU of these properties; gives both to the caller."""

    def use(module, gpu=None):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu or properties(uuid=UUID))
        return module

    return use


# ---------------------------------------------------------------------- what NVML tells


def test_a_look_has_clocks_their_limits_heat_power_and_processes(found):
    found(Nvml(reasons=0x1 | 0x4 | 0x40, pids=[7, 8]))
    limits = frozenset({ClockLimit.IDLE, ClockLimit.POWER_CAP, ClockLimit.HARDWARE_THERMAL})
    assert nvml.open_watch(0).look() == Seen(1980, 3201, 50, 577.25, 700.0, limits, frozenset({7, 8}))


def test_processes_are_asked_for_again_once_others_could_have_come(found, monkeypatch):
    library = found(Nvml(reasons=0, pids=[7]))
    watch = nvml.open_watch(0)
    now = time.monotonic()
    monkeypatch.setattr(nvml.time, "monotonic", lambda: now)
    assert watch.look().processes == {7}
    library.pids = [7, 8]
    assert watch.look().processes == {7}
    now += 2 * nvml.PROCESSES_AGE_S
    assert watch.look().processes == {7, 8}


def test_the_bits_are_those_of_the_library():
    pynvml = pytest.importorskip("pynvml")
    named = {
        pynvml.nvmlClocksEventReasonGpuIdle: ClockLimit.IDLE,
        pynvml.nvmlClocksEventReasonApplicationsClocksSetting: ClockLimit.APPLICATION_CLOCKS,
        pynvml.nvmlClocksEventReasonSwPowerCap: ClockLimit.POWER_CAP,
        pynvml.nvmlClocksEventReasonHwSlowdown: ClockLimit.SLOWDOWN,
        pynvml.nvmlClocksEventReasonSyncBoost: ClockLimit.SYNC_BOOST,
        pynvml.nvmlClocksEventReasonSwThermalSlowdown: ClockLimit.THERMAL,
        pynvml.nvmlClocksEventReasonHwThermalSlowdown: ClockLimit.HARDWARE_THERMAL,
        pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: ClockLimit.POWER_BRAKE,
        pynvml.nvmlClocksEventReasonDisplayClockSetting: ClockLimit.DISPLAY_CLOCKS,
    }
    assert named.items() <= nvml.CLOCK_LIMITS.items()


def test_what_a_gpu_does_not_tell_is_none_and_the_rest_is_told(found):
    questions = ["nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses"]
    found(Nvml(reasons=0, unsupported=questions))
    assert nvml.open_watch(0).look() == Seen(1980, 3201, 50, None, None, frozenset(), None)


def test_an_old_driver_is_asked_by_the_old_name(found):
    found(Nvml(reasons=0x8, unsupported=["nvmlDeviceGetCurrentClocksEventReasons"]))
    assert nvml.open_watch(0).look().clock_limits == {ClockLimit.SLOWDOWN}


def test_the_gpu_is_found_by_its_uuid_else_by_its_place_on_the_bus(found):
    """Its number is another where CUDA_VISIBLE_DEVICES leaves GPUs out."""
    by_uuid, by_place = found(Nvml()), Nvml()
    nvml.open_watch(0)
    found(by_place, properties())
    nvml.open_watch(0)
    assert (by_uuid.handles, by_place.handles) == ([f"GPU-{UUID}"], ["00000000:9a:00.0"])


def test_without_package_library_or_permission_it_is_said_why(found):
    found(None)  # as Python has a module that cannot be imported
    with pytest.raises(NoNvml, match="package nvidia-ml-py is not installed"):
        nvml.open_watch(0)
    found(Nvml(unsupported=["nvmlInit"]))
    with pytest.raises(NoNvml, match="NVML says: Not Supported"):
        nvml.open_watch(0)
    found(Nvml(), SimpleNamespace())
    assert nvml.why_unwatched(0) == "This torch does not say which GPU it uses."


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_real_package_without_a_gpu_is_said_in_a_sentence(monkeypatch):
    pytest.importorskip("pynvml")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties(uuid=UUID))
    assert nvml.why_unwatched(0).startswith("NVML says: ")


def test_a_gpu_without_nvml_is_timed_and_looks_are_nothing():
    device = object.__new__(CudaDevice)
    device._watch = None
    assert device.look() is None
    lookout = Lookout(device)
    lookout.start()
    assert lookout.looks == [] and summary([lookout.looks] * 6, []) is None


def test_the_environment_says_once_that_nobody_saw_the_gpu(found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    found(Nvml())
    assert environment._unwatched() == {}
    found(None)
    said = environment._unwatched()["unwatched"]
    assert said.startswith("The GPU's clocks, heat and other processes were not seen. The package nvidia-ml-py")
    results = Results(schema="", environment={"unwatched": said}, evaluations=[FAST, FAST])
    assert terminal.render(results, View()).count(said) == 1
    untimed = Results(schema="", environment={"unwatched": said}, evaluations=[UNTIMED])
    assert "were not seen" not in terminal.render(untimed, View())


# ---------------------------------------------------------------------- whose processes


class Gpu:
    """Tells processes, each look those of the next set."""

    def __init__(self, *pids):
        self._pids = iter(pids)

    def look(self):
        pids = next(self._pids)
        return Seen(processes=None if pids is None else frozenset(pids))


def others(*pids):
    """The other processes of each look."""
    lookout = Lookout(Gpu(*pids))
    for _ in pids:
        lookout.look()
    return [look.processes for look in lookout.looks]


def test_the_judge_and_all_that_it_started_are_no_others():
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as worker:
        try:
            grandchild = int(worker.stdout.readline())
            judge, init = os.getpid(), 1
            assert others([judge, worker.pid, grandchild], [judge, init], [judge]) == [set(), {init}, set()]
        finally:
            subprocess.run(["kill", str(grandchild), str(worker.pid)], check=True)


def test_numbers_of_another_system_say_nothing():
    """As in a container, where NVML may tell the host's: the judge itself is not among them."""
    assert others([1], [], None) == [None, None, None]


# ---------------------------------------------------------------------- what is said of it


def looks(**more):
    given = {"clock_limits": frozenset(), "processes": frozenset(), **more}
    return [Seen(sm_mhz, 3201, 50, 300.0 + sm_mhz / 10, 700.0, **given) for sm_mhz in (1980, 1755)]


@pytest.mark.parametrize("limit", ClockLimit)
def test_heat_and_supply_spoil_rounds_and_the_power_cap_does_not(limit):
    spoils = {ClockLimit.SLOWDOWN, ClockLimit.THERMAL, ClockLimit.HARDWARE_THERMAL, ClockLimit.POWER_BRAKE}
    assert are_spoiled(looks(clock_limits=frozenset({limit}))) == (limit in spoils)


def test_other_processes_spoil_rounds_where_they_can_be_seen():
    assert are_spoiled(looks(processes=frozenset({4711})))
    assert not are_spoiled(looks(processes=None))


def test_what_was_seen_is_put_together():
    hot, shared = looks(clock_limits=frozenset({ClockLimit.THERMAL})), looks(processes=frozenset({4711}))
    capped = looks(clock_limits=frozenset({ClockLimit.POWER_CAP}))
    assert summary([capped, looks()[:1]], [hot, shared]) == seen(
        sm_mhz=(1755, 1980), power_w=498.0, clock_limits=[ClockLimit.POWER_CAP], sm_mhz_of_rounds=[1755, 1980],
        discarded=2, discarded_throttled=[ClockLimit.THERMAL], discarded_beside=[4711],
    )  # fmt: skip
    unknown = summary([[Seen()]], [])
    assert unknown == seen(
        sm_mhz=None, memory_mhz=None, temperature_c=None, power_w=None, power_limit_w=None, clock_limits=None,
        other_processes=None, sm_mhz_of_rounds=[None],
    )  # fmt: skip
    assert conditions(unknown) == "other processes cannot be seen"


def test_a_note_names_what_spoiled_rounds_that_count_and_a_rank_is_lost_by_whole_calls_alone():
    part = SimpleNamespace(case="a", shown="")
    spoiled = seen(clock_limits=[ClockLimit.POWER_CAP, ClockLimit.THERMAL], other_processes=[4711], discarded=5)
    (note,) = concluding.disturbed(spoiled, part)
    assert note == Disturbed(case="a", throttled=["thermal_slowdown"], processes=[4711], discarded=5)
    said = sentence(note)
    assert "the GPU was throttled (it was too hot for its driver) and process 4711 used it, too." in said
    assert "5 sets of rounds were played again" in said and said.endswith("The submission is not ranked.")
    (captured,) = concluding.disturbed(spoiled, part, captured=True)
    assert not captured.is_of_rank and "not ranked" not in sentence(captured)
    for clean in (None, seen(discarded=2, discarded_beside=[4711]), seen(other_processes=None, clock_limits=None)):
        assert concluding.disturbed(clean, part) == []
