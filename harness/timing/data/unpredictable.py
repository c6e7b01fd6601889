"""Numbers that decide what a round does: nobody can compute them from others that were seen.

Torch's generator on a CPU is a Mersenne Twister: each bit that it gives is a sum modulo 2 of bits of its state, so some
5,000 positions of changed elements are enough equations to solve for all later ones. On a CPU every number comes from
OpenSSL's generator (AES-256 in counter mode, NIST SP 800-90A), which the system's keys: getrandom(2) itself is 18 times
slower. On a GPU, where a round needs millions, they are ChaCha20's keystream (RFC 8439), computed there under keys of
256 bits. Each word is used once. docs/secrets.md says who learns which number when.
"""

from __future__ import annotations

import functools
import math
import os
import ssl
from collections.abc import Sequence

import numpy as np
import torch

# The keystream is computed in pieces of so many blocks of 64 bytes: the cipher needs a few times their memory.
PIECE_BLOCKS = 1 << 20

KEY_BYTES = 32
_BLOCK_WORDS = 16
_DOUBLE_ROUNDS = 10
_SIGMA = b"expand 32-byte k"

# Words that one key gives on a GPU, 64 MiB, one piece: the cipher's 700 kernels work on so many about as long as their
# launches take. With a quarter of it a run on an H100 spent a third of its time on launching them.
FILLING_WORDS = 1 << 24

# A number of 32 bits times a limit of so many fits into 63 bits.
MOST_BELOW = 1 << 31

# Elements that are mixed at a time on a CPU.
_PIECE = 1 << 17

# Integers of so many bytes.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(count: int, device: torch.device) -> torch.Tensor:
    """So many times 32 random bits, int32, shape (count,)."""
    if device.type == "cpu":
        return _as_words(ssl.RAND_bytes(4 * count))
    return _supply_of(device).take(count)


class Supply:
    """Words on a GPU that nobody has used: each filling has a key of its own, each word is given once."""

    def __init__(self, device: torch.device):
        self._device = device
        self._unused = torch.empty(0, dtype=torch.int32, device=device)

    def take(self, count: int) -> torch.Tensor:
        """The next words, int32, shape (count,); a draw of more than FILLING_WORDS has a key for itself."""
        if count > FILLING_WORDS:
            return self._filling(count)
        if count > len(self._unused):
            self._unused = self._filling(FILLING_WORDS)
        given, self._unused = self._unused[:count], self._unused[count:]
        return given

    def _filling(self, count: int) -> torch.Tensor:
        return stretch(_as_words(os.urandom(KEY_BYTES)).to(self._device), count)


_supply_of = functools.cache(Supply)


def stretch(key: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` words of `keystream`, int32, computed a piece at a time."""
    blocks = -(-count // _BLOCK_WORDS)
    starts = range(0, max(blocks, 1), PIECE_BLOCKS)
    return torch.cat([keystream(key, start, min(PIECE_BLOCKS, blocks - start)) for start in starts])[:count]


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
    chosen, as_bits = coins(one.shape, one.device), _BITS.get(one.element_size())
    if one.device.type != "cpu" or not as_bits:
        return torch.where(chosen, one, other)
    # Here torch.where branches for each element, and is six times slower. Pieces stay in the processor's caches.
    mixture = torch.empty_like(one, memory_format=torch.contiguous_format)
    flat = [tensor.reshape(-1).view(as_bits).split(_PIECE) for tensor in (mixture, one, other)]
    chosen = chosen.reshape(-1).view(torch.int8).split(_PIECE)
    for mixes, ones, others, from_one in zip(*flat, chosen, strict=True):
        torch.bitwise_xor(ones, others, out=mixes)
        mixes.mul_(from_one.to(as_bits)).bitwise_xor_(others)
    return mixture


def keystream(key: torch.Tensor, first_block: int, blocks: int) -> torch.Tensor:
    """ChaCha20's keystream (RFC 8439, section 2.4), nonce 0, as little-endian words: int32, shape (16 * blocks,).

    `key` is int32, shape (8,), on the device that computes it. Raises ValueError beyond 2^32 blocks."""
    if first_block + blocks > 1 << 32:
        raise ValueError(f"{first_block + blocks} blocks; ChaCha20's counter has 32 bits")
    start = torch.zeros((_BLOCK_WORDS, blocks), dtype=torch.int32, device=key.device)
    start[:4] = _as_words(_SIGMA).to(key.device)[:, None]
    start[4:12] = key[:, None]
    start[12] = torch.arange(first_block, first_block + blocks, device=key.device).to(torch.int32)
    return (_rounds(start) + start).t().reshape(-1)


def _rounds(start: torch.Tensor) -> torch.Tensor:
    """The 20 rounds, on the four rows of four words that a state is, all columns and blocks at a time."""
    a, b, c, d = (row.clone() for row in start.reshape(4, 4, -1))
    for _ in range(_DOUBLE_ROUNDS):
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)  # columns become diagonals
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat([a, b, c, d])


def _quarter_rounds(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> None:
    """Four quarter rounds beside each other, in place; each is shape (4, blocks)."""
    for left, right, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        left.add_(right)
        turned.bitwise_xor_(left)
        carried = (turned >> (32 - bits)).bitwise_and_((1 << bits) - 1)  # a shift of int32 copies the sign
        turned.bitwise_left_shift_(bits).bitwise_or_(carried)


def _unsigned(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """32 random bits each, int64."""
    return words(math.prod(shape), device).reshape(tuple(shape)).long() & 0xFFFFFFFF


def _as_words(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.int32) if data else torch.empty(0, dtype=torch.int32)
