"""Reads the configuration of a datum once, so that a forward only uses plain numbers."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from quantizer.core.errors import FixError
from quantizer.core.wording import suggestion
from quantizer.nn.methods import Compat, Group, QuantizeMethod, RangeMethod

MAX_BITS = 24
"""The largest bit width: the forward computes in float32, which has 24 significant bits."""
GROUPS: tuple[Group, ...] = ("batch", "channel")
_E = TypeVar("_E", bound=enum.IntEnum)


@dataclass(frozen=True)
class FixConfig:
    """How one datum (a parameter, buffer, activation or gradient) is quantized; its scale is state, kept elsewhere."""

    method: QuantizeMethod = QuantizeMethod.NONE
    bitwidth: int = 8
    range_method: RangeMethod = RangeMethod.RANGE_MAX
    stochastic: bool = False
    float_scale: bool = False
    """False: the scale is a power of two."""
    zero_point: bool = False
    """False: the range is [-scale, scale]. True: scale holds both ends."""
    group: Group | None = None
    compat: Compat | None = None
    seed: int | None = None
    """The seed of stochastic rounding; None takes one from torch's generator."""

    @property
    def seeded(self) -> bool:
        """Whether a rounding has a seed. Without one, the original's noise comes from torch's generator."""
        return self.stochastic and (self.compat is None or self.seed is not None)

    def plain(self, scale: Tensor) -> dict[str, object]:
        """Return the configuration as numbers and words that YAML and JSON keep exactly, without rare defaults."""
        # these three are written even at their defaults
        always = {"method", "bitwidth", "range_method"}
        found: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in always or value != item.default:
                found[item.name] = int(value) if isinstance(value, enum.IntEnum) else value
        numbers = scale.detach().cpu().tolist()
        found["scale"] = numbers[0] if scale.shape == (1,) else numbers
        return found


KEYS = ("scale", *(item.name for item in fields(FixConfig)))


def parse(where: str, given: object, compat: object = None) -> tuple[FixConfig, Tensor]:
    """Return the configuration and the scale from the mapping *given*; FixError names *where*, value and rule.

    Numbers may be ints, enums or tensors of one element. The scale: float32, by default 0; the range is [-scale,
    scale], or with zero_point the scale's two ends. *compat*: the default of that key.
    """
    if not isinstance(given, Mapping):
        raise FixError(f"{where}: must be a mapping of {', '.join(KEYS)}, got {type(given).__name__}.")
    for key in given:
        if key not in KEYS:
            raise FixError(f"{where}: {key!r}: no such key.{suggestion(str(key), KEYS, 'Known')}")
    config = FixConfig(
        method=_enum(where, "method", given.get("method", 0), QuantizeMethod),
        bitwidth=_integer(where, "bitwidth", given.get("bitwidth", 8), 1, MAX_BITS),
        range_method=_enum(where, "range_method", given.get("range_method", 0), RangeMethod),
        stochastic=_flag(where, "stochastic", given.get("stochastic", False)),
        float_scale=_flag(where, "float_scale", given.get("float_scale", False)),
        zero_point=_flag(where, "zero_point", given.get("zero_point", False)),
        group=cast("Group | None", _word(where, "group", given.get("group"), GROUPS)),
        compat=cast("Compat | None", _word(where, "compat", given.get("compat", compat), ("nics_fix",))),
        seed=None if given.get("seed") is None else _integer(where, "seed", given["seed"], 0, (1 << 63) - 1),
    )
    scale = _scale(where, given.get("scale", 0.0))
    check_scale(where, config, scale)
    return config, scale


def check_scale(where: str, config: FixConfig, scale: Tensor) -> None:
    """Refuse a scale that FIXED cannot use: not finite, not positive, or not both ends where zero_point needs them."""
    if config.method != QuantizeMethod.FIXED or config.compat is not None:
        return
    values = scale.detach().double().cpu()
    if config.zero_point:
        if values.dim() not in (1, 2) or len(values) != 2:
            raise FixError(
                f"{where}: scale of shape {list(scale.shape)}: with zero_point write both ends, [low, high]."
            )
        good = values.isfinite().all() and (values[0] < values[1]).all()
        rule = "FIXED needs finite ends, the first below the second"
    else:
        good = values.isfinite().all() and (values > 0).all()
        rule = "FIXED needs a positive one"
    if not bool(good):
        raise FixError(
            f"{where}: scale {scale.tolist()}: {rule}. Run a forward with method AUTO first, or write the scale."
        )


def default_fix_cfg(names: Iterable[str], **keys: Any) -> dict[str, dict[str, Any]]:
    """Return the same configuration for each of *names*: AUTO, 8 bits and RANGE_MAX, unless *keys* say otherwise."""
    base = {"method": QuantizeMethod.AUTO, "bitwidth": 8, "range_method": RangeMethod.RANGE_MAX}
    return {name: {**base, "scale": torch.zeros(1), **keys} for name in names}


def _number(value: object) -> object:
    """Return the number in a tensor or array of one element; any other value unchanged."""
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "size", None) is not None and _count(value) == 1 else value


def _count(value: Any) -> int:
    return int(value.numel()) if isinstance(value, Tensor) else int(value.size)


def _integer(where: str, key: str, value: object, low: int, high: int) -> int:
    found = _number(value)
    # in Python a bool is an int
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        raise FixError(f"{where}: {key}: must be an integer in [{low}, {high}], got {value!r}.")
    return int(found)


def _enum(where: str, key: str, value: object, kind: type[_E]) -> _E:
    found = _number(value)
    known = ", ".join(f"{member.name} ({member.value})" for member in kind)
    if isinstance(found, bool) or not isinstance(found, int) or found not in list(kind):
        raise FixError(f"{where}: {key}: must be one of {known}, got {value!r}.")
    return kind(found)


def _flag(where: str, key: str, value: object) -> bool:
    found = _number(value)
    if found not in (True, False):
        raise FixError(f"{where}: {key}: must be True or False, got {value!r}.")
    return bool(found)


def _word(where: str, key: str, value: object, known: tuple[str, ...]) -> str | None:
    if value is None or value is False:
        return None
    if value not in known:
        raise FixError(f"{where}: {key}: must be None or one of {', '.join(known)}, got {value!r}.")
    return str(value)


def _scale(where: str, value: object) -> Tensor:
    try:
        scale = torch.as_tensor(value).detach().to(torch.float32).clone()
    except (TypeError, ValueError, RuntimeError):
        raise FixError(f"{where}: scale: must be a number, a list of numbers or a tensor, got {value!r}.") from None
    return scale.reshape(1) if scale.dim() == 0 else scale
