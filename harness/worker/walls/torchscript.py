"""TorchScript's operators that never ask the dispatcher: in a submission's process they do not exist."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

# Those that run a graph which a node of theirs holds, whoever has made it, and the one that normalises: its tensors are
# in oneDNN's layout, which several functions of libtorch give.
PAST_THE_DISPATCHER = (
    "prim::StaticSubgraph",
    "prim::TensorExprGroup",
    "prim::TensorExprDynamicGroup",
    "prim::oneDNNFusionGroup",
    "prim::FusionGroup",
    "prim::MKLDNNLayerNorm",
    "prim::MKLDNNLayerNorm_",
)

# torch::jit::deregisterOperator(const FunctionSchema&), of torch/csrc/jit/runtime/operator.h, as it is mangled.
_DEREGISTER = "_ZN5torch3jit18deregisterOperatorERKN3c1014FunctionSchemaE"

# Where an object of pybind11's has the address of what it stands for: behind its count of references and its type
# (pybind11/detail/common.h, struct instance).
_VALUE_AT = 2 * ctypes.sizeof(ctypes.c_void_p)


def remove_operators() -> None:
    """Take them from TorchScript's registry; what this version of torch does not have stays away."""
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
    deregister = getattr(library, _DEREGISTER)
    deregister.restype, deregister.argtypes = None, [ctypes.c_void_p]
    for name in PAST_THE_DISPATCHER:
        for schema in torch._C._jit_get_schemas_for_operator(name):
            deregister(ctypes.c_void_p.from_address(id(schema) + _VALUE_AT))
