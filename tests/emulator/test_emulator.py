"""Kernels executed without a GPU: real builds, real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_layernorms_agree_with_torch_in_every_order(emulator, order):
    answer = emulator.run(HERE / "layernorms.py", "--order", order, "--seed", "5")
    assert answer["findings"] == []
    assert "error" not in answer
    assert len(answer["result"]) == 18
    wrong = {name: error for name, error in answer["result"].items() if not error < 1e-5}
    assert wrong == {}


def test_the_device_is_cuda_to_torch(emulator):
    answer = emulator.run(HERE / "device.py")
    assert "error" not in answer, answer
    result = answer["result"]
    assert result["override on CUDA"] == "called"
    assert result["override on CPU through the fallback"] == "called"
    assert result["mixed devices"].startswith("Expected all tensors to be on the same device")
    assert result["second device"] == "refused"
    failed = [name for name, value in result["true"].items() if value is not True]
    assert failed == []


def test_activate_after_torch_is_refused(tmp_path):
    import torch  # noqa: F401

    from harness.device import emulator as module

    with pytest.raises(RuntimeError, match="torch is already imported"):
        module.activate(tmp_path)
