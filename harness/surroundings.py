"""What a program has set in PyTorch for all its code: a drop-in's call leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from harness.errors import KernelgateError

# Each by the words in which a message names it.
_SETTINGS: dict[str, Callable[[], object]] = {
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled,
    "torch.is_autocast_enabled('cuda')": lambda: torch.is_autocast_enabled("cuda"),
    "torch.is_autocast_enabled('cpu')": lambda: torch.is_autocast_enabled("cpu"),
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_default_device()": torch.get_default_device,
    "torch.get_num_threads()": torch.get_num_threads,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "torch.backends.cuda.matmul.fp32_precision": lambda: getattr(torch.backends.cuda.matmul, "fp32_precision", None),
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.initial_seed()": torch.initial_seed,
    "torch.cuda.initial_seed()": lambda: torch.cuda.initial_seed() if torch.cuda.is_initialized() else None,
}


class SettingChanged(KernelgateError):
    """A call left a setting of PyTorch's changed; the text says which, and what to do."""


class NotOfThisMode(KernelgateError):
    """A call returned a tensor that its caller's mode cannot use; the text says which."""


@contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Around a call of `model`. Raises SettingChanged where PyTorch's settings, or the model's mode, are others behind
    it; a call that raises is asked nothing."""
    before = _found(model)
    yield
    for name, now in _found(model).items():
        if now != before[name]:
            raise SettingChanged(
                f"The call left {name} at {now}, and found it at {before[name]}. Whatever runs later works with that. "
                "Put it back before forward returns, as `with torch.no_grad():` does."
            )


def is_of_another_mode(output: object) -> bool:
    """Whether a result is an inference tensor outside of inference mode, which no autograd can use."""
    return isinstance(output, torch.Tensor) and output.is_inference() and not torch.is_inference_mode_enabled()


def require_of_this_mode(outputs: Sequence[torch.Tensor]) -> None:
    """Raises NotOfThisMode where one of a submission's results `is_of_another_mode`."""
    for position, output in enumerate(outputs):
        if is_of_another_mode(output):
            raise NotOfThisMode(
                f"Output {position} is an inference tensor, which autograd cannot use, and the caller is not in "
                "inference mode. Use torch.no_grad() in place of torch.inference_mode()."
            )


def _found(model: torch.nn.Module) -> dict[str, object]:
    return {"self.training": model.training, **{name: read() for name, read in _SETTINGS.items()}}
