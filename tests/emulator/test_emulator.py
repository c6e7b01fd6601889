"""Kernels executed without a GPU: real builds, real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.emulator import binding, paths
from harness.protocol.extension import Extension, SourceText

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


def test_the_null_kernel_says_how_long_the_device_worked_on_a_round(emulator):
    answer = emulator.run(HERE / "null_kernel.py")
    assert "error" not in answer, answer
    assert [name for name, value in answer["result"].items() if value is not True] == []


def test_operators_in_two_streams_are_ordered_by_what_waits_for_what(emulator):
    answer = emulator.run(HERE / "streams.py", "--check")
    assert "error" not in answer, answer
    result = answer["result"]
    assert {name: result["seen"][name] for name in result["right"]} == {name: [] for name in result["right"]}
    for name in result["wrong"]:
        assert {kind for kind, _ in result["seen"][name]} == {"data_race"}, name
        assert result["seen"][name][0][1].startswith("Data race between streams: ")


def test_with_detectors_an_access_out_of_bounds_is_named_by_its_size_its_place_and_its_thread(emulator):
    said = emulator.run(HERE / "overruns.py", "--check")["result"]
    allocation, variable = "an allocation of 924 bytes", "a __shared__ variable of 128 bytes"
    dynamic = "the block's dynamic shared memory of 124 bytes"
    assert said == {
        name: [f"The kernel writes {access}.", [0, 0, 0], [thread, 0, 0]]
        for name, access, thread in (
            ("behind_an_allocation", f"4 bytes at byte 924 of {allocation}, behind its end", 39),
            ("before_an_allocation", f"4 bytes at byte -4 of {allocation}, before its start", 0),
            ("across_the_end", f"8 bytes at byte 920 of {allocation}, across its end", 115),
            ("behind_a_variable", f"4 bytes at byte 128 of {variable}, behind its end", 32),
            ("behind_dynamic_memory", f"4 bytes at byte 124 of {dynamic}, behind its end", 31),
        )
    }


def test_damaged_memory_shows_where_it_begins_and_not_who_wrote(emulator):
    said = emulator.run(HERE / "overruns.py")["result"]
    advice = "The line is that of the launch; --check finds the access."
    allocation, variable = "an allocation of 924 bytes", "a __shared__ variable of 128 bytes"
    dynamic = "the block's dynamic shared memory of 124 bytes"
    assert said == {
        name: [f"{wrote} (first changed byte: {byte}). {advice}", block, None]
        for name, wrote, byte, block in (
            ("behind_an_allocation", f"The kernel wrote behind the end of {allocation}", 924, None),
            ("before_an_allocation", f"The kernel wrote before the start of {allocation}", -4, None),
            ("across_the_end", f"The kernel wrote behind the end of {allocation}", 924, None),
            ("behind_a_variable", f"A thread wrote behind the end of {variable}", 128, [0, 0, 0]),
            ("behind_dynamic_memory", f"A thread wrote behind the end of {dynamic}", 124, [0, 0, 0]),
        )
    }


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["fast", "check"])
def test_modules_libraries_accessors_and_gradients(emulator, options):
    answer = emulator.run(HERE / "bindings.py", *options)
    assert "error" not in answer, answer
    assert answer["findings"] == []
    assert [name for name, value in answer["result"]["true"].items() if value is not True] == []
    assert answer["result"]["check"] == "scale expects a CUDA matrix, but got 1 dimensions."


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["fast", "check"])
def test_a_local_variable_that_nobody_set_is_no_zero(emulator, options):
    answer = emulator.run(HERE / "unset_locals.py", *options)
    assert "error" not in answer, answer
    assert [value for value in answer["result"] if not value < -1e6] == []


def test_functions_behave_alike_with_and_without_pybind11(emulator):
    answer = emulator.run(HERE / "plain_functions.py")
    assert "error" not in answer, answer
    result = answer["result"]
    assert result["without pybind11"] == result["with it"]
    assert {"TypeError", "ValueError"} < set(result["with it"].values())
    assert result["message"] == "count(): argument 1 is a int, where a tensor is expected"


@pytest.mark.parametrize(
    ("declared", "plain"),
    [
        ("torch::Tensor f(torch::Tensor x, double eps);", True),
        ("std::vector<at::Tensor>\nf(const at::Tensor &x, // the input\n  int64_t n = 3);\nvoid g();", True),
        ("torch::Tensor f(torch::Tensor x) { return x; }", False),
        ("torch::Tensor f(torch::Tensor x, std::string how);", False),
        ("torch::Tensor f(torch::Tensor x); torch::Tensor f(torch::Tensor x, int n);", False),
        ("#define T torch::Tensor\nT f(T x);", False),
        ("torch::Tensor g(torch::Tensor x);", False),
    ],
)
def test_only_declarations_are_bound_without_pybind11(declared, plain):
    extension = Extension("e", (SourceText(declared),), (SourceText("..."),), functions=(("f", ""),))
    assert bool(binding.without_pybind11(extension, "e")) is plain


@pytest.mark.skipif(not paths._from_packages(), reason="needs PyPI's header packages: pip install -e '.[emulator]'")
def test_pypi_packages_are_enough_to_build(emulator):
    """Elsewhere a toolkit's headers are preferred where there is one."""
    answer = emulator.run(HERE / "counting.py", "--headers-of-packages")
    assert "error" not in answer, answer
    assert answer["headers"]
    assert all("nvidia" in folder for folder in answer["headers"])


def test_activate_after_torch_is_refused(tmp_path):
    import torch  # noqa: F401

    from harness.device import emulator as module

    with pytest.raises(RuntimeError, match="torch is already imported"):
        module.activate(tmp_path)
