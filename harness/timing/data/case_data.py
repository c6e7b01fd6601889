"""The data of one case's timed rounds, put together: the pool, what comes out of it, and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.device.base import Device
from harness.oracle.products import multiplies_matrices
from harness.protocol.wire import TensorRef
from harness.timing.data.choose_changes import ChangeTrial, choose_inputs, independent_rows
from harness.timing.data.data_set import CaseOutputs, DataSet
from harness.timing.data.exact import Exact, in_float64
from harness.timing.data.expected_rounds import ExpectedRounds
from harness.timing.data.input_pool import InputPool
from harness.timing.data.pooled_input import PooledInput


@dataclass(frozen=True)
class CaseData:
    """What timed rounds of one case need."""

    exact: Exact
    inputs: list[PooledInput]
    pool: InputPool
    outputs: CaseOutputs
    expected: ExpectedRounds


def prepare_case(
    device: Device,
    model: torch.nn.Module,
    sets: Sequence[DataSet],
    buffers: Sequence[Sequence[TensorRef]],
    early: int = 0,
) -> CaseData:
    """`model` is the reference. `buffers` lie in the device's arena, one after the other, and hold a tensor for each
    input. The first `early` inputs do not change when a round begins, see InputPool."""
    exact = in_float64(model)
    outputs = CaseOutputs.of(sets, independent_rows(exact, sets[0], device.torch_device))
    trial = ChangeTrial(exact, sets[0], outputs, early)
    inputs = choose_inputs(device, sets, buffers, trial, linear=multiplies_matrices(model, sets[0].inputs))
    return CaseData(
        exact,
        inputs,
        InputPool(device, inputs, len(buffers), len(sets), early),
        outputs,
        ExpectedRounds(exact, inputs, outputs),
    )
