"""How tensors lie by the names of layouts: as what PyTorch programs make does."""

import pytest
import torch

from harness.layouts import strides
from harness.oracle.further import cases_called
from harness.problem import Case

SHAPE = (9, 40, 96)

# What lies so in a program.
AS_IN_A_PROGRAM = {
    "contiguous": torch.empty(SHAPE),
    "offset": torch.empty(1 + 9 * 40 * 96)[1:].view(SHAPE),
    "transposed": torch.empty(9, 96, 40).mT,
    "sliced": torch.empty(9, 41, 2 * 96 + 1)[:, :40, :96],
    "expanded": torch.empty(()).expand(SHAPE),
    "rows": torch.empty(96).expand(SHAPE),
}


@pytest.mark.parametrize(("layout", "tensor"), AS_IN_A_PROGRAM.items(), ids=AS_IN_A_PROGRAM)
def test_a_layout_is_what_a_program_makes(layout, tensor):
    assert strides(SHAPE, layout) == tensor.stride()


def gradient_of_output(send):
    """The gradient that arrives at y where a program sends its output on."""
    y = torch.zeros(SHAPE, requires_grad=True)
    arrived = []
    y.register_hook(arrived.append)
    send(y).backward(torch.ones_like(send(y)))
    return arrived[0].stride()


def test_upstream_gradients_lie_as_those_of_sums_do():
    assert gradient_of_output(lambda y: y.sum()) == strides(SHAPE, "expanded")
    assert gradient_of_output(lambda y: y.sum((0, 1))) == strides(SHAPE, "rows")


def forms(case, differentiated):
    return [(c.layout, sorted(c.contiguous), c.upstream) for c in cases_called(case, 1, differentiated)[1:]]


def test_each_of_two_inputs_lies_apart_where_the_other_does_not():
    case = Case("a", shapes=(SHAPE, SHAPE), layout="transposed")
    assert forms(case, False) == [("sliced", [1], "contiguous"), ("sliced", [0], "contiguous")]


def test_upstream_gradients_are_not_aligned_where_inputs_are():
    case = Case("a", shapes=(SHAPE,), layout="offset")
    assert forms(case, True) == [("contiguous", [], "offset")]
    assert forms(case, False) == []
