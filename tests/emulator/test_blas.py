"""cuBLAS's matrix products on the emulated device."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def test_matrix_products_of_cublas_are_pytorchs(emulator):
    answer = emulator.run(HERE / "blas.py", "--check")
    assert "error" not in answer, answer["error"]
    result = answer["result"]
    assert [name for name, value in result["true"].items() if value is not True] == []
    assert result["refused"] == 7  # CUBLAS_STATUS_INVALID_VALUE
    fine, refused = result["checked"]
    assert fine == "" and "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(handle, " in refused
    assert "cublasSgemm writes 48 bytes at byte 0 of an allocation of 32 bytes, across its end." in result["overrun"]
    assert "cublasSgemm is given a matrix that is not in device memory." in result["host"]
    assert [finding["kind"] for finding in answer["findings"]] == ["out_of_bounds", "host_pointer"]
