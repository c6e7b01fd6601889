"""What `--against` names: baselines made from the reference, peers, and files of other submissions."""

from __future__ import annotations

from pathlib import Path

from harness import peers
from harness.errors import UsageError

# Where nothing is said; to compile takes longer than all else in a quick evaluation.
USUAL, QUICK = "eager,compile", "eager"

# torch.compile with CUDA graphs of its own.
WITH_GRAPHS = "reduce-overhead"

# torch.compile in its default mode, too.
COMPILED = ("compile", WITH_GRAPHS)

# Made from the reference itself, which the oracle is made from too.
OF_THE_REFERENCE = ("eager", *COMPILED)


def known() -> tuple[str, ...]:
    """The names that are no files."""
    return (*OF_THE_REFERENCE, *peers.DISTRIBUTIONS)


def is_file(name: str) -> bool:
    """Whether a name that `read` let pass is a submission's file."""
    return name not in known()


def read(text: str) -> list[str]:
    """The names in a list with commas, each once. Raises UsageError for one that is none."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if is_file(name) and not Path(name).is_file():
            raise UsageError(
                f"--against does not know '{name}', and there is no such file. It takes {', '.join(known())}, and "
                "submission files."
            )
    return names
