"""The value of `global_calibration`: methods with their numbers, and the layers to which they apply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from quantizer.optimize.per_layer import LayerKey, PerLayer, parse_per_layer
from quantizer.optimize.values import Kind, Value, boolean

METHOD = re.compile(r"(?P<name>[a-z_]+)(?:\[(?P<numbers>[-+.e\d,]*)\])?(?P<scope>\[.*\]|\{.*\})?", re.IGNORECASE)
DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "equalization": {"rounds": 10},
    "smooth_quant_zy": {
        "alpha": 0.5,
        "auto_tune": 0,
        "auto_least": 0,
        "auto_most": 1,
        "auto_points": 10,
        "insert_norm": 0,
    },
    "adaround": {
        "batches": 1,
        "epochs": 1,
        "batch_size": 1,
        "learning_rate": 0.001,
        "regularization": 0.01,
        "beta_first": 20,
        "beta_last": 2,
        "warm_start": 0.2,
    },
    "adaquant_zy": {
        "batches": 1,
        "epochs": 1,
        "batch_size": 1,
        "weight_rate": 0.00001,
        "bias_rate": 0.001,
        "scale_rate": 0.001,
        "input_rate": 0.1,
    },
    "gptq_zy": {"batches": 1, "act_order": 1, "damping": 0.01, "block": 128},
    "awq_zy": {"points": 20, "most_shrunk": 0, "insert_norm": 0},
    "mvn_correction": {
        "mode": 0,
        "alpha": 0.5,
        "before": 0,
        "behind": 0,
        "activation_bits": 16,
        "weight_bits": 16,
        "bias_bits": 48,
        "lut_bits": 10,
        "multiplier_bits": 16,
    },
    "svd_quant": {"mode": 0, "smallest": 0.5, "largest": 2, "points": 10, "threshold": 0.09},
}
"""Method -> its numbers in order, each with its default; equalization is ours, the others are Compass's."""
WITHOUT_EFFECT = ("awq_zy", "svd_quant")
"""Methods that are accepted only if they change nothing. A graph that they would change is refused."""
LAST = ("adaquant_zy", "adaround", "gptq_zy")
"""Methods that choose codes or scales; no other method may follow them."""
ZERO = ("auto_tune", "insert_norm")
"""Parameters for which only these values are implemented."""
ALPHA = 1
"""The index of mvn_correction's alpha. If it is left out, it is 1 from mode 1 on."""
RATES = 3
"""How many numbers of adaquant_zy come before its rates.

All rates or none must be given: the original fails for some.
"""
LARGEST = 10**6
"""The limit for every number of a method."""
LEGAL = (
    f"none, or methods joined by &, such as gptq_zy[1,1,0.01,128], with numbers from 0 to {LARGEST}; implemented here:"
    f" {', '.join(DEFAULTS)}"
)


@dataclass(frozen=True)
class Method:
    """A method of `global_calibration` with its numbers and the layers to which it applies."""

    name: str
    numbers: Mapping[str, float]
    layers: PerLayer
    """Whether the method applies to a layer."""

    def concerns(self, layer: LayerKey) -> bool:
        """Return whether the method applies to a layer."""
        return bool(self.layers.of(layer))


def methods_of(value: Value) -> tuple[Method, ...]:
    """Return the methods of a parsed value."""
    texts = value if isinstance(value, tuple) else ()
    return tuple(_method(str(text)) for text in texts)


def global_methods() -> Kind:
    """Return the kind of values that are `none`, or methods joined by &.

    Methods that choose codes or scales come last.
    """

    def parse(text: str) -> Value:
        if text.lower() in ("", "none"):
            return ()
        parts = tuple(text.split("&"))
        names = [_method(part).name for part in parts]
        if any(name in LAST for name in names[:-1]):
            raise ValueError(text)
        return parts

    return Kind(parse, f"{LEGAL}; {' and '.join(LAST)} only as the last")


def _method(text: str) -> Method:
    found = METHOD.fullmatch(text)
    name = found["name"].lower() if found else ""
    if found is None or name not in DEFAULTS:
        raise ValueError(text)
    defaults = DEFAULTS[name]
    given = [float(number) for number in (found["numbers"] or "").split(",") if number]
    # numbers are given by place, and those left out at the end keep their defaults
    numbers = {**defaults, **dict(zip(defaults, given, strict=False))}
    if name == "mvn_correction":
        numbers["alpha"] = numbers["alpha"] if len(given) > ALPHA or numbers["mode"] < 1 else 1.0
        numbers["multiplier_bits"] = (
            numbers["multiplier_bits"] if len(given) == len(defaults) else numbers["activation_bits"]
        )
    legal = all(0 <= number <= LARGEST for number in numbers.values())
    if name == "adaquant_zy" and len(given) not in (*range(RATES + 1), len(defaults)):
        raise ValueError(text)
    if len(given) > len(defaults) or not legal or any(numbers.get(key) for key in ZERO):
        raise ValueError(text)
    scope = found["scope"]
    # the scope is the per-layer syntax of the other fields, with the value left out
    return Method(name, numbers, parse_per_layer(f"false&<{scope}:true>" if scope else "true", boolean()))
