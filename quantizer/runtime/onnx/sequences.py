"""Parts of language models other than softmax attention: rotary positions, gates, caches, linear attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import axis_of, kernel, one_of, sized

RULES = ("linear", "gated", "delta", "gated_delta")


@kernel("SwiGLU")
def swiglu(a: Tensor, b: Tensor, *, alpha: float) -> Tensor:
    """Return a * sigmoid(alpha * a) * b; both operands have one shape."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise UnsupportedError(
            f"SwiGLU of {a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}: must have the same type and shape."
        )
    return a * torch.sigmoid(alpha * a) * b


@kernel("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Rotate pairs among the first `rotary_embedding_dim` elements of each head by the angle of their position.

    A pair is one element of each half, or with `interleaved` two neighbours. Shapes: [batch, heads, sequence, size] or
    [batch, sequence, heads * size].
    """
    if x.dim() == 3 and (num_heads < 1 or x.shape[2] % num_heads):
        raise UnsupportedError(f"RotaryEmbedding of {list(x.shape)}: num_heads={num_heads} must divide the last axis.")
    heads = x.transpose(1, 2) if x.dim() == 4 else x.reshape(x.shape[0], x.shape[1], num_heads, -1)
    turned = rotary_embedding_dim or heads.shape[3]
    if position_ids is not None:
        cos_cache, sin_cache = (cache[position_ids.long()] for cache in (cos_cache, sin_cache))
    if turned % 2 or turned > heads.shape[3] or {cos_cache.shape[-1], sin_cache.shape[-1]} != {turned // 2}:
        raise UnsupportedError(
            f"RotaryEmbedding: {turned} elements with caches of {list(cos_cache.shape)} and {list(sin_cache.shape)}: "
            f"must be even, at most {heads.shape[3]}, and twice the last size of the caches."
        )
    cos, sin = cos_cache.unsqueeze(2), sin_cache.unsqueeze(2)
    part, rest = heads[..., :turned], heads[..., turned:]
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, dim=-1)
    # a rotation of (a, b)
    pair = (cos * a - sin * b, sin * a + cos * b)
    part = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    y = torch.cat([part, rest], dim=-1)
    return y.transpose(1, 2) if x.dim() == 4 else y.reshape(x.shape)


@kernel("TensorScatter")
def tensor_scatter(
    cache: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write the update into a cache along an axis, from each example's index on; circular: continue at its start."""
    along = axis_of("TensorScatter", axis, cache.dim())
    length, count = cache.shape[along], update.shape[along]
    alike = all(i == along or a == b for i, (a, b) in enumerate(zip(cache.shape, update.shape, strict=False)))
    one_of("TensorScatter", "mode", mode, ("linear", "circular"))
    if not along or cache.dim() != update.dim() or not alike or count > length:
        raise UnsupportedError(
            f"TensorScatter of {list(update.shape)} into {list(cache.shape)}, {axis=}: axis must not be 0, and the "
            "update must have the cache's shape, or less along axis."
        )
    start = torch.zeros(cache.shape[0], dtype=torch.int64) if write_indices is None else write_indices.long()
    places = start.reshape(-1, 1) + torch.arange(count)
    places = places % length if mode == "circular" else places
    if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < length):
        raise UnsupportedError(
            f"TensorScatter: {count} elements from {start.tolist()} on do not fit an axis of {length}."
        )
    # an index for each example and place, the same along all other axes
    shape = [cache.shape[0], *(count if i == along else 1 for i in range(1, cache.dim()))]
    return cache.scatter(along, places.reshape(shape).expand_as(update), update)


@kernel("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int, time_axis: int) -> Tensor:
    """Reverse the first `length` time steps of each example."""
    batch, time = (axis_of("ReverseSequence", axis, x.dim()) for axis in (batch_axis, time_axis))
    known = lengths.long().reshape(-1, 1)
    if (
        {batch, time} != {0, 1}
        or known.shape[0] != x.shape[batch]
        or bool(((known < 0) | (known > x.shape[time])).any())
    ):
        raise UnsupportedError(
            f"ReverseSequence of {list(x.shape)}, {batch_axis=}, {time_axis=}, lengths {lengths.tolist()}: the axes "
            "must be 0 and 1, with one length in [0, size of time_axis] for each example."
        )
    step = torch.arange(x.shape[time])
    # steps past an example's length stay where they are
    places = torch.where(step < known, known - 1 - step, step)
    places = (places.T if time == 0 else places).reshape(*x.shape[:2], *[1] * (x.dim() - 2))
    return torch.gather(x, time, places.expand_as(x))


@kernel("CausalConvWithState")
def causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None, *, activation: str, made: int
) -> tuple[Tensor, ...]:
    """Convolve each channel along its current and earlier inputs; the last inputs are the next call's state."""
    before = weight.shape[-1] - 1
    one_of("CausalConvWithState", "activation", activation, ("none", "silu", "swish"))
    if x.dim() != 3 or weight.shape[:2] != (x.shape[1], 1):
        raise UnsupportedError(
            f"CausalConvWithState of {list(x.shape)} by {list(weight.shape)}: must be [n, c, length] by [c, 1, size]."
        )
    start = x.new_zeros(*x.shape[:2], before) if past is None else past
    if start.shape != (*x.shape[:2], before):
        raise UnsupportedError(f"CausalConvWithState: past_state of {list(start.shape)}: must hold {before} inputs.")
    whole = torch.cat([start, x], dim=2)
    y = F.conv1d(whole.float(), weight.float(), None if bias is None else bias.float(), groups=x.shape[1]).to(x.dtype)
    y = y if activation == "none" else (y.float() * torch.sigmoid(y.float())).to(x.dtype)
    return (y, whole[:, :, whole.shape[2] - before :])[:made]


def _check_rule(update_rule: str, decay: Tensor | None, beta: Tensor | None) -> None:
    """Raise UnsupportedError for an unknown rule, or operands that do not go with it."""
    one_of("LinearAttention", "update_rule", update_rule, RULES)
    if ("gated" in update_rule) != (decay is not None) or ("delta" in update_rule) != (beta is not None):
        raise UnsupportedError(
            f"LinearAttention: update_rule={update_rule!r}: decay must come with a gated rule, beta with a delta rule."
        )


def _heads(x: Tensor, count: int) -> Tensor:
    """Return [batch, time, heads, size] in float32; UnsupportedError if *count* heads do not divide the last axis."""
    if x.shape[2] % count:
        raise UnsupportedError(
            f"LinearAttention: operand of shape {list(x.shape)}: {count} heads must divide the last axis."
        )
    return x.float().reshape(x.shape[0], x.shape[1], count, -1)


@kernel("LinearAttention")
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str,
    chunk_size: int = 0,
    made: int,
) -> tuple[Tensor, ...]:
    """Multiply queries by a state to which every step adds key times value; all in float32.

    Gated rules first shrink the state by exp(decay), delta rules write beta * (value - what the key finds) instead of
    the value. Shapes: [batch, time, heads * size]; state [batch, heads of keys, key size, value size]. `chunk_size` is
    a hint.
    """
    _check_rule(update_rule, decay, beta)
    if (
        q_num_heads < 1
        or kv_num_heads < 1
        or q_num_heads % kv_num_heads
        or {query.dim(), key.dim(), value.dim()} != {3}
    ):
        raise UnsupportedError(
            f"LinearAttention: {q_num_heads=}, {kv_num_heads=}, query {list(query.shape)}: operands must have 3 axes, "
            "and the query heads must be a multiple of the key heads."
        )
    q, k, v = _heads(query, q_num_heads), _heads(key, kv_num_heads), _heads(value, kv_num_heads)
    batch, steps, _, size = k.shape
    shape = sized("LinearAttention", (batch, kv_num_heads, size, v.shape[3]), torch.float32)
    state = torch.zeros(shape) if past is None else past.float()
    if state.shape != shape:
        raise UnsupportedError(f"LinearAttention: past_state of shape {list(state.shape)}: must be {list(shape)}.")
    shrink = None if decay is None else _heads(decay, kv_num_heads).exp().unsqueeze(-1)
    gain = None if beta is None else beta.float().unsqueeze(-1)
    factor = scale or 1 / math.sqrt(size)
    found = []
    for t in range(steps):
        state = state if shrink is None else state * shrink[:, t]
        new = v[:, t]
        if gain is not None:
            # the delta rule corrects what the state returns for this key
            new = gain[:, t] * (new - torch.einsum("bhdm,bhd->bhm", state, k[:, t]))
        state = state + k[:, t].unsqueeze(-1) * new.unsqueeze(-2)
        # several query heads read the state of one key head
        read = state.repeat_interleave(q_num_heads // kv_num_heads, dim=1)
        found.append(factor * torch.einsum("bhd,bhdm->bhm", q[:, t], read))
    y = torch.stack(found, dim=1).flatten(2) if found else query.new_zeros(batch, 0, q_num_heads * v.shape[3])
    return (y.to(query.dtype), state.to(query.dtype if past is None else past.dtype))[:made]
