"""How each layer is quantized: the cfg, per-layer values and the opt_config file, as schemes and platforms."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from quantizer.calibration.statistics import Wanted
from quantizer.calibration.strategies import Strategy, parse_strategy
from quantizer.core.errors import FormatError
from quantizer.core.platforms import Platform
from quantizer.core.reading import Readable, shown_value
from quantizer.core.schemes import ActivationPart, Scheme, WeightPart
from quantizer.core.wording import shown_path, suggestion
from quantizer.ir.formats.compass_tables import LEAST_FRACTION
from quantizer.optimize.cfg import Options
from quantizer.optimize.fields import FIELDS
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.values import Value

KEYS: Mapping[str, str] = {
    "q_mode_activation": "quantize_method_for_activation",
    "q_mode_weight": "quantize_method_for_weight",
    "q_bits_activation": "activation_bits",
    "q_bits_weight": "weight_bits",
    "q_bits_bias": "bias_bits",
    "q_strategy_activation": "calibration_strategy_for_activation",
    "q_strategy_weight": "calibration_strategy_for_weight",
} | {
    name: name
    for name in (
        "running_statistic_momentum",
        "histc_bins",
        "lut_items_in_bits",
        "force_dtype_int",
        "force_shift_positive",
        "trigger_float_op",
        "multiplier_bits",
        "bias_effective_bits",
        "unify_shifts_for_aiff",
        "weight_block_size",
        "trim_infinity_before_statistic",
        "with_winograd",
    )
}
"""Key of opt_config -> field."""
DISPLAYED = ("just_for_display", "extra_params", "approx_params")
"""Keys of opt_template.json that describe a past run. They are read and ignored."""
LARGEST = 64 << 20
OPT_CONFIG = Readable("an opt_config file", LARGEST, FormatError)
ACTIVATION_MULTIPLIER = (
    "rectifier",
    "clamping",
    "softmax",
    "log_softmax",
    "absolute",
    "division",
    "mean",
    "sum",
    "trigonometric",
)
"""Families whose multiplier has as many bits as the activation, regardless of multiplier_bits."""
UNFORCED = ("thresholded",)
"""Operator families whose outputs force_dtype_int does not affect."""
FAST_EXP = 1
"""Compass's number of a softmax by powers of two."""
FLOAT24 = "softmax in 24-bit floats"
"""Not a field of the cfg: a pass sets it for a softmax on the newest targets."""

TWO_TABLES = "logarithms by a table"
"""Not a field of the cfg: a pass sets it for a LogSoftmax on targets before X2."""


@dataclass(frozen=True)
class Settings:
    """How one layer is quantized."""

    values: Mapping[str, Value]
    """Field -> value."""
    given: frozenset[str] = frozenset()
    """Fields that opt_config gives this layer."""

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def number(self, name: str) -> int:
        """Return the value of field *name*, which must be one of whole numbers."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def but(self, **changes: Value) -> Settings:
        """Return these settings with some values changed."""
        return replace(self, values={**self.values, **changes})

    @property
    def strategy(self) -> Strategy:
        """The calibration strategy of activations."""
        return parse_strategy(str(self["calibration_strategy_for_activation"]))

    @property
    def weight_strategy(self) -> Strategy:
        """The calibration strategy of weights and biases."""
        return parse_strategy(str(self["calibration_strategy_for_weight"]))

    @property
    def multiplier_bits(self) -> int:
        """Bits of a multiplier; by default as many as the activation has."""
        return self.number("multiplier_bits") if self["multiplier_bits"] != "" else self.number("activation_bits")

    def wanted(self, strategy: Strategy, *, everything: bool = False) -> Wanted:
        """Return which statistics *strategy* needs."""
        trim = self["trim_infinity_before_statistic"]
        return Wanted(
            momentum=float(self["running_statistic_momentum"]),  # type: ignore[arg-type]
            moments=strategy.moments or everything,
            bins=self.number("histc_bins") if strategy.histogram or everything else None,
            trim=trim,  # type: ignore[arg-type]
        )

    @property
    def symmetric(self) -> bool:
        """Whether activations have the zero point 0."""
        return not str(self["quantize_method_for_activation"]).endswith("asymmetric")

    def scheme(self, bits: int | None = None) -> Scheme:
        """Return the weight and activation part.

        *bits* replaces the activation's bits if the layer takes those of its inputs.
        """
        weight = str(self["quantize_method_for_weight"])
        return _scheme(
            bits or self.number("activation_bits"),
            str(self["quantize_method_for_activation"]),
            self.number("lut_items_in_bits"),
            self.number("weight_bits"),
            weight,
            self.number("bias_bits"),
        )

    def multiplier_bits_of(self, family: str) -> int:
        """Return the bits of a multiplier of an operator family. Some families always use the activation's bits."""
        return self.number("activation_bits") if family in ACTIVATION_MULTIPLIER else self.multiplier_bits

    @property
    def exponential(self) -> tuple[tuple[str, str | int], ...]:
        """Changes of a softmax to the platform's rule for tables."""
        method, *numbers = cast("tuple[tuple[float, ...], ...]", self["enable_pass_tune_op_softmax"])[0]
        own = (("exponential", "float24"),) if self.values.get(FLOAT24) else ()
        if int(method) != FAST_EXP:
            return (*own, ("exponential_bits", int(numbers[0]) if numbers else 0))
        adjusted = int(numbers[0]) if numbers else 1
        if adjusted >= LEAST_FRACTION:
            return ("exponential", "power_of_two_table"), ("fraction_bits", adjusted)
        return (("exponential", "power_of_two_halves" if adjusted else "power_of_two"),)

    @property
    def fast_exp(self) -> bool:
        """Whether a softmax is computed by powers of two."""
        return int(cast("tuple[tuple[float, ...], ...]", self["enable_pass_tune_op_softmax"])[0][0]) == FAST_EXP

    def platform(self, base: Platform, family: str = "") -> Platform:
        """Return the platform `compass` as configured for this layer of an operator family."""
        # plain values, not the settings: they are the key of the cache, and many layers share them
        return _platform(
            base.platform,
            _Arithmetic(base),
            self.multiplier_bits_of(family),
            bool(self["force_dtype_int"]),
            bool(self["force_shift_positive"]),
            bool(self["unify_shifts_for_aiff"]),
            self.number("bias_effective_bits") if self["bias_effective_bits"] != "" else self.number("bias_bits"),
            float(self["unify_scales_for_concat_threshold"]),  # type: ignore[arg-type]
            "quantize_method_for_weight" in self.given,
            "weight_bits" in self.given,
            self.exponential if family == "softmax" else (),
        )


@functools.lru_cache(maxsize=512)
def _scheme(bits: int, activation: str, lut_bits: int, weight_bits: int, weight: str, bias_bits: int) -> Scheme:
    return Scheme(
        name="optimize",
        activation=ActivationPart(
            bits=bits,
            symmetry="asymmetric" if activation.endswith("asymmetric") else "symmetric",
            range="restricted" if activation.endswith("restricted_range") else "full",
            accumulator_bits=bias_bits,
            lut_bits=lut_bits,
        ),
        weight=WeightPart(
            bits=weight_bits,
            granularity="channel" if weight.startswith("per_channel") else "tensor",
            symmetry="asymmetric" if weight.endswith("asymmetric") else "symmetric",
            range="restricted" if weight.endswith("restricted_range") else "full",
            bias_bits=bias_bits,
        ),
    )


@dataclass(frozen=True, eq=False)
class _Arithmetic:
    """A platform that is compared by identity, so that values derived from it can be cached."""

    platform: Platform

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arithmetic) and other.platform is self.platform

    def __hash__(self) -> int:
        return id(self.platform)


@functools.lru_cache(maxsize=512)
def _platform(
    name: str,  # noqa: ARG001
    base: _Arithmetic,
    multiplier_bits: int,
    signed: bool,  # noqa: FBT001
    positive: bool,  # noqa: FBT001
    unify: bool,  # noqa: FBT001
    effective: int,
    threshold: float,
    own_method: bool,  # noqa: FBT001
    own_bits: bool,  # noqa: FBT001
    exponential: tuple[tuple[str, str | int], ...],
) -> Platform:
    """Return *base* with the arithmetic that settings choose.

    signed: outputs that would be unsigned have a sign; own_method, own_bits: opt_config sets the weights' method or
    bits, which overrides the rules for depthwise and scaling layers.
    """
    platform = base.platform
    multiplier = platform.multiplier.model_copy(
        update={"bits": multiplier_bits, "positive_shifts": positive, "unify_shifts": unify}
    )
    changes: dict[str, object] = {
        "multiplier": multiplier,
        "bias_effective_bits": dict.fromkeys(platform.bias_effective_bits, effective),
        "aligned_within": dict.fromkeys(platform.aligned_within, threshold),
    }
    if signed:
        changes["output_signs"] = {
            key: sign if sign == "inputs" or key in UNFORCED else "signed"
            for key, sign in platform.output_signs.items()
        }
        # indices are never negative, and force_dtype_int gives even these a sign
        changes["index_dtype"] = platform.index_dtype.removeprefix("u")
    if own_method:
        changes["per_channel_weights"] = []
    if own_bits:
        changes["weight_bits"] = {}
    if exponential:
        changes["tables"] = platform.tables.model_copy(update=dict(exponential))
    return platform.model_copy(update=changes)


def layer_settings(options: Options, layers: Mapping[str, LayerKey]) -> dict[str, Settings]:
    """Return the settings of every layer by name; the opt_config file wins over the cfg."""
    names = {name for name, field in FIELDS.items() if field.per_layer} | {"unify_scales_for_concat_threshold"}
    configured = read_opt_config(options.file("opt_config"), layers)
    found = {}
    for name, key in layers.items():
        values = {field: options.per_layer(field).of(key) for field in names}
        own = configured.get(name, {})
        found[name] = Settings({**values, **own}, frozenset(own))
    return found


def read_opt_config(path: Path | None, layers: Mapping[str, LayerKey]) -> dict[str, dict[str, Value]]:
    """Return layer -> field -> value of an opt_config file; FormatError for a layer, key or value that is wrong."""
    if path is None:
        return {}
    found: dict[str, dict[str, Value]] = {}
    for layer, properties in _json(path).items():
        where = f"{shown_path(path)}: {layer}"
        if layer not in layers:
            raise FormatError(f"{where}: no such layer.{suggestion(layer, layers, 'Layers')}")
        if not isinstance(properties, dict):
            raise FormatError(f"{where}: must be an object of keys such as {next(iter(KEYS))}.")
        found[layer] = {}
        for key, value in properties.items():
            if key in DISPLAYED:
                continue
            if key not in KEYS:
                raise FormatError(f"{where}.{key}: no such key.{suggestion(key, KEYS, 'Keys')}")
            found[layer][KEYS[key]] = _property(f"{where}.{key}", KEYS[key], value)
    return found


def _property(where: str, name: str, value: object) -> Value:
    field = FIELDS[name]
    if not isinstance(value, str | int | float):
        raise FormatError(f"{where}: got {shown_value(value)}: must be {field.kind.legal}.")
    try:
        # JSON has numbers and booleans where a cfg has text, and the parsers read text without spaces
        parsed = field.kind.parse(str(value).replace(" ", ""))
    except ValueError:
        raise FormatError(f"{where}: got {shown_value(value)}: must be {field.kind.legal}.") from None
    if field.status == "refused" and str(parsed).lower() != field.default.lower():
        raise FormatError(
            f"{where}: {shown_value(value)}: not implemented here, and the IR would differ. docs/compass.md says why."
            " Remove the key."
        )
    return parsed


def _json(path: Path) -> dict[str, object]:
    found = OPT_CONFIG.json_of(path)
    if not isinstance(found, dict):
        raise FormatError(f"{shown_path(path)}: must be an object of layers, such as the opt_template.json of a run.")
    return found
