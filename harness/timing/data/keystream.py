"""ChaCha20's keystream (RFC 8439) on a GPU, as one kernel that torch compiles: torch.cuda.jiterator.

Of torch's operators it would be 700 kernels a draw, and a quarter of the time that timing takes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import torch

from harness.errors import HarnessError

KEY_BYTES = 32

# A word's number is an int32.
MOST_WORDS = 1 << 31

# Word `index` of the keystream with nonce 0 (section 2.4): a word of block `index / 16`, whose 20 rounds (section 2.3)
# every one of its 16 words computes anew: 7.5 million words, as a round of large inputs needs, take 0.5 ms on an H100.
# Every second round works on diagonals. Rounds are not unrolled, which made the kernel's compilation take 4 s.
SOURCE = """
template <typename T>
T chacha20_word(T index, T k0, T k1, T k2, T k3, T k4, T k5, T k6, T k7) {
  const unsigned start[16] = {
      0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u,
      (unsigned)k0, (unsigned)k1, (unsigned)k2, (unsigned)k3,
      (unsigned)k4, (unsigned)k5, (unsigned)k6, (unsigned)k7,
      (unsigned)index / 16u, 0u, 0u, 0u};
  unsigned x[16];
#pragma unroll
  for (int i = 0; i != 16; ++i) x[i] = start[i];
#pragma unroll 1
  for (int pair = 0; pair != 10; ++pair) {
#pragma unroll
    for (int quarter = 0; quarter != 8; ++quarter) {
      const int column = quarter & 3, turn = quarter >> 2;
      unsigned &a = x[column], &b = x[4 + ((column + turn) & 3)];
      unsigned &c = x[8 + ((column + 2 * turn) & 3)], &d = x[12 + ((column + 3 * turn) & 3)];
      a += b; d ^= a; d = (d << 16) | (d >> 16);
      c += d; b ^= c; b = (b << 12) | (b >> 20);
      a += b; d ^= a; d = (d << 8) | (d >> 24);
      c += d; b ^= c; b = (b << 7) | (b >> 25);
    }
  }
  unsigned word = 0u;
#pragma unroll
  for (int i = 0; i != 16; ++i) word |= (unsigned)index % 16u == (unsigned)i ? x[i] + start[i] : 0u;
  return (T)word;
}
"""

# The keystream's beginning under a key of zeros (appendix A.1, test vector 1).
_OF_ZEROS = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")


def keystream(key: bytes, count: int, device: torch.device) -> torch.Tensor:
    """The first `count` words, little-endian: int32, shape (count,). `key` has KEY_BYTES.

    Raises ValueError beyond MOST_WORDS, HarnessError where torch compiled something else than the cipher."""
    if count > MOST_WORDS:
        raise ValueError(f"{count:,} words; a key gives {MOST_WORDS:,}")
    return _computed(_kernel(device), key, count, device)


@functools.cache
def _kernel(device: torch.device) -> Callable[..., torch.Tensor]:
    """It may come from a cache on disk, which others may have written to: a known answer is asked for first."""
    kernel = torch.cuda.jiterator._create_jit_fn(SOURCE, **{f"k{word}": 0 for word in range(8)})
    found = _computed(kernel, bytes(KEY_BYTES), len(_OF_ZEROS) // 4, device)
    if found.cpu().numpy().tobytes() != _OF_ZEROS:
        raise HarnessError(
            "ChaCha20, which decides what a round changes, gives wrong numbers on this GPU. Remove torch's cache of "
            "kernels (~/.cache/torch/kernels, or PYTORCH_KERNEL_CACHE_PATH) and run it again."
        )
    return kernel


def _computed(kernel: Callable[..., torch.Tensor], key: bytes, count: int, device: torch.device) -> torch.Tensor:
    words = {f"k{position}": word for position, word in enumerate(struct.unpack("<8i", key))}
    return kernel(torch.arange(count, dtype=torch.int32, device=device), **words)
