"""Parameters that lie elsewhere in each round: they stay what they are, and old places stay alive."""

import pytest
import torch

from harness.protocol import places
from harness.worker.placement import Placement


class Model(torch.nn.Module):
    """A parameter, a buffer that is transposed, and views of both, as a submission may keep them."""

    def __init__(self, elements):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(float(elements)))
        self.register_buffer("scale", torch.arange(6.0).reshape(2, 3).mT)
        self.kept = self.weight.data.view(-1)


LARGE = places.LEAST_BYTES // 4


def addresses(model):
    return [tensor.data_ptr() for tensor in (model.weight, model.scale)]


def test_large_parameters_lie_elsewhere_after_each_move_with_the_same_values_and_strides():
    model = Model(LARGE)
    weight, optimizer = model.weight, torch.optim.SGD(model.parameters(), lr=1.0)
    placement = Placement(model)
    seen = {addresses(model)[0]}
    for _ in range(3):
        assert placement.move()
        seen.add(addresses(model)[0])
    assert len(seen) == 4
    assert model.weight is weight and weight.requires_grad and weight.is_leaf
    assert torch.equal(model.weight, torch.arange(float(LARGE))) and torch.equal(model.kept, model.weight)
    assert torch.equal(model.scale, torch.arange(6.0).reshape(2, 3).mT) and model.scale.stride() == (1, 3)
    (2 * model.weight).sum().backward()
    optimizer.step()  # what holds the parameter sees the memory that it has now
    placement.move()
    assert torch.equal(model.weight, torch.arange(float(LARGE)) - 2)


def test_a_forward_that_was_done_before_a_move_has_the_same_gradients_after_it():
    model = Model(LARGE)
    x = torch.full((LARGE,), 3.0, requires_grad=True)
    outcome = (x * model.weight).sum()
    Placement(model).move()
    outcome.backward()
    assert torch.equal(x.grad, model.weight) and torch.equal(model.weight.grad, x)


def test_once_there_is_no_room_for_another_place_the_old_ones_serve_again(monkeypatch):
    monkeypatch.setattr(places, "MOST_BYTES", 3 * 4 * (LARGE + 6))
    model = Model(LARGE)
    placement = Placement(model)
    seen = set()
    for _ in range(60):
        placement.move()
        seen.add(addresses(model)[0])
        assert model.weight[-1] == LARGE - 1
    assert len(seen) == 3


@pytest.mark.parametrize("model", [Model(8), torch.nn.ReLU()], ids=["small", "none"])
def test_small_parameters_stay(model):
    before = [tensor.data_ptr() for tensor in model.parameters()]
    assert not Placement(model).move()
    assert [tensor.data_ptr() for tensor in model.parameters()] == before


def test_what_no_plain_memory_can_stand_in_for_stays():
    model = Model(LARGE)
    model.register_buffer("rows", torch.zeros(1).expand(4))
    before = model.rows.data_ptr()
    assert Placement(model).move() and model.rows.data_ptr() == before
