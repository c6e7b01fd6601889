"""What sees each of PyTorch's operators as a reference runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """A dispatch mode that does not load PyTorch's compiler, which the others do at their first operator to be left
    alone by it: a second of an evaluation, and nothing is compiled where these are."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
