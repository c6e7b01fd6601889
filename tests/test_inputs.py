"""Which inputs tell a wrong LayerNorm from a right one: the table in docs/judging.md, computed anew."""

import pytest
import torch

from harness import oracle
from harness.inputs import DISTRIBUTIONS, draw
from tests.documents import alike, shown_between

ROWS, WIDTH, BLOCK = 64, 4096, 256
EPS = 1e-5


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = torch.nn.LayerNorm(WIDTH, eps=EPS)

    def forward(self, x):
        return self.ln(x)


def normalised(x, mean, variance, eps=EPS):
    return (x - mean) * torch.rsqrt(variance + eps)


def moments(x):
    mean = x.mean(-1, keepdim=True)
    return mean, (x - mean).square().mean(-1, keepdim=True)


def two_passes(x):
    return normalised(x, *moments(x))


def one_pass(x):
    mean = x.mean(-1, keepdim=True)
    return normalised(x, mean, x.square().mean(-1, keepdim=True) - mean * mean)


def shifted_by_the_first(x):
    return one_pass(x - x[:, :1])


def constant_statistics(x):
    return x


def statistics_of_a_sample(x):
    return normalised(x, *moments(x[:, ::16]))


def no_term_between_blocks(x):
    parts = x.reshape(len(x), -1, BLOCK)
    return normalised(x, x.mean(-1, keepdim=True), moments(parts)[1].mean(1))


def no_eps(x):
    return normalised(x, *moments(x), eps=0.0)


def eps_outside_the_root(x):
    mean, variance = moments(x)
    return (x - mean) / (variance.sqrt() + EPS)


def rows_that_leak(x):
    return two_passes(x) + 0 * x.sum()


def half_precision(x):
    return two_passes(x.half()).float()


WRONG = (
    one_pass, shifted_by_the_first, constant_statistics, statistics_of_a_sample, no_term_between_blocks, no_eps,
    eps_outside_the_root, rows_that_leak, half_precision,
)  # fmt: skip


@pytest.fixture(scope="module")
def found():
    """For each distribution the tolerance, and each kernel's comparison."""
    torch.manual_seed(0)
    model = Model()
    model.ln.requires_grad_(False)
    model.ln.weight.add_(0.5 * torch.randn(WIDTH))
    model.ln.bias.add_(0.5 * torch.randn(WIDTH))
    rows = {}
    for name in DISTRIBUTIONS:
        x = draw(name, (ROWS, WIDTH), torch.float32, torch.Generator().manual_seed(5))
        (expected,) = oracle.expect(model, [x], 7)
        outputs = {kernel: kernel(x) * model.ln.weight + model.ln.bias for kernel in (two_passes, *WRONG)}
        rows[name] = expected.tolerance, {k: oracle.compare(y, expected) for k, y in outputs.items()}
    return rows


@pytest.fixture(scope="module")
def caught(found):
    """For each kernel the distributions on which the oracle refuses it."""
    return {
        kernel: [name for name, (_, compared) in found.items() if not compared[kernel].ok]
        for kernel in (two_passes, *WRONG)
    }


def test_a_right_kernel_passes_on_every_distribution(caught):
    assert caught[two_passes] == []


@pytest.mark.parametrize("kernel", WRONG, ids=lambda k: k.__name__)
def test_a_wrong_kernel_is_caught_by_some(kernel, caught):
    assert caught[kernel]


def test_plain_normal_data_miss_what_others_catch(caught):
    """Without eps, or with it in another place, a row of variance 1 is off by what 4,096 terms in order round away."""
    assert [kernel.__name__ for kernel in WRONG if "normal" not in caught[kernel]] == [
        "one_pass", "shifted_by_the_first", "no_eps", "eps_outside_the_root", "rows_that_leak",
    ]  # fmt: skip
    assert caught[shifted_by_the_first] == ["outlier"]
    assert caught[rows_that_leak] == ["non_finite"]


def table(caught):
    """The table of docs/judging.md."""
    lines = ["| wrong kernel | caught by |", "|---|---|"]
    lines += [f"| {kernel.__name__.replace('_', ' ')} | {', '.join(caught[kernel])} |" for kernel in WRONG]
    return "\n".join(lines)


def test_the_table_in_the_documents_is_what_happens(caught):
    assert shown_between("docs/judging.md", "inputs") == table(caught).splitlines()


def one_pass_table(found):
    """The table of docs/judging.md on E[x^2] - m^2."""
    lines = ["| data | tolerance | two passes | E[x²] − m² |", "|---|---|---|---|"]
    for name in ("normal", "uniform", "rows", "narrow", "large_mean"):
        tolerance, compared = found[name]
        cells = [f"{compared[kernel].error:.1e}{_verdict(compared[kernel])}" for kernel in (two_passes, one_pass)]
        lines.append(f"| {name} | {tolerance:.1e} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(comparison):
    return "" if comparison.ok else ", fails"


def test_the_table_of_one_pass_is_what_happens(found):
    assert alike(shown_between("docs/judging.md", "one pass"), one_pass_table(found).splitlines())
