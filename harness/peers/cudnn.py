"""cuDNN through its Python front end: a graph for each shape, built at the first call, which is not timed. A training
step goes through the front end's own functions, which know the backward."""

from __future__ import annotations

from functools import cache
from typing import Any

import cudnn
import torch
from torch import nn

DISTRIBUTION = "nvidia-cudnn-frontend"
NEEDS_GPU = True


_DTYPES = {
    torch.float32: cudnn.data_type.FLOAT,
    torch.float16: cudnn.data_type.HALF,
    torch.bfloat16: cudnn.data_type.BFLOAT16,
}


@cache
def _handle() -> Any:
    return cudnn.create_handle()


class _Plan:
    """A norm as cuDNN sees it: rows as the batch, what is normalised as channels."""

    def __init__(self, norm: str, rows: torch.Tensor, parameters: tuple[torch.Tensor, ...], eps: float) -> None:
        graph = cudnn.pygraph(
            io_data_type=_DTYPES[rows.dtype],
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=_handle(),
        )
        self._eps = torch.full((1, 1, 1, 1), eps)  # on the CPU: passed by value
        self._ports = [graph.tensor_like(t) for t in (rows, *parameters, self._eps)]
        names = ("input", "scale", "bias")[: len(self._ports) - 1]
        arguments = dict(zip(names, self._ports, strict=False)) | {"epsilon": self._ports[-1]}
        out, *_ = getattr(graph, norm)(norm_forward_phase=cudnn.norm_forward_phase.INFERENCE, **arguments)
        out.set_output(True).set_data_type(_DTYPES[rows.dtype])
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self._graph, self._out = graph, out
        self._workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device=rows.device)

    def __call__(self, rows: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
        y = torch.empty_like(rows)
        cudnn.set_stream(handle=_handle(), stream=torch.cuda.current_stream().cuda_stream)
        buffers = dict(zip(self._ports, (rows, *parameters, self._eps), strict=True)) | {self._out: y}
        self._graph.execute(buffers, self._workspace, handle=_handle())
        return y


@cache
def _plan(norm: str, shape: torch.Size, dtype: torch.dtype, eps: float, device: torch.device) -> _Plan:
    rows = torch.empty(shape, dtype=dtype, device=device)
    parameter = torch.empty((1, *shape[1:]), dtype=dtype, device=device)
    return _Plan(norm, rows, (parameter,) * (2 if norm == "layernorm" else 1), eps)


def _normalised(norm: str, x: torch.Tensor, parameters: tuple[torch.Tensor, ...], eps: float) -> torch.Tensor:
    width = parameters[0].numel()
    if torch.is_grad_enabled():
        rows, flat = x.reshape(-1, width), [p.flatten() for p in parameters]
        return _with_backward(norm, rows, flat, eps).view(x.shape)
    rows = x.contiguous().view(-1, width, 1, 1)
    plan = _plan(norm, rows.shape, rows.dtype, eps, rows.device)
    return plan(rows, tuple(p.view(1, width, 1, 1) for p in parameters)).view(x.shape)


def _with_backward(norm: str, rows: torch.Tensor, parameters: list[torch.Tensor], eps: float) -> torch.Tensor:
    try:
        from cudnn.ops.norm import layer_norm, rms_norm
    except ImportError as error:
        raise NotImplementedError(f"this nvidia-cudnn-frontend has no backward: {error}") from error
    if norm == "rmsnorm":
        return rms_norm(rows, *parameters, eps=eps)
    return layer_norm(rows, tuple(rows.shape[1:]), *parameters, eps=eps)


class LayerNorm(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight is None or self.bias is None:
            raise NotImplementedError("cuDNN's LayerNorm has a scale and a bias")
        return _normalised("layernorm", x, (self.weight, self.bias), self.eps)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.eps is not None
        return _normalised("rmsnorm", x, (self.weight,), self.eps)


IMPLEMENTATIONS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
