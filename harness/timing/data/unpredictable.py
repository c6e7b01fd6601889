"""Numbers that decide what a round does: nobody can compute them from others that were seen.

Torch's generator on a CPU is a Mersenne Twister: each bit that it gives is a sum modulo 2 of bits of its state, so some
5,000 positions of changed elements are enough equations to solve for all later ones. On a CPU every number comes from
OpenSSL's generator (AES-256 in counter mode, NIST SP 800-90A), which the system's keys: getrandom(2) itself is 18 times
slower. On a GPU, where a round needs millions, they are ChaCha20's keystream, computed there, under a key of 256 bits
for each draw. docs/secrets.md says who learns which number when.
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Sequence

import numpy as np
import torch

from harness.timing.data.keystream import KEY_BYTES, keystream

# A number of 32 bits times a limit of so many fits into 63 bits.
MOST_BELOW = 1 << 31

# Elements that are mixed at a time on a CPU.
_PIECE = 1 << 17

# Integers of so many bytes.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(count: int, device: torch.device) -> torch.Tensor:
    """So many times 32 random bits, int32, shape (count,)."""
    if device.type == "cpu":
        return torch.from_numpy(np.frombuffer(bytearray(ssl.RAND_bytes(4 * count)), dtype=np.int32))
    return keystream(os.urandom(KEY_BYTES), count, device)


def integers(below: torch.Tensor | int, shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Uniform in [0, below), int64; `below` is a number, or a tensor of at most MOST_BELOW that broadcasts to `shape`.
    None is likelier than another by more than the share below / 2^32."""
    if isinstance(below, int) and below > MOST_BELOW:
        return (_unsigned(shape, device) << 30 | _unsigned(shape, device) >> 2) % below
    return _unsigned(shape, device) * below >> 32


def shares(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Uniform in [0, 1), float64, in steps of 2^-32."""
    return _unsigned(shape, device).double() * 2.0**-32


def coins(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """True or False, bool."""
    count = math.prod(shape)
    packed = words(-(-count // 32), device).view(torch.uint8)
    if device.type == "cpu":
        bits = torch.from_numpy(np.unpackbits(packed.numpy(), bitorder="little")).view(torch.bool)
    else:
        bits = packed[:, None] & torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8, device=device) != 0
    return bits.reshape(-1)[:count].reshape(tuple(shape))


def mixed(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Each element that of `one` or of `other`, at random."""
    as_bits = _BITS.get(one.element_size())
    if one.device.type != "cpu" or not as_bits:
        return torch.where(coins(one.shape, one.device), one, other)
    # Here torch.where branches for each element, and is four times slower. Pieces stay in the processor's caches, and
    # small operators cost less in numpy.
    mixture = torch.empty_like(one, memory_format=torch.contiguous_format)
    mixed_bits, ones, others = (tensor.reshape(-1).view(as_bits).numpy() for tensor in (mixture, one, other))
    for start in range(0, len(ones), _PIECE):
        piece = slice(start, start + _PIECE)
        mixes, other_bits = mixed_bits[piece], others[piece]
        np.bitwise_xor(ones[piece], other_bits, out=mixes)
        np.bitwise_and(mixes, _masks(len(mixes), mixes.dtype), out=mixes)
        np.bitwise_xor(mixes, other_bits, out=mixes)
    return mixture


def _masks(count: int, dtype: np.dtype) -> np.ndarray:
    """All bits set or none, at random, in each of `count` integers: a drawn bit at the top, moved down over all."""
    width = 8 * dtype.itemsize
    drawn = np.frombuffer(ssl.RAND_bytes(dtype.itemsize * -(-count // width)), dtype=dtype)
    masks = np.left_shift(drawn, np.arange(width, dtype=dtype)[:, None])
    return np.right_shift(masks, width - 1, out=masks).reshape(-1)[:count]


def _unsigned(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """32 random bits each, int64."""
    return words(math.prod(shape), device).reshape(tuple(shape)).long() & 0xFFFFFFFF
