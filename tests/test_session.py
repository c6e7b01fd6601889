"""The parts of a worker's session: what is staged, observed and timed, and failures in words."""

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from harness.build.extension import NOT_EMULATED, BuildFailed, Unsupported
from harness.device.driver import DriverError
from harness.device.memory_file import MemoryFile
from harness.protocol.channel import Channel
from harness.protocol.handshake import Handshake, PeerStatus
from harness.protocol.values import encode_value
from harness.protocol.wire import (
    ArenaRef,
    Construct,
    Done,
    Load,
    Name,
    Play,
    Run,
    Stage,
    TensorRef,
)
from harness.records import Finding
from harness.worker.calls import InAContainer
from harness.worker.failures import MAX_TEXT, Failures
from harness.worker.graphs import CapturedCalls
from harness.worker.loading import Implementation
from harness.worker.memory import HostMemory
from harness.worker.observed import ObservedCalls
from harness.worker.observer import NoObserver
from harness.worker.parameters import CannotCarry
from harness.worker.rounds import Rounds
from harness.worker.staged import Staged

FILE = Path("a.py")
RUN, CONSTRUCT = Run(buffer=0), Construct(ArenaRef(1), None, [], "")
REF = TensorRef(0, [4], [1], "float32")


class Seeing(NoObserver):
    """An observer that writes down what it is told, and has a finding."""

    def __init__(self):
        self.said = []

    def begin(self, request, inputs):
        self.said.append(("begin", request.order, len(inputs)))

    def end(self, inputs, result):
        self.said.append(("end", len(inputs), len(result)))

    def take_findings(self):
        return [Finding("data_race", "two threads wrote")]


def failures(forbidden=(), observer=None, on_gpu=False):
    return Failures(FILE, lambda: list(forbidden), observer or NoObserver(), on_gpu=on_gpu)


@pytest.mark.parametrize(
    "error, request_, reason, message",
    [
        (ValueError("no"), RUN, "raised", "ValueError: no"),
        (ValueError(" "), RUN, "raised", "ValueError: no message"),
        (ValueError("no"), CONSTRUCT, "load_failed", "ValueError: no"),
        (CannotCarry("no place"), CONSTRUCT, "parameters_not_carried", "no place"),
        (InAContainer("Return it alone."), RUN, "wrong_output", "Return it alone."),
        (torch.cuda.OutOfMemoryError("full"), RUN, "out_of_memory", "OutOfMemoryError: full"),
        (Unsupported("mine.py:3: no"), CONSTRUCT, "unsupported_by_emulator", "mine.py:3: no"),
        (RuntimeError(f"{NOT_EMULATED}x."), RUN, "unsupported_by_emulator", f"RuntimeError: {NOT_EMULATED}x."),
    ],
)
def test_an_exception_has_a_reason(error, request_, reason, message):
    said = failures().of_answer(error, request_)
    assert (said.reason, said.message) == (reason, message)


@pytest.mark.parametrize(
    "error, reason",
    [
        (BuildFailed("x"), "build_failed"),
        (Unsupported("x"), "unsupported_by_emulator"),
        (SystemExit("x"), "load_failed"),
    ],
)
def test_so_has_one_that_came_while_loading(error, reason):
    assert failures().of_loading(error).reason == reason


def test_an_error_of_cuda_is_a_fault_on_a_gpu_alone():
    error = RuntimeError("CUDA error: an illegal memory access")
    assert failures(on_gpu=True).of_device(error).reason == "cuda_fault"
    assert failures().of_device(error).reason == "raised"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"),
        RuntimeError("CUDA driver error: out of memory"),
        DriverError("cuGraphInstantiateWithFlags failed: CUDA_ERROR_OUT_OF_MEMORY"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
)
def test_memory_that_cuda_itself_lacks_is_no_fault(error):
    assert failures(on_gpu=True).of_answer(error, RUN).reason == "out_of_memory"
    assert failures(on_gpu=True).of_device(error).reason == "out_of_memory"


def test_a_forbidden_operator_is_the_reason_whatever_was_raised():
    said = failures(forbidden=["aten::native_layer_norm"], on_gpu=True).of_device(
        RuntimeError("CUDA error: other words")
    )
    assert said.reason == "forbidden_op"
    assert said.message == "aten::native_layer_norm must not run in a submission: it is what the submission replaces."


def test_a_failure_has_the_device_s_findings_and_a_bounded_text():
    said = failures(observer=Seeing()).of_device(RuntimeError("x" * 2 * MAX_TEXT))
    assert [finding.kind for finding in said.findings] == ["data_race"]
    assert len(said.message) == len("RuntimeError: ") + MAX_TEXT


REFERENCE = """
import torch

SEEN = []

class Model(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), float(factor)))

    def forward(self, x):
        SEEN.append(int(x[0]))
        return x * self.weight
"""


@pytest.fixture
def staged(tmp_path):
    """A model that multiplies by 3, on three buffers of four equal numbers: 0, 1 and 2."""
    path = tmp_path / "reference.py"
    path.write_text(REFERENCE)
    file = MemoryFile()
    arena = ArenaRef(file.grow(3 * 16))
    memory = HostMemory(file.fd)
    refs = [replace(REF, offset=16 * i) for i in range(3)]
    for i, ref in enumerate(refs):
        memory.tensor(arena, ref).fill_(float(i))
    load = Load("eager", bytes(path), "")
    implementation = Implementation(load, memory)
    implementation.load()
    staged = Staged(implementation, memory)
    assert staged.construct(Construct(arena, encode_value((3,)), [], "")) == Done()
    assert staged.stage(Stage(arena, [[ref] for ref in refs], [REF])) == Done()
    return staged


def test_an_observed_call_is_told_to_the_observer(staged):
    observer = Seeing()
    ran = ObservedCalls(staged, staged._memory, observer, lambda: ["aten::x"]).run(Run(buffer=2, order="reverse"))
    assert observer.said == [("begin", "reverse", 1), ("end", 1, 1)]
    assert [output.shape for output in ran.outputs] == [[4]]
    assert staged.outputs[0][0].tolist() == [6.0] * 4
    assert (ran.inputs, ran.forbidden) == ([], ["aten::x"])
    assert [finding.kind for finding in ran.findings] == ["data_race"]


def test_a_round_calls_what_is_handed_out_and_says_where_the_results_lie(staged):
    judge, theirs, quiet = Handshake.create(spins=False), *socket.socketpair()
    page, bell = judge.fds
    worker = Handshake(os.dup(page), socket.socket(fileno=os.dup(bell)), spins=False)
    rounds = Rounds(staged, CapturedCalls(staged, staged._memory), staged._memory, worker, list)
    peer = PeerStatus(theirs.fileno(), lambda: False, lambda: None)
    with ThreadPoolExecutor(1) as pool:
        for number, buffers in ((0, [2, 0]), (3, [1])):
            playing = pool.submit(rounds.play, Play(judge.number, [0]))
            assert judge.number == number
            assert judge.wait_until_ready(10, peer)
            judge.hand_out(buffers, 10, peer)
            addresses = playing.result(10).addresses
            assert addresses == [[t.data_ptr() for t in result] for result in staged.outputs]
            assert [int(result[0][0]) for result in staged.outputs] == [3 * buffer for buffer in buffers]
    named = rounds.name(Name())
    assert [[output.address for output in outputs] for outputs in named.outputs] == addresses
    seen = sys.modules["problem"].SEEN
    assert seen == [0, 2, 0, 0, 1]  # of each round its warm-up first
    for end in (judge, worker, theirs, quiet):
        end.close()


def test_what_was_staged_is_forgotten(staged):
    staged.forget()
    assert (staged.model, staged.call, staged.buffers, staged.outputs) == (None, None, [], [])


def test_a_reference_may_lie_in_a_file_whose_name_is_no_utf8(tmp_path):
    path = tmp_path / os.fsdecode(b"r\xe9ference.py")
    path.write_text(REFERENCE)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours, judge=True).send(Load("eager", bytes(path), ""))
        load = Channel(theirs, judge=False).receive(10)
    memory = HostMemory(MemoryFile().fd)
    implementation = Implementation(load, memory)
    implementation.load()
    model = implementation.model(encode_value((3,)), "", [[4]])
    assert model(torch.ones(4)).tolist() == [3.0] * 4


@pytest.mark.parametrize("kind, again", [("compile", True), ("reduce-overhead", True), ("eager", False)])
def test_what_was_compiled_serves_again_for_inputs_of_the_same_shapes_alone(tmp_path, kind, again):
    path = tmp_path / "reference.py"
    path.write_text(REFERENCE)
    file = MemoryFile()
    memory = HostMemory(file.fd)
    implementation = Implementation(Load(kind, bytes(path), ""), memory)
    implementation.load()
    staged = Staged(implementation, memory)

    def construct(factor, shapes):
        request = Construct(ArenaRef(file.grow(16)), encode_value((factor,)), [], "", shapes=shapes)
        assert staged.construct(request) == Done()
        return staged._built[0].model

    first, longer, other = construct(3, [[4]]), construct(3, [[8]]), construct(2, [[4]])
    assert len({id(first), id(longer), id(other)}) == 3
    assert (construct(3, [[4]]) is first) == again
    assert (construct(3, [[8]]) is longer) == again


def test_the_null_kernel_has_a_model_once_its_results_are_known(tmp_path):
    memory = HostMemory(MemoryFile().fd)
    staged = Staged(Implementation(Load("null_kernel", bytes(tmp_path / "none.py"), ""), memory), memory)
    assert staged.construct(CONSTRUCT) == Done()
    assert staged.null_kernel is None
    assert staged.stage(Stage(ArenaRef(1), [[]], [REF])) == Done()
    assert staged.null_kernel is not None
    assert [tuple(output.shape) for output in staged.call([])] == [(4,)]
