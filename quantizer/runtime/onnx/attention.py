"""Scaled dot-product attention. Several query heads may share a key head."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import container
from quantizer.runtime.onnx.activations import softmax_along
from quantizer.runtime.onnx.kernels import Context, kernel


def _heads(x: Tensor, count: int | None) -> Tensor:
    """Return [batch, heads, sequence, head size]."""
    if x.dim() == 4:
        return x
    if x.dim() != 3 or not count or x.shape[2] % count:
        raise UnsupportedError(
            f"Attention: operand of shape {list(x.shape)} with {count} heads: must have 4 axes, or 3 and a last "
            "size that is a multiple of the heads."
        )
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _allowed(queries: int, keys: int, offset: Tensor | int, left: int, right: int, *, causal: bool) -> Tensor:
    """Return which keys each query may see: up to its own place if causal, and within its window."""
    place = torch.arange(queries).reshape(-1, 1) + offset
    ahead = torch.arange(keys) - place
    allowed = torch.ones_like(ahead, dtype=torch.bool)
    if causal:
        allowed &= ahead <= 0
    if left >= 0:
        allowed &= -ahead <= left
    if right >= 0:
        allowed &= ahead <= right
    return allowed


def _bias(mask: Tensor | None, keys: int, allowed: Tensor, kind: torch.dtype) -> Tensor:
    """Return what is added to the scores: the mask, with minus infinity past its end and for forbidden keys."""
    bias = torch.zeros(allowed.shape, dtype=kind).masked_fill(~allowed, -math.inf)
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=kind).masked_fill(~mask, -math.inf)
    # a mask may be shorter than the keys: the rest is forbidden
    if keys > mask.shape[-1]:
        mask = torch.nn.functional.pad(mask, [0, keys - mask.shape[-1]], value=-math.inf)
    return bias + mask


def _check(
    mode: int, left: int, right: int, past_key: Tensor | None, past_value: Tensor | None, known: Tensor | None
) -> None:
    """Raise UnsupportedError for attributes and caches that the standard does not allow together."""
    if mode not in range(4):
        raise UnsupportedError(f"Attention: qk_matmul_output_mode={mode}: must be 0 to 3.")
    if min(left, right) < -1 or (past_key is None) != (past_value is None):
        raise UnsupportedError("Attention: windows must be -1 or more, past_key and past_value must come together.")
    if known is not None and past_key is not None:
        raise UnsupportedError("Attention: past_key with nonpad_kv_seqlen: must be one of the two.")


def _for_each_query_head(shared: Tensor, queries: Tensor) -> Tensor:
    """Return keys or values repeated so that each query head has its own."""
    if queries.shape[1] % shared.shape[1]:
        raise UnsupportedError(
            f"Attention: {queries.shape[1]} query heads: must be a multiple of the {shared.shape[1]} key heads."
        )
    return shared.repeat_interleave(queries.shape[1] // shared.shape[1], dim=1)


def _scores(queries: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    """Return the scaled products; each factor is multiplied by the root of the scale, as in the standard's function."""
    root = torch.tensor(math.sqrt(1 / math.sqrt(queries.shape[3]) if scale is None else scale), dtype=queries.dtype)
    return (queries * root) @ (keys * root).transpose(2, 3)


@kernel("Attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    scale: float | None = None,
    softcap: float,
    softmax_precision: DType | None = None,
    qk_matmul_output_mode: int,
    left_window_size: int = -1,
    right_window_size: int = -1,
    made: int,
) -> tuple[Tensor, ...]:
    """Return shares times values, then keys, values and scores; shares: the softmax of scaled, capped, masked products.

    Follows the standard since onnx 1.23, for every version of the operator: the cap comes before the mask, a query that
    sees no key gives zeros, and a causal query with an external cache counts from the cache's end.
    `qk_matmul_output_mode` selects the scores that are returned: 0 raw, 1 capped, 2 masked, 3 after softmax.
    """
    _check(qk_matmul_output_mode, left_window_size, right_window_size, past_key, past_value, nonpad_kv_seqlen)
    queries, keys, values = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    keys = keys if past_key is None else torch.cat([past_key, keys], dim=2)
    values = values if past_value is None else torch.cat([past_value, values], dim=2)
    count, length = queries.shape[2], keys.shape[2]
    known = None if nonpad_kv_seqlen is None else nonpad_kv_seqlen.reshape(-1, 1, 1, 1)
    # the place of the first query among the keys
    offset = past if known is None else known - count
    allowed = _allowed(count, length, offset, left_window_size, right_window_size, causal=bool(is_causal))
    if known is not None:
        allowed = allowed & (torch.arange(length) < known)
    bias = _bias(attn_mask, length, allowed, queries.dtype)
    scores = _scores(queries, _for_each_query_head(keys, queries), scale)
    capped = softcap * torch.tanh(scores / softcap) if softcap > 0 else scores
    masked = capped + bias
    wide = masked.to(container(softmax_precision)) if isinstance(softmax_precision, DType) else masked
    # a softmax over minus infinities is NaN
    blind = (bias == -math.inf).all(dim=-1, keepdim=True)
    shares = softmax_along(wide, -1).masked_fill(blind, 0).to(q.dtype)
    y = (shares.to(values.dtype) @ _for_each_query_head(values, queries)).to(q.dtype)
    y = y.transpose(1, 2).flatten(2) if q.dim() == 3 else y
    return (y, keys, values, (scores, capped, masked, shares)[qk_matmul_output_mode].to(q.dtype))[:made]


@kernel("ai.onnx.preview::FlexAttention")
def flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    softmax_precision: DType | None = None,
    score_mod: str | None = None,
    prob_mod: str | None = None,
    ctx: Context,
) -> Tensor:
    """Compute attention; bodies of the model may modify scores and shares. In float32 or the requested type."""
    shapes = [list(x.shape) for x in (q, k, v)]
    if {len(shape) for shape in shapes} != {4} or k.shape[1:3] != v.shape[1:3] or q.shape[3] != k.shape[3]:
        raise UnsupportedError(f"FlexAttention of {shapes}: must be [batch, heads, sequence, size].")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise UnsupportedError(
            f"FlexAttention: {q.shape[1]} query heads: must be a multiple of the {k.shape[1]} key heads."
        )
    kind = torch.float64 if q.dtype == torch.float64 else torch.float32
    kind = container(softmax_precision) if isinstance(softmax_precision, DType) else kind
    keys, values = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    root = torch.tensor(math.sqrt(1 / math.sqrt(q.shape[3]) if scale is None else scale), dtype=q.dtype)
    scores = _modified(ctx, score_mod, ((q * root) @ (keys * root).transpose(2, 3)).to(kind))
    shares = _modified(ctx, prob_mod, softmax_along(scores, -1))
    return (shares @ values.to(kind)).to(v.dtype)


def _modified(ctx: Context, body: str | None, values: Tensor) -> Tensor:
    """Return the scores after a body of the model; unchanged if there is no body."""
    if body is None:
        return values
    graph = ctx.graph.subgraphs[body]
    assert ctx.run_body is not None
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise UnsupportedError(f"FlexAttention: body {body!r}: must have one input and one output.")
    made = ctx.run_body(graph, {graph.inputs[0]: values})[0]
    if made.shape != values.shape or made.dtype != values.dtype:
        raise UnsupportedError(f"FlexAttention: body {body!r}: must keep {values.dtype} {list(values.shape)}.")
    return made
