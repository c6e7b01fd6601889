"""Carrying the reference's parameters and buffers into a submission's model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

import torch
from torch.nn.parameter import is_lazy

from harness.errors import KernelgateError


class CannotCarry(KernelgateError):
    """A parameter or buffer of the reference has no place in the submission's model."""


# What a norm's parameters are called elsewhere, by torch's names.
_ALSO_CALLED = {"gamma": "weight", "scale": "weight", "beta": "bias", "shift": "bias"}


def carry(source: Mapping[str, torch.Tensor], model: torch.nn.Module, needless: Container[str] = ()) -> dict[str, str]:
    """Copy each tensor of `source` into `model`; returns source name -> model name.

    Names that match win: equal, or one the end of the other behind a dot (`ln.weight` and `weight`). Then `gamma` and
    `scale` stand for `weight`, `beta` and `shift` for `bias`, where only one of each is left that could be meant. What
    is left is matched in order among tensors of the same shape. What is `needless` is carried by its name or not at
    all. Raises CannotCarry with the name of the first parameter that finds no place.
    """
    places = _places(model)
    _require_shapes(places)
    chosen: dict[str, str] = {}
    for name, tensor in source.items():
        found = _by_name(name, tensor, places, taken=set(chosen.values()))
        if found:
            chosen[name] = found
    left = {name: tensor for name, tensor in source.items() if name not in chosen}
    chosen |= _by_other_words(left, {p: t for p, t in places.items() if p not in set(chosen.values())})
    for name, tensor in source.items():
        if name not in chosen and name not in needless:
            chosen[name] = _by_shape(name, tensor, places, taken=set(chosen.values()))
    set_in_place(source, model, chosen)
    return chosen


def set_in_place(source: Mapping[str, torch.Tensor], model: torch.nn.Module, chosen: Mapping[str, str]) -> None:
    """Copy each tensor of `source` to its place in `model`, as an optimizer writes."""
    places = _places(model)
    with torch.no_grad():
        for name, place in chosen.items():
            if name in source:
                places[place].copy_(source[name])


def set_once_moved(source: Mapping[str, torch.Tensor], model: torch.nn.Module, chosen: Mapping[str, str]) -> None:
    """Have what `set_in_place` writes to lie in other memory before, as `Module.to` does: a parameter stays the same
    object, and nothing that it had before leads to its values."""
    places = _places(model)
    for place in chosen.values():
        places[place].data = places[place].data.clone()
    set_in_place(source, model, chosen)


def set_by_load_state_dict(
    source: Mapping[str, torch.Tensor], model: torch.nn.Module, chosen: Mapping[str, str]
) -> None:
    """Have `model` load its own state with each tensor of `source` at its place. What its state leaves out, such as a
    buffer that is not persistent, is set in place."""
    state = model.state_dict()
    loaded = {name: tensor for name, tensor in source.items() if chosen.get(name) in state}
    model.load_state_dict({**state, **{chosen[name]: tensor for name, tensor in loaded.items()}})
    set_in_place({name: tensor for name, tensor in source.items() if name not in loaded}, model, chosen)


def _require_shapes(places: Mapping[str, torch.Tensor]) -> None:
    for place, target in places.items():
        if is_lazy(target):
            raise CannotCarry(
                f"ModelNew's '{place}' has no shape until the model is called, and the reference's weights are carried "
                "before that. Give it its shape in __init__, as nn.Linear does and nn.LazyLinear does not."
            )


def _places(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _fits(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    return target.shape == tensor.shape and target.is_floating_point() == tensor.is_floating_point()


def _by_name(name: str, tensor: torch.Tensor, places: Mapping[str, torch.Tensor], taken: set[str]) -> str:
    matches = [
        place
        for place, target in places.items()
        if place not in taken and _fits(tensor, target) and _is_end(name, place)
    ]
    exact = [place for place in matches if place == name]
    if exact:
        return exact[0]
    return matches[0] if len(matches) == 1 else ""


def _is_end(one: str, other: str) -> bool:
    return one == other or one.endswith("." + other) or other.endswith("." + one)


def _by_other_words(left: Mapping[str, torch.Tensor], free: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Pairs of which each has no other to match by torch's words: where there are a `conv.bias` and a `norm.bias`,
    `beta` could be either's."""
    if not any(name.rpartition(".")[2] in _ALSO_CALLED for name in (*left, *free)):
        return {}
    matches = {
        name: [
            place
            for place, target in free.items()
            if _fits(tensor, target) and _is_end(_in_torchs_words(name), _in_torchs_words(place))
        ]
        for name, tensor in left.items()
    }
    asked_for = Counter(place for found in matches.values() for place in found)
    return {name: found[0] for name, found in matches.items() if len(found) == 1 and asked_for[found[0]] == 1}


def _in_torchs_words(name: str) -> str:
    before, dot, last = name.rpartition(".")
    return before + dot + _ALSO_CALLED.get(last, last)


def _by_shape(name: str, tensor: torch.Tensor, places: Mapping[str, torch.Tensor], taken: set[str]) -> str:
    for place, target in places.items():
        if place not in taken and _fits(tensor, target):
            return place
    have = ", ".join(f"{place} {tuple(target.shape)}" for place, target in places.items()) or "none"
    raise CannotCarry(
        f"The reference's '{name}' of shape {tuple(tensor.shape)} has no place in ModelNew, so a model with trained "
        f"weights could not use it. ModelNew's parameters and buffers: {have}. Register an nn.Parameter, or the buffer "
        f"that it is there, of that shape, best under the name '{name.rsplit('.', 1)[-1]}'."
    )
