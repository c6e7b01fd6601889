"""Weights find their places by name, else by order and shape, else the submission is rejected."""

import pytest
import torch
from torch import nn

from harness.worker.parameters import CannotCarry, carry, set_by_load_state_dict


def model(**parameters):
    module = nn.Module()
    for name, shape in parameters.items():
        module.register_parameter(name, nn.Parameter(torch.zeros(shape)))
    return module


SOURCE = {"ln.weight": torch.full((8,), 2.0), "ln.bias": torch.full((8,), 3.0)}


def test_the_end_of_a_name_is_enough():
    target = model(bias=8, weight=8)  # in the other order
    assert carry(SOURCE, target) == {"ln.weight": "weight", "ln.bias": "bias"}
    assert target.weight.eq(2).all()
    assert target.bias.eq(3).all()


def test_other_names_are_matched_in_order():
    target = model(scale=8, shift=8)
    assert carry(SOURCE, target) == {"ln.weight": "scale", "ln.bias": "shift"}


def test_gamma_and_beta_are_weight_and_bias_in_whatever_order():
    target = model(beta=8, gamma=8)
    assert carry(SOURCE, target) == {"ln.weight": "gamma", "ln.bias": "beta"}
    assert target.gamma.eq(2).all()


def test_the_references_own_gamma_and_beta_are_weight_and_bias_too():
    target = model(bias=8, weight=8)
    assert carry({"gamma": SOURCE["ln.weight"], "beta": SOURCE["ln.bias"]}, target) == {
        "gamma": "weight",
        "beta": "bias",
    }


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("linear.bias", "ln.weight", "ln.bias"), ("b", "gamma", "beta")),
        (("norm1.weight", "norm2.weight"), ("w", "gamma")),
        (("norm.weight",), ("gamma", "scale")),
    ],
    ids=["two biases", "two weights", "two words"],
)
def test_where_a_word_could_mean_several_order_decides(names, places):
    target = model(**dict.fromkeys(places, 8))
    assert carry({name: torch.ones(8) for name in names}, target) == dict(zip(names, places, strict=False))


def test_torchs_own_name_goes_before_another_word_for_it():
    target = model(gamma=8, weight=8, bias=8)
    assert carry(SOURCE, target) == {"ln.weight": "weight", "ln.bias": "bias"}


def test_a_name_that_matches_wins_over_order():
    target = model(first=8, weight=8)
    assert carry(SOURCE, target) == {"ln.weight": "weight", "ln.bias": "first"}


def test_buffers_are_places_too():
    target = model(weight=8)
    target.register_buffer("bias", torch.zeros(8))
    carry(SOURCE, target)
    assert target.bias.eq(3).all()


def test_a_parameter_without_a_place_is_named_with_what_there_is():
    with pytest.raises(CannotCarry, match=r"'ln.bias' of shape \(8,\).*weight \(8,\)"):
        carry(SOURCE, model(weight=8))


def test_a_place_of_another_shape_is_none():
    with pytest.raises(CannotCarry, match=r"ln\.weight"):
        carry(SOURCE, model(weight=(2, 4), bias=(2, 4)))


def test_what_is_needless_is_carried_by_its_name_or_not_at_all():
    """As a table of the reference's constructor, which is drawn at random, and a counter that nobody needs."""
    source = SOURCE | {"table": torch.tensor([2, 0, 1]), "counter": torch.tensor(5)}
    target = model(weight=8, bias=8)
    target.register_buffer("table", torch.zeros(3, dtype=torch.int32))
    target.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    places = carry(source, target, needless={"table", "counter"})
    assert places == {"ln.weight": "weight", "ln.bias": "bias", "table": "table"}
    assert target.table.tolist() == [2, 0, 1]
    assert target.steps == 0
    set_by_load_state_dict(source | {"table": torch.tensor([0, 1, 2])}, target, places)
    assert target.table.tolist() == [0, 1, 2]
