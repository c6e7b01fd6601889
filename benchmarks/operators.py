"""`python benchmarks/operators.py`: the operators of the installed torch that look like normalisations and that nobody
has classified (harness/norms.py), with their schemas. Exit code 1 when there are any."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.norms import unclassified


def main() -> int:
    of_torchscript = (schema.name for schema in torch._C._jit_get_all_schemas())
    registered = [*torch._C._dispatch_get_all_op_names(), *of_torchscript]
    new = unclassified(registered)
    for name in new:
        for schema in torch._C._jit_get_schemas_for_operator(name):
            print(schema)
    if new:
        print(f"{len(new)} operators of torch {torch.__version__} are in neither list.", file=sys.stderr)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
