"""Who adds up in order is right, with room to spare; who computes something else is not.

Kernels with a thread for each row add its terms one after the other in float32, as np.cumsum does.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from harness import oracle
from harness.inputs import draw
from harness.oracle.rounded_sums import RoundedSums
from harness.oracle.step_by_step import STEP_BY_STEP
from tests.documents import alike, shown_between

F32 = np.float32


def total(terms):
    """The last dimension added up in order."""
    return np.cumsum(terms, axis=-1, dtype=F32)[..., -1:]


def mean(terms):
    return total(terms) / F32(terms.shape[-1])


def normalised(x, statistics=lambda x: x):
    """By mean and variance of the last dimension, or of what is taken for it."""
    centre = mean(statistics(x))
    return (x - centre) / np.sqrt(mean((statistics(x) - centre) ** 2) + F32(1e-5))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / total(powers)


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(total(np.exp(shifted)))


def grouped(x):
    return normalised(x.reshape(2, 2, -1)).reshape(x.shape)


def by_channel(x):
    return normalised(x.swapaxes(0, 1).reshape(x.shape[1], -1)).reshape(x.shape[1], x.shape[0], -1).swapaxes(0, 1)


# What is computed: how data are drawn, their shape, the reference, and the same with sums in order.
SUMS = {
    "InstanceNorm": ("uniform", (2, 3, 65536), F.instance_norm, normalised),
    "GroupNorm": ("uniform", (2, 4, 32768), lambda x: F.group_norm(x, 2), grouped),
    "BatchNorm in training": (
        "uniform", (16, 4, 4096), lambda x: F.batch_norm(x, None, None, training=True), by_channel,
    ),
    "LayerNorm": ("normal", (64, 16384), lambda x: F.layer_norm(x, x.shape[-1:]), normalised),
    "LayerNorm of operators": (
        "uniform", (64, 16384),
        lambda x: (x - x.mean(-1, True)) * ((x - x.mean(-1, True)).square().mean(-1, True) + 1e-5).rsqrt(), normalised,
    ),
    "RMSNorm": (
        "normal", (64, 16384), lambda x: x / (x.square().mean(-1, True) + 1e-5).sqrt(),
        lambda x: x / np.sqrt(mean(x * x) + F32(1e-5)),
    ),
    "L1 norm": ("normal", (64, 16384), lambda x: x / x.abs().mean(1, True), lambda x: x / mean(np.abs(x))),
    "L2 norm": (
        "normal", (64, 16384), lambda x: x / x.norm(dim=1, keepdim=True), lambda x: x / np.sqrt(total(x * x)),
    ),
    "Frobenius norm": ("normal", (1, 65536), lambda x: x / x.norm(), lambda x: x / np.sqrt(total(x * x))),
    "variance": ("normal", (64, 16384), lambda x: x.var(1), lambda x: total((x - mean(x)) ** 2)[:, 0] / F32(16383)),
    "softmax": ("normal", (64, 16384), lambda x: x.softmax(1), softmax),
    "log softmax": ("normal", (64, 16384), lambda x: x.log_softmax(1), log_softmax),
    "logsumexp": (
        "uniform", (64, 16384), lambda x: x.logsumexp(1), lambda x: (np.log(total(np.exp(x - 1))) + 1)[:, 0],
    ),
    "mean": ("uniform", (64, 16384), lambda x: x.mean(1), lambda x: mean(x)[:, 0]),
    "running sum": ("uniform", (64, 16384), lambda x: x.cumsum(1), lambda x: np.cumsum(x, axis=1, dtype=F32)),
    "average pooling": (
        "uniform", (4, 16, 128, 128), lambda x: F.adaptive_avg_pool2d(x, 1),
        lambda x: mean(x.reshape(4, 16, -1))[..., None],
    ),
}  # fmt: skip


def expected_of(reference, x):
    model = type("Model", (torch.nn.Module,), {"forward": lambda _self, x: reference(x)})()
    return oracle.expect(model, [torch.from_numpy(x)], 0)[0]


def drawn(distribution, shape):
    generator = torch.Generator().manual_seed(5)
    return (torch.rand if distribution == "uniform" else torch.randn)(shape, generator=generator).numpy()


def of_tolerance(y, expected):
    """The largest error, in tolerances."""
    return oracle.compare(torch.from_numpy(np.ascontiguousarray(y)), expected).error / expected.tolerance


@pytest.fixture(scope="module")
def found():
    """Errors of the same sums in order, and of what TF32 gives: the reference in fp32 on inputs of 11 bits."""
    rows = {}
    for name, (distribution, shape, reference, in_order) in SUMS.items():
        x = drawn(distribution, shape)
        expected = expected_of(reference, x)
        coarse = (x.view(np.int32) + 0x1000 & ~0x1FFF).view(F32)
        rows[name] = [of_tolerance(y, expected) for y in (in_order(x), reference(torch.from_numpy(coarse)).numpy())]
    return rows


@pytest.mark.parametrize("name", SUMS)
def test_sums_in_order_are_right_by_a_margin_of_two(name, found):
    assert found[name][0] < 0.5


def two_passes_in_float64(x):
    """In order, by deviations from the first element, and with what the rounded mean missed."""
    middle = x[:, :1] + np.cumsum(x - x[:, :1], axis=-1)[:, -1:] / x.shape[-1]
    off = np.cumsum(x - middle, axis=-1)[:, -1:] / x.shape[-1]
    variance = np.cumsum((x - middle) ** 2, axis=-1)[:, -1:] / x.shape[-1] - off**2
    return (x - middle - off) / np.sqrt(variance + 1e-5)


@pytest.mark.parametrize("distribution", ["normal", "rows", "blocks", "outlier", "large_mean", "narrow"])
def test_in_float64_they_are_right_by_a_margin_of_two(distribution):
    """Of inputs as a case has them: numbers of float32's precision in float64 would round in one direction."""
    x = draw(distribution, (16, 32400), torch.float64, torch.Generator().manual_seed(5)).numpy()
    expected = expected_of(lambda x: F.layer_norm(x, x.shape[-1:]), x)
    assert of_tolerance(two_passes_in_float64(x), expected) < 0.5


NOT_TOLD = {"mean", "average pooling", "running sum", "logsumexp", "variance"}  # errors of random sign that cancel


@pytest.mark.parametrize("name", [name for name in SUMS if name not in NOT_TOLD])
def test_inputs_of_eleven_bits_are_wrong(name, found):
    assert found[name][1] > 1


@pytest.mark.parametrize(
    "statistics", [lambda x: x[..., ::2], lambda x: x[..., : x.shape[-1] // 2], lambda x: x[..., :-1] * F32(1.01)]
)
def test_statistics_of_something_else_are_wrong(statistics):
    for distribution in ("uniform", "normal"):
        x = drawn(distribution, (64, 16384))
        assert of_tolerance(normalised(x, statistics), expected_of(lambda x: F.layer_norm(x, x.shape[-1:]), x)) > 2


@pytest.mark.parametrize("centre", [10, 100, 1e4])
def test_one_pass_is_wrong_where_the_mean_is_large(centre):
    """In float32 as PyTorch adds, in blocks, which is as good as it gets; two passes in blocks are right."""
    x = torch.from_numpy(drawn("normal", (64, 4096))) + torch.linspace(centre / 2, centre, 64)[:, None]
    expected = expected_of(lambda x: F.layer_norm(x, x.shape[-1:]), x.numpy())
    middle = x.mean(-1, True)
    one_pass = (x - middle) * (x.square().mean(-1, True) - middle.square() + 1e-5).rsqrt()
    two_passes = (x - middle) * ((x - middle).square().mean(-1, True) + 1e-5).rsqrt()
    assert of_tolerance(two_passes.numpy(), expected) < 0.5
    assert (of_tolerance(one_pass.numpy(), expected) > 1) == (centre >= 100)


def _gradient(what):
    def gradient(x):
        x = x.requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad((what(x) * torch.linspace(-1, 1, x.shape[-1])).sum(), x)[0]

    return gradient


TAKEN_APART = {
    "LayerNorm": torch.nn.LayerNorm((8, 16)),
    "GroupNorm": torch.nn.GroupNorm(2, 8),
    "BatchNorm": torch.nn.BatchNorm1d(8),
    "BatchNorm in evaluation": torch.nn.BatchNorm1d(8).eval(),
    "InstanceNorm": torch.nn.InstanceNorm1d(8, affine=True, track_running_stats=True),
    "softmax": torch.nn.Softmax(1),
    "log softmax": torch.nn.LogSoftmax(1),
    "backward of softmax": _gradient(torch.nn.Softmax(1)),
    "backward of log softmax": _gradient(torch.nn.LogSoftmax(1)),
}


@pytest.mark.parametrize("what", TAKEN_APART)
def test_what_is_taken_apart_gives_what_the_operator_gives(what):
    """Weights and running statistics, too; nothing is rounded here."""
    generator = torch.Generator().manual_seed(5)
    x, whole = torch.randn(4, 8, 16, generator=generator, dtype=torch.float64), copy.deepcopy(TAKEN_APART[what])
    state = []
    if isinstance(whole, torch.nn.Module):
        whole.double()
        state = [t for t in whole.state_dict().values() if t.is_floating_point()]
        for tensor in state:
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    apart = copy.deepcopy(whole)
    with torch.no_grad():
        wanted = whole(x.clone())
        with RoundedSums(0.0, generator):
            got = apart(x.clone())
    torch.testing.assert_close(got, wanted)
    if state:
        torch.testing.assert_close(apart.state_dict(), whole.state_dict())


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_step_by_step_gives_what_the_operator_gives(approximate):
    x, upstream = torch.randn(2, 1000, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for operator, given in ((torch.ops.aten.gelu, (x,)), (torch.ops.aten.gelu_backward, (upstream, x))):
        apart = STEP_BY_STEP[operator.default](*given, approximate=approximate)
        torch.testing.assert_close(apart, operator(*given, approximate=approximate))


def table(found):
    """The table of docs/judging.md."""
    lines = ["| reference | data | sums in order | inputs of 11 bits, as TF32 has |", "|---|---|---|---|"]
    for name, (ordered, coarse) in found.items():
        distribution, shape, *_ = SUMS[name]
        data = f"{'U(0, 1)' if distribution == 'uniform' else 'N(0, 1)'}, {'×'.join(map(str, shape))}"
        lines.append(f"| {name} | {data} | {ordered:.2f} | {coarse:.2g}{', fails' if coarse > 1 else ''} |")
    return "\n".join(lines)


def test_the_table_in_the_documents_is_what_happens(found):
    assert alike(shown_between("docs/judging.md", "sums"), table(found).splitlines())
