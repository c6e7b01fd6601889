"""CUDA graphs: what a captured stream records is done in order at each launch, and errors are CUDA's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
INVALIDATED = "cudaErrorStreamCaptureInvalidated"


@pytest.fixture(scope="module", params=[(), ("--check",)], ids=["fast", "check"])
def answer(request, emulator) -> dict[str, Any]:
    found = emulator.run(HERE / "graphs.py", *request.param)
    assert "error" not in found, found["error"]
    return {**found["result"], "check": bool(request.param), "findings": found["findings"]}


def test_recorded_work_is_done_by_each_launch_and_never_before(answer):
    assert [name for name, value in answer["true"].items() if value is not True] == []


def test_what_a_capture_does_not_allow_gets_cudas_error_and_ends_the_capture(answer):
    assert answer["refused"] == [
        "cudaErrorStreamCaptureUnsupported",  # the legacy stream
        "cudaErrorIllegalState",  # an end without a beginning
        f"cudaErrorStreamCaptureUnsupported {INVALIDATED}",  # the host would wait
        f"cudaErrorStreamCaptureUnsupported {INVALIDATED}",
        f"cudaErrorStreamCaptureUnsupported {INVALIDATED}",  # cudaMalloc
        f"cudaErrorStreamCaptureImplicit {INVALIDATED}",  # the legacy stream would wait
        f"cudaErrorStreamCaptureIsolation {INVALIDATED}",  # an event of a stream that is not captured
        f"cudaErrorCapturedEvent {INVALIDATED}",
        f"cudaErrorCapturedEvent {INVALIDATED}",
        "cudaErrorIllegalState cudaSuccess usable",  # a second beginning
        "cudaSuccess cudaErrorStreamCaptureUnjoined",
        f"cudaErrorStreamCaptureUnmatched {INVALIDATED}",  # in the stream that has joined
    ]


def test_python_is_told_that_a_capture_cannot_wait(answer):
    said = "CUDA error: operation not permitted when stream is capturing"
    assert all(message.startswith(said) for message in answer["waits"][:2]), answer["waits"]
    assert "during capture" in answer["waits"][2] or said in answer["waits"][2]


def test_a_defect_is_found_when_the_graph_is_launched(answer):
    assert "CUDA emulator: " in answer["overrun"]
    finding = next(f for f in answer["findings"] if f["kind"] == "out_of_bounds")
    assert finding["kernel"] == "add"


def test_branches_that_nothing_joins_in_time_race(answer):
    assert ("Data race" in answer["unjoined"]) == answer["check"]


def test_what_cannot_be_recorded_is_unsupported_and_no_defect(answer):
    said = "CUDA emulator: The emulator does not support cudaMallocAsync in a captured stream."
    assert answer["unsupported"].startswith(said)
    assert answer["findings"][-1]["kind"] == "unsupported_by_emulator"
