"""Scaled dot-product attention, of one or several queries for each key."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import container
from quantizer.runtime.onnx.kernels import kernel


def _heads(x: Tensor, count: int | None) -> Tensor:
    """Return [batch, heads, sequence, head size]."""
    if x.dim() == 4:
        return x
    if x.dim() != 3 or not count or x.shape[2] % count:
        raise UnsupportedError(f"Attention: operand of shape {list(x.shape)} with {count} heads.")
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _bias(mask: Tensor | None, queries: int, keys: int, past: int, kind: torch.dtype, *, causal: bool) -> Tensor:
    """Return what is added to the scores: the mask, minus infinity where it ends early, and ahead of each query."""
    bias = torch.zeros(queries, keys, dtype=kind)
    if mask is not None:
        missing = keys - mask.shape[-1]
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=kind).masked_fill(~mask, -math.inf)
        if missing > 0:
            mask = torch.nn.functional.pad(mask, [0, missing], value=-math.inf)
        bias = bias + mask
    if causal:
        ahead = torch.arange(keys) > torch.arange(queries).reshape(-1, 1) + past
        bias = bias.masked_fill(ahead, -math.inf)
    return bias


@kernel("Attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, nonpad_kv_seqlen: Tensor | None = None, *, is_causal: int,
    q_num_heads: int | None = None, kv_num_heads: int | None = None, scale: float | None = None, softcap: float,
    softmax_precision: DType | None = None, qk_matmul_output_mode: int, made: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Softmax of the scaled and masked products of queries and keys, times the values; also the keys, values, scores."""
    flat = q.dim() == 3
    queries, keys, values = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    keys = keys if past_key is None else torch.cat([past_key, keys], dim=2)
    values = values if past_value is None else torch.cat([past_value, values], dim=2)
    present = keys, values
    root = math.sqrt(1 / math.sqrt(queries.shape[3]) if scale is None else scale)
    bias = _bias(attn_mask, queries.shape[2], keys.shape[2], past, queries.dtype, causal=bool(is_causal))
    if nonpad_kv_seqlen is not None:
        padding = torch.arange(keys.shape[2]) >= nonpad_kv_seqlen.reshape(-1, 1, 1, 1)
        bias = bias.masked_fill(padding, -math.inf)
    if queries.shape[1] % keys.shape[1]:
        raise UnsupportedError(f"Attention: {queries.shape[1]} query heads for {keys.shape[1]} key heads: must divide.")
    repeats = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(repeats, dim=1), values.repeat_interleave(repeats, dim=1)
    scores = (queries * root) @ (keys * root).transpose(2, 3)
    stages = [scores, scores + bias]
    stages.append(softcap * torch.tanh(stages[1] / softcap) if softcap > 0 else stages[1])
    wide = stages[2].to(container(softmax_precision)) if isinstance(softmax_precision, DType) else stages[2]
    stages.append(torch.softmax(wide, dim=-1))
    y = (stages[3].to(values.dtype) @ values).to(q.dtype)
    y = y.transpose(1, 2).flatten(2) if flat else y
    if qk_matmul_output_mode not in range(4):
        raise UnsupportedError(f"Attention: qk_matmul_output_mode={qk_matmul_output_mode}: must be 0 to 3.")
    return (y, *present, stages[qk_matmul_output_mode].to(q.dtype))[:made]
