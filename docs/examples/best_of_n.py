"""Best of n: LayerNorm variants are generated, judged on the CPU, and the best of them is printed.

    python docs/examples/best_of_n.py [N [CASE]]

Some variants have faults that people make. They are verdicts here, without times; with `timing=True`, or on a GPU, the
same loop looks for the fastest.
"""

import asyncio
import itertools
import random
import sys

from reward import reward

from harness import Pool
from harness.verdict import CasePassed

TEMPLATE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        dims = tuple(range(-self.weight.dim(), 0))
        mean = x.mean(dims, keepdim=True)
        variance = {variance}
        scale = {scale}
        return {result}
"""
PARTS = {
    "variance": (
        "(x - mean).square().mean(dims, keepdim=True)",
        "((x - mean) ** 2).sum(dims, keepdim=True) / self.weight.numel()",
        "x.square().mean(dims, keepdim=True) - mean.square()",  # loses digits where the mean is large
        "x.var(dims, keepdim=True)",  # divides by n - 1
    ),
    "scale": (
        "torch.rsqrt(variance + self.eps)",
        "1 / (variance + self.eps).sqrt()",
        "1 / (variance.sqrt() + self.eps)",  # eps outside of the root
    ),
    "result": (
        "(x - mean) * scale * self.weight + self.bias",
        "torch.addcmul(self.bias, (x - mean) * scale, self.weight)",
        "x * scale * self.weight + (self.bias - mean * scale * self.weight)",
    ),
}


def variants(count: int, seed: int = 0) -> list[str]:
    """So many different ones, the same for each seed."""
    every = [dict(zip(PARTS, parts, strict=True)) for parts in itertools.product(*PARTS.values())]
    return [TEMPLATE.format(**parts) for parts in random.Random(seed).sample(every, count)]


def error_of(evaluation) -> float:
    """The largest error of all cases, in errors of PyTorch's own."""
    return max(case.error_ratio for case in evaluation.cases if isinstance(case, CasePassed))


async def search(count: int, case: str, seed: int = 0) -> int:
    """The number of the best: of the highest reward, and of those the most exact."""
    best, number = (0.0, 0.0), -1
    options = dict(problem="layernorm", device="cpu", select=case, seed=seed, timing=False)
    with Pool(workers=2, **options) as pool:
        async for result in pool.evaluate(variants(count, seed), limit_s=60.0):
            evaluation = result.evaluation
            print(f"{result.source}: {result.status} {evaluation.reason or ''}")
            if result.status == "accepted":
                worth = (reward(result) or 0.0, -error_of(evaluation))
                best, number = max((best, number), (worth, result.index))
    return number


if __name__ == "__main__":
    count, case = int(sys.argv[1]) if len(sys.argv) > 1 else 8, sys.argv[2] if len(sys.argv) > 2 else "one trailing dim"
    number = asyncio.run(search(count, case))
    print(f"best: source_{number}", variants(count)[number] if number >= 0 else "none is right", sep="\n")
