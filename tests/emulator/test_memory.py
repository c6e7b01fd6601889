"""Who asks for more than the emulated card has is told so, as CUDA tells it."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
CARD = 80 << 30


def test_a_card_of_80_gib_says_when_it_is_full_and_what_is_left(emulator):
    answer = emulator.run(HERE / "memory.py")
    assert "error" not in answer, answer["error"]
    assert answer["findings"] == []
    said = answer["result"]
    assert said["sizes"] == [CARD, CARD, CARD, 16 << 20]
    assert said["mem_get_info"] is True
    assert said["asked"] == ["cudaSuccess", *["cudaErrorMemoryAllocation, null"] * 3]
    assert said["raised"].startswith(f"CUDA out of memory. Tried to allocate {CARD - (16 << 20) + 1} bytes. ")
    assert said["raised"].endswith(f"The emulated card has {CARD} bytes, of which {CARD - (16 << 20)} are free.")
    assert said["in a kernel"] == [1, 0]
