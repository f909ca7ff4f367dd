"""Layers of one input without a spec: functions that Compass has as a table, and its rectifiers (PRELU, CRELU)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import ActivationPart
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_mapping import SLOPES, slopes_of
from quantizer.ir.formats.compass_quantized import SHIFT_FIRST, SHIFT_TYPE, file_format, filed
from quantizer.ir.graph import AttrValue, Graph, Node, container
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.fused_activations import SLOPES as SLOPE_FORMAT
from quantizer.numerics.fused_activations import activate_staged, requantize_activated, slope_of
from quantizer.numerics.qparams import QParams, Rescale, Slope, Table
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize import requantize
from quantizer.numerics.rules import activation_params
from quantizer.numerics.sums import rescale_alone
from quantizer.numerics.tables import interpolated_table, lookup
from quantizer.plugins.layers_without_spec import LoneLayer, activations

Function = Callable[..., Tensor]
Sign = Literal["signed", "unsigned", "by_force"]
"""by_force: unsigned, unless force_dtype_int asks for signed codes."""
ACTIVATION, METHOD, LUT = "Activation", "method", "lut"
# stands in the field until the layer is quantized or read from a file
UNSAID = Table(torch.zeros(1, dtype=torch.int64), 0, 1, 1.0, 8)


@dataclass(frozen=True)
class Tabulated:
    """A function that a layer has as a table."""

    function: Function
    """The function of float32 values. Its further arguments are the parameters named in *takes*."""
    sign: Sign
    """The sign of its output codes."""
    takes: tuple[str, ...] = ()
    consumed: bool = False
    """Whether a quantized layer is written without the parameters of the function."""
    repeated: bool = True
    """Whether a table over a restricted range has its first entry twice."""


def _swish(x: Tensor, alpha: float) -> Tensor:
    return x * torch.sigmoid(alpha * x)


def _shrink(x: Tensor, lambd: float, bias: float) -> Tensor:
    below, above = torch.where(x < -lambd, x + bias, 0.0), torch.where(x > lambd, x - bias, 0.0)
    # with a negative lambd both conditions can hold; then the upper one wins
    return torch.where(x > lambd, above, below)


def _bnll(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)), the logarithm in float64."""
    # log(1 + exp(x)) = x + log(1 + exp(-x)): the exponent is never positive, so exp cannot overflow
    rest = torch.log(1 + torch.exp(-x.abs().double()))
    return torch.where(x > 0, x + rest, rest).float()


TABULATED: Mapping[str, Tabulated] = {
    "ACOS": Tabulated(torch.acos, "signed"),
    "ACOSH": Tabulated(torch.acosh, "unsigned"),
    "ASIN": Tabulated(torch.asin, "signed"),
    "ASINH": Tabulated(torch.asinh, "signed"),
    "ATANH": Tabulated(torch.atanh, "signed"),
    "BNLL": Tabulated(_bnll, "by_force", repeated=False),
    "COSH": Tabulated(torch.cosh, "by_force"),
    "SHRINK": Tabulated(_shrink, "signed", ("lambd", "bias"), consumed=True),
    "SINH": Tabulated(torch.sinh, "signed"),
    "SWISH": Tabulated(_swish, "signed", ("alpha",)),
    "TRUNC": Tabulated(torch.trunc, "signed"),
}
"""Layer type, or method of an Activation, in capitals -> the function in its table."""
METHODS = ("SHRINK", "SWISH")
"""Layer types that are also methods of an Activation."""
PRELU, CRELU = "PRELU", "CRELU"


@dataclass(frozen=True)
class OneInputLayer(LoneLayer):
    """A layer of one input, float or quantized."""

    name: str
    kind: str
    """Its type, or the method of an Activation, in capitals."""
    attrs: Mapping[str, AttrValue]
    platform: Platform
    given: Mapping[str, Tensor] = field(default_factory=dict)
    """Constants of the file."""
    x: QParams | None = None
    """Parameters of its input, after quantization."""
    y: QParams | None = None

    @property
    def quantized(self) -> bool:
        """Whether the layer runs on codes."""
        return self.x is not None

    @property
    def outputs(self) -> list[QParams]:
        """The quantization parameters of its only output."""
        assert self.y is not None
        return [self.y]

    def decided(
        self,
        samples: Sequence[Tensor],  # noqa: ARG002
        inputs: Sequence[QParams],
        ranges: Sequence[tuple[float, float]],
        attrs: Mapping[str, Any],
    ) -> LoneLayer:
        """Return the layer with the parameters of its calibrated range; UnsupportedError for scales per channel."""
        method, bits = str(attrs["q_mode_activation"]), int(attrs["q_bits_activation"])
        if method.startswith("per_channel"):
            raise UnsupportedError(
                f"layer {self.name!r}: quantize_method_for_activation={method}: {self.kind} has one scale for its "
                "activations. Write per_tensor_... for it."
            )
        part = ActivationPart(
            bits=bits,
            symmetry="asymmetric" if method.endswith("asymmetric") else "symmetric",
            range="restricted" if method.endswith("restricted_range") else "full",
            lut_bits=int(attrs["lut_items_in_bits"]),
        )
        sign = self._sign
        signed = sign == "signed" or (sign == "by_force" and bool(attrs["force_dtype_int"]))
        low, high = ranges[0]
        y = activation_params(low, high, part, self.platform.parameters, signed=signed)
        positive = bool(attrs["force_shift_positive"])
        multiplier = self.platform.multiplier.model_copy(update={"positive_shifts": positive})
        platform = self.platform.model_copy(update={"multiplier": multiplier})
        return replace(self, x=inputs[0], y=y, platform=platform)._made(part)

    @abstractmethod
    def read(self, x: QParams, y: QParams) -> LoneLayer:
        """Return the layer from its quantized file, with the parameters of its input and output."""

    @property
    @abstractmethod
    def _sign(self) -> Sign:
        """The sign of its output."""

    @abstractmethod
    def _made(self, part: ActivationPart) -> LoneLayer:
        """Return the layer with its numbers, if the parameters of input and output are known."""

    def number(self, key: str) -> float:
        """Return a number among the layer's parameters; GraphError if it is missing."""
        value = self.attrs.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GraphError(f"layer {self.name!r}: {self.kind} without {key}: write {key}=... for it.")
        return float(value)


@dataclass(frozen=True)
class TableLayer(OneInputLayer):
    """A function that becomes a table when the layer is quantized."""

    table: Table = UNSAID

    @property
    def what(self) -> Tabulated:
        """The tabulated function of its kind of layer."""
        return TABULATED[self.kind]

    @property
    def _sign(self) -> Sign:
        return self.what.sign

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the function of real values, or entries of its table."""
        return [lookup(operands[0], self.table) if self.quantized else self._function(operands[0])]

    def _function(self, x: Tensor) -> Tensor:
        return self.what.function(x, *(self.number(key) for key in self.what.takes))

    def _made(self, part: ActivationPart) -> LoneLayer:
        assert self.x is not None
        assert self.y is not None
        assert part.lut_bits is not None
        repeated = self.what.repeated
        made = interpolated_table(
            self._function, self.x, self.y, part.lut_bits, alignment=self.platform.tables.alignment, repeated=repeated
        )
        return replace(self, table=made)

    def read(self, x: QParams, y: QParams) -> LoneLayer:
        """Return the layer as read from its file, with the table from its constants."""
        entries = self.given[LUT].long().reshape(-1)
        # a table with fewer entries than codes has one for every `step` codes, and is interpolated
        step = max(1, (1 << x.bits) // entries.numel())
        first = x.first if self.what.repeated else x.qmin
        return replace(self, x=x, y=y, table=Table(entries, first, step, float(y.scale), y.dtype.bits))

    def constants(self) -> dict[str, GraphTensor]:
        """Return the table, in the type of the output."""
        if not self.quantized:
            return {}
        assert self.y is not None
        return {LUT: _stored(LUT, self.table.entries, filed(self.y))}

    def params(self) -> dict[str, Any]:
        """Return the layer's parameters without those that are already part of its table."""
        gone = self.what.takes if self.quantized and self.what.consumed else ()
        return {key: value for key, value in self.attrs.items() if key not in gone}


@dataclass(frozen=True)
class RectifiedLayer(OneInputLayer):
    """PRELU: a slope below 0 for each channel. CRELU: max(x, 0), then max(-x, 0), along an axis."""

    ratio: Rescale | None = None
    slopes: Slope | None = None
    rank: int = 0
    """The number of axes of its input."""

    @property
    def _sign(self) -> Sign:
        return "signed" if self.kind == PRELU else "by_force"

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the activation of real values, or of codes."""
        (x,) = operands
        if not self.quantized:
            if self.kind == CRELU:
                return [self._sides(x)]
            slopes = slopes_of(f"layer {self.name!r}", self.given[SLOPES], x.dim()).reshape(-1)
            return [activate_staged(x, "prelu", {"slope": slopes}, -1)]
        assert self.x is not None
        assert self.y is not None
        assert self.ratio is not None
        codes = centred(x, self.x)
        if self.slopes is not None:
            return [requantize_activated(codes, self.slopes, self.ratio, self.y, self.platform.rounding, None)]
        return [requantize(self._sides(codes), self.ratio, self.y, rounding=self.platform.rounding)]

    def _sides(self, x: Tensor) -> Tensor:
        axis = self.attrs.get("axis", 0)
        if isinstance(axis, bool) or not isinstance(axis, int) or not -x.dim() <= axis < x.dim():
            raise GraphError(f"layer {self.name!r}: CRELU: axis={axis}: must be one of {x.dim()} axes.")
        return torch.cat([x.clamp(min=0), (-x).clamp(min=0)], axis)

    def _made(self, part: ActivationPart) -> LoneLayer:
        assert self.x is not None
        assert self.y is not None
        ratio = rescale_alone(self.platform, self.x, self.y, part.bits)
        return replace(
            self, ratio=ratio, slopes=slope_of(self.given[SLOPES], part.bits) if self.kind == PRELU else None
        )

    def read(self, x: QParams, y: QParams) -> LoneLayer:
        """Return the layer as read from its file, with multiplier, shift and slopes."""
        mantissa = torch.tensor(self.number("scale_value"), dtype=torch.float64)
        shift = torch.tensor(int(self.number("shift_value")))
        ratio = Rescale("multiplier_shift", mantissa, shift, factors={"x": 1.0})
        slopes = None
        if self.kind == PRELU:
            slopes = Slope(self.given[SLOPES].long().reshape(-1), int(self.number("negative_slope_shift")))
        return replace(self, x=x, y=y, ratio=ratio, slopes=slopes)

    def constants(self) -> dict[str, GraphTensor]:
        """Return the slopes, real or as codes of 16 bits."""
        if self.kind == CRELU:
            return {}
        assert self.slopes is not None
        shape = slopes_of(f"layer {self.name!r}", self.given[SLOPES], self.rank).shape
        codes = self.slopes.codes.reshape(shape)
        return {SLOPES: GraphTensor(SLOPES, tuple(shape), SLOPE_FORMAT, codes.to(container(SLOPE_FORMAT)))}

    def params(self) -> dict[str, Any]:
        """Return the layer's parameters with multiplier and shift."""
        if self.ratio is None or self.y is None:
            return dict(self.attrs)
        bits = file_format(8 if self.y.bits <= 8 else 16, signed=False)
        numbers = {
            "scale_value": int(self.ratio.mantissa),
            "shift_value": int(self.ratio.shift),
            "scale_type": bits,
            "shift_type": SHIFT_TYPE,
        }
        places = {} if self.slopes is None else {"negative_slope_shift": self.slopes.shift}
        return {**self.attrs, **places, **{key: numbers[key] for key in SHIFT_FIRST}}


def one_input_layer(graph: Graph, node: Node, platform: Platform) -> OneInputLayer | None:
    """Return the layer if it is one of these, else None. GraphError if it has other inputs or constants."""
    said = node.attrs.get(METHOD) if node.op == ACTIVATION else node.op
    kind = str(said).upper()
    methods = (*METHODS, PRELU, CRELU)
    if (kind not in TABULATED and kind not in (PRELU, CRELU)) or (node.op == ACTIVATION and kind not in methods):
        return None
    read = activations(node)
    if len(read) != 1 or len(node.outputs) != 1:
        raise GraphError(
            f"layer {node.name!r}: {kind} has {len(read)} inputs and {len(node.outputs)} outputs, must have 1."
        )
    keys = cast("tuple[str, ...]", node.extra.get(CONSTANTS, ()))
    given = {key: graph.tensor(str(name)).data for key, name in zip(keys, node.inputs[len(read) :], strict=True)}
    known = {key: data for key, data in given.items() if data is not None}
    if kind == PRELU and SLOPES not in known:
        raise GraphError(f"layer {node.name!r}: PRELU without constant {SLOPES!r}: it holds the slopes below 0.")
    rank = len(graph.tensor(read[0]).shape)
    if kind in TABULATED:
        return TableLayer(node.name, kind, node.attrs, platform, known)
    return RectifiedLayer(node.name, kind, node.attrs, platform, known, rank=rank)


def _stored(key: str, values: Tensor, params: QParams) -> GraphTensor:
    data = values.to(container(params.dtype)).contiguous()
    return GraphTensor(key, tuple(data.shape), params.dtype, data)
