"""The data of one case's timed rounds, put together: the pool, what comes out of it, and what must come out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.device.base import Device
from harness.oracle.products import multiplies_matrices
from harness.protocol.wire import TensorRef
from harness.timing.choose_changes import ChangeTrial, choose_inputs, independent_rows
from harness.timing.data_set import CaseOutputs, DataSet
from harness.timing.expected_rounds import ExpectedRounds
from harness.timing.input_pool import InputPool
from harness.timing.pooled_input import PooledInput
from harness.timing.reference import Reference, in_float64


@dataclass(frozen=True)
class CaseData:
    """What timed rounds of one case need."""

    reference: Reference
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
    generator = torch.Generator(device.torch_device).manual_seed(secrets.randbits(63))
    reference = in_float64(model)
    outputs = CaseOutputs.of(sets, independent_rows(reference, sets[0], generator, device.torch_device))
    trial = ChangeTrial(reference, sets[0], outputs, generator, early)
    inputs = choose_inputs(device, sets, buffers, trial, linear=multiplies_matrices(model, sets[0].inputs))
    return CaseData(
        reference,
        inputs,
        InputPool(device, inputs, len(buffers), len(sets), generator, early),
        outputs,
        ExpectedRounds(reference, inputs, outputs),
    )
