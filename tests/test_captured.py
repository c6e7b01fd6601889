"""Captured times: graphs of calls in a worker, rounds of them, and what becomes of calls that cannot be captured.

A graph is a stand-in here that repeats its call when it is launched; a GPU's own graphs are tried where there is one.
"""

import json
import os
import socket
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from harness import notes
from harness.errors import Inconclusive, NotCaptured, SubmissionError
from harness.protocol.handshake import Handshake, PeerStatus
from harness.protocol.wire import Capture, Captured, Play
from harness.reasons import Reason
from harness.timing import contest
from harness.timing.case_times import CaseTimes, timing_result
from harness.timing.concluding import captured_fault
from harness.timing.rounds.contender import Contender
from harness.worker import graphs as worker_graphs
from harness.worker.graphs import CapturedCalls
from harness.worker.memory import describe
from harness.worker.placement import Placement
from harness.worker.rounds import Rounds
from tests.helpers import run_eval

NO_GPU = not torch.cuda.is_available()


class Device:
    """Calls in place of a GPU's graphs. `capturing` is what is captured now; `launched` are buffers in their order."""

    def __init__(self, staged):
        self.staged = staged
        self.capturing = None
        self.captured, self.launched, self.ended, self.moved_on = [], [], [], []
        self.refuses = ""
        self.moves = False  # whether the parameters lie elsewhere each time

    def call(self, tensors):
        """A call on a buffer, which writes where the call that was captured on it wrote."""
        number = next(i for i, buffer in enumerate(self.staged.buffers) if buffer is tensors)
        if self.capturing is not None:
            if self.refuses:
                raise RuntimeError(self.refuses)
            self.capturing.buffer = number
            self.captured.append(number)
        return [torch.full((4,), -1.0)] if self.capturing else [3 * tensors[0]]


def export(tensors, handles):
    """As memory on the host does it."""
    return [describe(tensor) for tensor in tensors]


@pytest.fixture
def device(monkeypatch):
    arena = [[torch.full((4,), float(i))] for i in range(6)]
    staged = SimpleNamespace(buffers=arena, gradients=False, outputs=[], null_kernel=None, has_prepared=False)
    device = Device(staged)
    staged.move_parameters = lambda: device.moves
    staged.call = device.call

    class Graph:
        def __init__(self, keep_graph):
            assert keep_graph
            self.buffer = None

        def capture_begin(self, pool, capture_error_mode):
            device.capturing = self

        def capture_end(self):
            device.capturing = None

        def replay(self):
            device.moved_on.append(self.buffer)

        def raw_cuda_graph(self):
            return self.buffer

    def launch(executable, stream):
        for number in executable:
            device.launched.append(number)
            graphs._by_buffer[number].results[0].copy_(3 * arena[number][0])

    monkeypatch.setattr(worker_graphs, "_CUDAGraph", Graph)
    monkeypatch.setattr(worker_graphs, "_GIVES_GRAPHS", True)
    monkeypatch.setattr(worker_graphs, "_restore_generator", lambda: device.ended.append("generator"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(worker_graphs, "driver", SimpleNamespace(
        chain_graphs=tuple, upload_graph=lambda *_: None, launch_graph=launch, destroy_graph=device.ended.append,
    ))  # fmt: skip
    memory = SimpleNamespace(synchronize=lambda: None, trim=lambda: None, wake=lambda: None, export=export)
    graphs = CapturedCalls(staged, memory)
    return SimpleNamespace(device=device, staged=staged, graphs=graphs, memory=memory)


def test_a_buffer_is_captured_once_and_forgotten_when_it_is_asked_for_no_more(device):
    captured = [device.graphs.capture(Capture(buffers)) for buffers in ([0, 1], [1, 2, 3], [1, 2, 3])]
    assert [said.why for said in captured] == ["", "", ""]
    assert device.device.captured == [0, 1, 2, 3]
    assert sorted(device.graphs._by_buffer) == [1, 2, 3]


def test_the_judge_is_told_at_once_where_all_new_graphs_write(device):
    """A round launches some of them, and memory that it meets first is mapped after it."""
    first, second = (device.graphs.capture(Capture(buffers)) for buffers in ([0, 1], [1, 2, 3]))
    written = {n: call.results[0].data_ptr() for n, call in device.graphs._by_buffer.items()}
    assert [output.address for (output,) in first.outputs][1] == written[1] and len(first.outputs) == 2
    assert [output.address for (output,) in second.outputs] == [written[2], written[3]]


def test_where_parameters_moved_calls_are_captured_again_while_the_old_graphs_keep_their_memory(device):
    device.graphs.capture(Capture([0, 1]))
    device.graphs.put_in_a_row([0, 1])
    old = [weakref.ref(call.captured) for call in device.graphs._by_buffer.values()]
    device.device.moves, alive = True, []
    call = device.staged.call
    device.staged.call = lambda tensors: (alive.append([ref() is not None for ref in old]), call(tensors))[1]
    assert not device.graphs.capture(Capture([0, 1])).why
    assert device.device.captured == [0, 1, 0, 1]
    assert len(alive) >= 2 and all(all(graphs) for graphs in alive)
    assert [ref() for ref in old] == [None, None]
    assert device.device.ended == [(0, 1)], "the row that held the old addresses"


def test_a_call_that_cannot_be_captured_says_why_and_leaves_nothing_behind(device):
    device.device.refuses = "CUDA error: operation not permitted when stream is capturing\nand much more"
    said = device.graphs.capture(Capture([0, 1]))
    assert said == Captured(why="CUDA error: operation not permitted when stream is capturing")
    assert (device.graphs._by_buffer, device.device.capturing, device.device.ended) == ({}, None, ["generator"])
    device.device.refuses = ""
    assert not device.graphs.capture(Capture([0])).why


def test_an_old_torch_captures_nothing(device, monkeypatch):
    monkeypatch.setattr(worker_graphs, "_GIVES_GRAPHS", False)
    assert "2.8 and later do" in device.graphs.capture(Capture([0])).why


def test_a_captured_round_is_one_launch_in_the_order_of_capture_and_answers_in_the_judges(device):
    judge, theirs, quiet = Handshake.create(spins=False), *socket.socketpair()
    page, bell = judge.fds
    worker = Handshake(os.dup(page), socket.socket(fileno=os.dup(bell)), spins=False)
    rounds = Rounds(device.staged, device.graphs, device.memory, worker, list)
    peer = PeerStatus(theirs.fileno(), lambda: False, lambda: None)
    device.graphs.capture(Capture([1, 3, 4]))
    device.graphs.capture(Capture([4, 0, 3, 2]))  # 3 and 4 before 0 and 2
    with ThreadPoolExecutor(1) as pool:
        for order, in_order_of_capture in (([2, 0, 3], [3, 0, 2]), ([0, 3], [3, 0])):
            device.device.launched.clear()
            playing = pool.submit(rounds.play, Play(judge.number, [4], 0.0, order))
            assert judge.wait_until_ready(10, peer)
            assert device.device.launched == []  # nothing before the judge says so
            judge.hand_out(order[:1], 10, peer)
            addresses = playing.result(10).addresses
            assert device.device.launched == in_order_of_capture
            assert addresses == [[t.data_ptr() for t in result] for result in device.staged.outputs]
            assert [float(result[0][0]) for result in device.staged.outputs] == [3.0 * number for number in order]
    assert device.device.moved_on == [4, 4]  # graphs of spare buffers warm up, and move random numbers on
    assert device.device.ended == [(3, 0, 2)]
    device.graphs.forget()
    assert device.device.ended == [(3, 0, 2), (3, 0)]
    for end in (judge, worker, theirs, quiet):
        end.close()


# ---------------------------------------------------------------------- what is concluded


@pytest.mark.parametrize(
    "error",
    [
        NotCaptured("CUDA error: it waits"),
        Inconclusive(Reason.TOO_NOISY, "busy"),
        SubmissionError(Reason.WRONG_WHEN_TIMED, "a wrong element"),
        SubmissionError(Reason.NOT_RANDOM, "one mask for all"),
    ],
)
def test_what_is_wrong_with_graphs_alone_costs_the_captured_time_and_no_verdict(error):
    assert captured_fault(error, has_ended=False) == error.message


def test_graphs_that_find_no_memory_cost_the_captured_time_and_a_worker_that_ends_for_memory_is_rejected():
    error = SubmissionError(Reason.OUT_OF_MEMORY, "CUDA error: out of memory")
    assert captured_fault(error, has_ended=False) == error.message
    with pytest.raises(SubmissionError, match="As CUDA graphs of its calls"):
        captured_fault(error, has_ended=True)


def test_memory_that_others_took_ends_more_than_the_graphs():
    error = Inconclusive(Reason.NOT_ENOUGH_MEMORY, "others filled it")
    with pytest.raises(Inconclusive) as raised:
        captured_fault(error, has_ended=False)
    assert raised.value is error


@pytest.mark.parametrize("reason", [Reason.CRASHED, Reason.INPUT_MODIFIED, Reason.IMPOSSIBLE_TIME, Reason.TIMED_OUT])
def test_all_else_rejects_and_says_that_it_was_in_graphs(reason):
    with pytest.raises(SubmissionError, match="As CUDA graphs of its calls: it is gone") as raised:
        captured_fault(SubmissionError(reason, "it is gone"), has_ended=False)
    assert raised.value.reason == reason


def contender(name, call_us):
    return Contender(
        name, None, None, calls=10, round_s=[10 * call_us / 1e6] * 9, null_s=[0.0] * 9, issue_us=[1.0] * 9,
        finished=True,
    )  # fmt: skip


def times(own_us, captured=None, **baselines_us):
    contenders = {"submission": contender("submission", own_us)}
    contenders |= {name: contender(name, us) for name, us in baselines_us.items()}
    return CaseTimes(
        part="step", contenders=contenders, launch_bound=False, late_bytes=0, written_bytes=0, device_times={},
        bytes_min=1, notes=[], versions=dict.fromkeys(baselines_us, ""), captured=captured,
    )  # fmt: skip


def test_each_kind_is_compared_with_the_fastest_baseline_of_its_kind():
    captured = times(10.0, eager=30.0, compile=12.0)
    called = timing_result(times(20.0, captured, eager=40.0, compile=60.0), bandwidth=1e12)
    assert called.speedup_over_best.ratio == pytest.approx(2.0)
    assert called.captured.speedup_over_best.ratio == pytest.approx(1.2)
    assert called.captured.baselines["eager"].speedup.ratio == pytest.approx(3.0)
    assert called.captured.floor_us == called.floor_us


def test_one_note_names_all_cases_on_which_something_cannot_be_captured():
    first, second = (notes.NotCaptured(implementation="eager", why="it waits", cases=[name]) for name in "ab")
    other = notes.NotCaptured(implementation="eager", why="too noisy", cases=["b"])
    between = notes.Sentence(text="between")
    assert contest.together([first, between, second, other]) == [
        notes.NotCaptured(implementation="eager", why="it waits", cases=["a", "b"]), between, other,
    ]  # fmt: skip


# ---------------------------------------------------------------------- on a GPU

FORWARD = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x):
        dims = tuple(range(x.dim() - self.weight.dim(), x.dim()))
        y = x - x.mean(dims, keepdim=True)
        return y * torch.rsqrt(y.square().mean(dims, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        {forward}
"""


@pytest.mark.skipif(NO_GPU, reason="no GPU: nothing can be captured")
@pytest.mark.parametrize("moves", [False, True], ids=["parameters_stay", "parameters_move"])
def test_on_a_gpu_calls_are_right_in_any_order_although_they_share_memory_for_what_they_need_meanwhile(moves):
    buffers = [[torch.full((1 << 22,), float(i), device="cuda")] for i in range(8)]
    model = torch.nn.ParameterList([torch.ones(1 << 22, device="cuda")])
    placement = Placement(model)
    staged = SimpleNamespace(
        buffers=buffers,
        gradients=False,
        outputs=[],
        move_parameters=lambda: moves and placement.move(),
        call=lambda tensors: [((tensors[0] + model[0]) * 2 - 1) * 3],
    )
    memory = SimpleNamespace(synchronize=torch.cuda.synchronize, trim=torch.cuda.empty_cache, export=export)
    graphs = CapturedCalls(staged, memory)
    for asked_for in ([0, 1, 2, 3, 4], [2, 3, 4, 5, 6, 7], [7, 0, 2, 5, 1]):
        assert not graphs.capture(Capture(asked_for)).why
        row = graphs.put_in_a_row(asked_for[::-1])
        row.launch()
        torch.cuda.synchronize()
        wanted = [((number + 1) * 2 - 1) * 3 for number in asked_for[::-1]]
        assert [result[0].unique().tolist() for result in row.results] == [[number] for number in wanted]
    graphs.forget()


@pytest.mark.skipif(NO_GPU, reason="no GPU: nothing can be captured")
@pytest.mark.parametrize(
    "forward, why",
    [
        pytest.param("return self.right(x)", "", id="honest"),
        pytest.param("torch.cuda.synchronize(); return self.right(x)", "not permitted", id="waits"),
        pytest.param(
            "if torch.cuda.is_current_stream_capturing(): return self.kept * 1\n"
            "        self.kept = self.right(x); return self.kept",
            "wrong element",
            id="captures something else",
        ),
        pytest.param(
            "import harness.worker.graphs as graphs; graphs.Row.launch = lambda row: None; return self.right(x)",
            "wrong element",
            id="launches nothing",
        ),
    ],
)
def test_on_a_gpu_what_can_be_captured_has_both_times_and_what_cannot_says_why(tmp_path, forward, why):
    file = tmp_path / "some.py"
    file.write_text(FORWARD.replace("{forward}", forward))
    run = run_eval(file, "--problem", "layernorm", "--quick", "-k", "8192x1024")
    evaluation = run.results["evaluations"][0]
    assert evaluation["status"] == "accepted", run.stdout
    case = next(case for case in evaluation["cases"] if case["name"] == "8192x1024")
    said = [note for note in evaluation["notes"] if "has no captured time" in note]
    if why:
        assert case["timing"]["captured"] is None and evaluation["captured"] is None
        assert any(why in text for text in said), json.dumps(evaluation["notes"])
    else:
        assert said == []
        assert case["timing"]["captured"]["baselines"]["eager"]["speedup"]["ratio"] > 0
        assert evaluation["captured"]["geomean_speedup"] > 0
