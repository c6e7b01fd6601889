"""Which of PyTorch's operators normalise, and which only look so by their names.

benchmarks/operators.py compares both lists with the registry of the installed torch and prints what is in neither.
"""

from __future__ import annotations

import re

# ATen operators that normalise, by the names that reach a backend: everything higher decomposes to these.
NORMALISATIONS = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_batch_norm_no_update",
    "quantized_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "batch_norm_stats",
    "batch_norm_update_stats",
    "batch_norm_gather_stats",
    "batch_norm_gather_stats_with_counts",
    "batch_norm_elemt",
    "_fused_rms_norm",
    "rms_norm",  # computes elementary steps itself where a weight has another dtype
    # With centred rows and a gain of sqrt(n) these are LayerNorm without eps.
    "_weight_norm",
    "_weight_norm_interface",
    "renorm",
    "renorm_",
    "embedding_renorm",
    "embedding_renorm_",
    "native_layer_norm_backward",
    "native_group_norm_backward",
    "native_batch_norm_backward",
    "_fused_rms_norm_backward",
    "cudnn_batch_norm_backward",
    "miopen_batch_norm_backward",
    "batch_norm_backward",
    "batch_norm_backward_reduce",
    "batch_norm_backward_elemt",
    "_weight_norm_differentiable_backward",
    "_weight_norm_interface_backward",
)

# One operator by two names: the second asks for the first in most cases, and a problem that allows either allows both.
RMS_NORM = frozenset({"_fused_rms_norm", "rms_norm"})

# Tensors in oneDNN's layout are what TorchScript's own normalisation takes, prim::MKLDNNLayerNorm, which never asks the
# dispatcher.
ONEDNNS_LAYOUT = (
    "to_mkldnn",
    "mkldnn::_reorder_linear_weight",
    "mkldnn::_reorder_convolution_weight",
    "mkldnn::_reorder_convolution_transpose_weight",
    "mkldnn::_reorder_mkldnn_rnn_layer_weight",
)

# What makes one without values, which are then written by its address. Only tensors of that layout are refused.
ONEDNNS_LAYOUT_WITHOUT_VALUES = ("empty.memory_format", "MkldnnCPU")

# Softmax is a part of them.
_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_flash_attention_forward",
    "_efficient_attention_forward",
    "_cudnn_attention_forward",
)

# oneDNN's products, which have an operator inside that is named in an argument.
_POINTWISE = (
    "mkldnn::_linear_pointwise",
    "mkldnn::_convolution_pointwise",
    "mkldnn::_convolution_pointwise_",
    "mkldnn::_convolution_transpose_pointwise",
    "onednn::qlinear_pointwise",
    "onednn::qconv_pointwise",
    "onednn::qconv1d_pointwise",
    "onednn::qconv2d_pointwise",
    "onednn::qconv3d_pointwise",
)

# Operators with a second one inside that never ask the dispatcher for it: who may not run that one may not run these.
RELATIVES = {
    "gelu": (
        # The gradient times x has all but a Gaussian of it.
        "gelu_backward", "infinitely_differentiable_gelu_backward",
        "_addmm_activation", *_POINTWISE,
    ),
    "relu": ("_addmm_activation", *_POINTWISE),
    **dict.fromkeys(("silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu"), _POINTWISE),
    "_softmax": ("_masked_softmax", "_sparse_softmax", "_sparse_log_softmax", *_ATTENTION),
    "_log_softmax": ("_sparse_log_softmax",),
}  # fmt: skip

_DECOMPOSES = "decomposes to an operator that is forbidden"
_REDUCES = "gives a norm and divides nothing by it"
_DRAWS = "draws normal numbers"
_OPTIMISES = "a step of an optimiser"
_EIGHT_BITS = "works on 8-bit integers, which no problem's outputs are"

# Names that ask to be looked at, and why these need not be forbidden.
OTHERS = {
    **dict.fromkeys(
        (
            "aten::layer_norm", "aten::group_norm", "aten::batch_norm", "aten::instance_norm",
            "aten::_batch_norm_impl_index", "aten::_batch_norm_impl_index_backward", "aten::_no_grad_embedding_renorm_",
        ),
        _DECOMPOSES,
    ),
    **dict.fromkeys(
        (
            "aten::norm", "aten::native_norm", "aten::norm_except_dim", "aten::frobenius_norm", "aten::nuclear_norm",
            "aten::linalg_norm", "aten::linalg_matrix_norm", "aten::linalg_vector_norm", "aten::_foreach_norm",
        ),
        _REDUCES,
    ),
    **dict.fromkeys(
        (
            "aten::normal", "aten::normal_", "aten::normal_functional", "aten::log_normal", "aten::log_normal_",
            "aten::_philox_normal", "aten::_philox_normal_", "aten::_no_grad_normal_", "prims::normal",
        ),
        _DRAWS,
    ),
    **dict.fromkeys(
        (
            "aten::_fused_adagrad", "aten::_fused_adagrad_", "aten::_fused_adam", "aten::_fused_adam_",
            "aten::_fused_adamw", "aten::_fused_adamw_", "aten::_fused_sgd", "aten::_fused_sgd_",
        ),
        _OPTIMISES,
    ),
    **dict.fromkeys(
        (
            "onednn::qbatch_norm2d", "quantized::batch_norm", "quantized::batch_norm1d", "quantized::batch_norm1d_relu",
            "quantized::batch_norm2d", "quantized::batch_norm2d_relu", "quantized::batch_norm3d",
            "quantized::batch_norm3d_relu", "quantized::batch_norm_relu", "quantized::group_norm",
            "quantized::instance_norm", "quantized::layer_norm",
        ),
        _EIGHT_BITS,
    ),
    **dict.fromkeys(
        (
            "aten::_thnn_fused_gru_cell", "aten::_thnn_fused_gru_cell_backward", "aten::_thnn_fused_lstm_cell",
            "aten::_thnn_fused_lstm_cell_backward", "aten::_thnn_fused_lstm_cell_backward_impl",
        ),
        "gates of a recurrent cell",
    ),
    **dict.fromkeys(
        (
            "aten::_fused_sdp_choice", "aten::_scaled_dot_product_fused_attention_overrideable",
            "aten::_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        "attention, for a problem of attention to forbid",
    ),
    **dict.fromkeys(
        (
            "aten::fused_moving_avg_obs_fake_quant", "aten::_fused_moving_avg_obs_fq_helper",
            "aten::_fused_moving_avg_obs_fq_helper_functional",
        ),
        "observes ranges for quantising",
    ),
    **dict.fromkeys(
        (
            "symm_mem::fused_all_gather_matmul", "symm_mem::fused_all_gather_scaled_matmul",
            "symm_mem::fused_matmul_reduce_scatter", "symm_mem::fused_scaled_matmul_reduce_scatter",
        ),
        "multiplies matrices that lie on several GPUs",
    ),
    "aten::_fused_dropout": "drops elements",
    "static_runtime::fused_equally_split": "splits",
    "static_runtime::layer_norm": "is an operator of the static runtime, which cannot be entered",
    **dict.fromkeys(
        ("prim::MKLDNNLayerNorm", "prim::MKLDNNLayerNorm_"), "is taken from TorchScript's registry"
    ),
}  # fmt: skip

_LOOKS_LIKE_ONE = re.compile(r"norm|fused|welford|standardi[sz]e|whiten")


def unclassified(registered: list[str]) -> list[str]:
    """Those of the registered operators ('aten::norm.Scalar') whose names ask to be looked at, and that no list has."""
    names = {name.partition(".")[0] for name in registered}
    known = {f"aten::{name}" for name in NORMALISATIONS} | OTHERS.keys()
    return sorted(name for name in names - known if _LOOKS_LIKE_ONE.search(name.partition("::")[2]))
