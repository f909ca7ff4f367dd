"""JAX on the processor: each case is one function that XLA compiles, from codes to codes, in float32."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NAME, VERSION, FORM, FLOATS = "jax", jax.__version__, "npz", True
jax.config.update("jax_platforms", "cpu")
# codes of 32 bits and more keep their bits; real numbers are float32 all the same
jax.config.update("jax_enable_x64", True)  # noqa: FBT003
# float32 products: the default may round operands to fewer bits
EXACT = lax.Precision.HIGHEST
Made = Mapping[str, Any]
Values = dict[str, Any]


def _convolved(made: Made, v: Values) -> Any:
    attrs, x = made["attrs"], v["x"]
    rank = len(attrs["stride"])
    pads = attrs["padding"]
    y = lax.conv_general_dilated(
        x,
        v["weight"],
        attrs["stride"],
        list(zip(pads[:rank], pads[rank:], strict=True)),
        rhs_dilation=attrs["dilation"],
        feature_group_count=attrs.get("groups", x.shape[1]),
        precision=EXACT,
    )
    return y + v["bias"].reshape([1, -1] + [1] * rank) if "bias" in v else y


def _product(made: Made, v: Values) -> Any:
    y = jnp.matmul(v["x"], v["weight"].T, precision=EXACT)
    return y + v["bias"] if "bias" in v else y


def _pooled(made: Made, v: Values) -> Any:
    attrs, x = made["attrs"], v["x"]
    if attrs["ceil_mode"]:
        raise NotImplementedError("reduce_window rounds the count of windows down")
    pads, window, steps = attrs["padding"], (1, 1, *attrs["kernel"]), (1, 1, *attrs["stride"])
    around = ((0, 0), (0, 0), *zip(pads[:2], pads[2:], strict=True))
    if made["op"] == "max_pool2d":
        return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, around)
    sums = lax.reduce_window(x, 0.0, lax.add, window, steps, around)
    if attrs["count_include_pad"]:
        return sums / np.float32(np.prod(attrs["kernel"]))
    # sums of ones count the places inside the image
    return sums / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, window, steps, around)


def _reduced(function: Callable[..., Any]) -> Callable[[Made, Values], Any]:
    return lambda made, v: function(v["x"], axis=tuple(made["attrs"]["axes"]), keepdims=made["attrs"]["keepdims"])


def _unary(function: Callable[[Any], Any]) -> Callable[[Made, Values], Any]:
    return lambda _, v: function(v["x"])


FUNCTIONS: Mapping[str, Callable[[Made, Values], Any]] = {
    "add": lambda _, v: v["a"] + v["b"],
    "sub": lambda _, v: v["a"] - v["b"],
    "mul": lambda _, v: v["a"] * v["b"],
    "div": lambda _, v: v["a"] / v["b"],
    "maximum": lambda _, v: jnp.maximum(v["a"], v["b"]),
    "minimum": lambda _, v: jnp.minimum(v["a"], v["b"]),
    "matmul": lambda _, v: jnp.matmul(v["a"], v["b"], precision=EXACT),
    "fully_connected": _product,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d"), _convolved),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pooled),
    "global_avg_pool2d": lambda _, v: v["x"].mean((2, 3), keepdims=True),
    "reduce_mean": _reduced(jnp.mean),
    "reduce_sum": _reduced(jnp.sum),
    "reduce_max": _reduced(jnp.max),
    "reduce_min": _reduced(jnp.min),
    "softmax": lambda made, v: jax.nn.softmax(v["x"], axis=made["attrs"]["axis"]),
    "log_softmax": lambda made, v: jax.nn.log_softmax(v["x"], axis=made["attrs"]["axis"]),
    "leaky_relu": lambda made, v: jnp.where(v["x"] < 0, np.float32(made["attrs"]["slope"]) * v["x"], v["x"]),
    "elu": lambda made, v: jax.nn.elu(v["x"], np.float32(made["attrs"]["alpha"])),
    "gelu": lambda made, v: jax.nn.gelu(v["x"], approximate=made["attrs"]["approximate"] == "tanh"),
    "clip": lambda made, v: jnp.clip(v["x"], made["attrs"]["low"], made["attrs"]["high"]),
    "relu": _unary(jax.nn.relu),
    "sigmoid": _unary(jax.nn.sigmoid),
    "tanh": _unary(jnp.tanh),
    "silu": _unary(jax.nn.silu),
    "mish": _unary(jax.nn.mish),
    "softplus": _unary(jax.nn.softplus),
    "softsign": _unary(jax.nn.soft_sign),
    "hard_swish": _unary(jax.nn.hard_swish),
    "erf": _unary(jax.scipy.special.erf),
    "exp": _unary(jnp.exp),
    "log": _unary(jnp.log),
    "sqrt": _unary(jnp.sqrt),
    "rsqrt": _unary(lax.rsqrt),
    "reciprocal": _unary(lambda x: 1 / x),
    "abs": _unary(jnp.abs),
    "negative": _unary(jnp.negative),
    "square": _unary(jnp.square),
    "sine": _unary(jnp.sin),
    "cosine": _unary(jnp.cos),
    "atan": _unary(jnp.arctan),
    "quantize": _unary(lambda x: x),
}
"""Operator -> its value on float32 operands."""
OPERATORS = [*FUNCTIONS]
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "none": lambda y: y,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
}


def _real(codes: Any, known: Made | None) -> Any:
    """Return float32 values of codes; an operand without parameters is returned unchanged."""
    if known is None:
        return codes
    scale, zero = (np.array(known[name], kind) for name, kind in (("scale", np.float32), ("zero_point", np.int64)))
    if scale.ndim:
        shape = [-1 if axis == (known["axis"] or 0) else 1 for axis in range(codes.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (codes.astype(jnp.int64) - zero).astype(jnp.float32) * scale


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return the compiled function of a case."""
    made = json.loads(model)
    y, real = made["output"], made["output"]["type"] == "float32"

    def computed(feeds: Values) -> Any:
        values = {name: _real(codes, made["inputs"].get(name)) for name, codes in feeds.items()}
        found = ACTIVATIONS[made["activation"]](FUNCTIONS[made["op"]](made, values))
        if real:
            return found
        codes = jnp.round(found / np.float32(y["scale"])) + np.float32(y["zero_point"])
        return jnp.clip(codes, y["lowest"], y["highest"]).astype(y["type"])

    # compiled as one function, so that XLA may fuse what it would fuse in a model
    return jax.jit(computed)


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the output."""
    return [np.array(session({name: values for name, values in feeds.items() if not name.startswith("table ")}))]
