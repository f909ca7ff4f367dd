"""Operator specs: the schema of op_specs/<op>.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import Discriminator, Field, Tag

from quantizer.core.expressions import Expression
from quantizer.core.layer_format import LayerFormat
from quantizer.core.model import Model
from quantizer.core.model_errors import NUMBERS
from quantizer.core.readings import ReadingName
from quantizer.core.spec_values import (
    Activation,
    End,
    Expr,
    ExprOrList,
    ExprOrNamed,
    Finite,
    Identifier,
    Value,
)
from quantizer.core.stages import Stage

T = TypeVar("T")


class Bin(Model):
    """A named part of a domain that at least one case must reach."""

    min: Expr | None = None
    """Smallest value of the bin; every entry of a list or a shape is at least this."""
    max: Expr | None = None
    """Largest value of the bin; every entry of a list or a shape is at most this."""
    value: Value | None = None
    """The only value of the bin. For a list, an integer means that all entries have this value."""


class Domain(Model):
    """The values that a dimension or an attribute takes in generated cases."""

    type: Literal["int", "bool", "float", "enum", "shape", "axes", "permutation"] = "int"
    """int (or a list of integers, with length), bool, float, enum (one of choices), shape (a list of sizes), axes (some
    axes, increasing), permutation (all axes in some order)."""
    summary: str = ""
    """What it means, in one line."""
    min: Expr | None = None
    """Smallest value; for a shape, the smallest size."""
    max: Expr | None = None
    """Largest value; for a shape, the largest size."""
    multiple_of: Expr | None = None
    """Every value is a multiple of this."""
    length: Expr | None = None
    """The value is a list of this many numbers."""
    choices: list[Value] | None = Field(default=None, min_length=1)
    """All values, for a short list."""
    rank: list[int] | None = Field(default=None, min_length=2, max_length=2)
    """Smallest and largest rank of a shape."""
    product: Expr | None = None
    """The shape must have this many elements."""
    sum: Expr | None = None
    """The sizes of parts must add up to this number."""
    broadcasts_to: str | None = None
    """A shape that broadcasts to the shape of that name."""
    like: str | None = None
    """A shape that equals the shape of that name except for one axis."""
    but_for: Expr | None = None
    """like: the axis that may differ."""
    axes_of: Expr | None = None
    """Rank of the shape whose axes these are."""
    default: Value | None = None
    """The value in a graph that does not name the attribute."""
    bins: dict[Identifier, Bin] = {}
    """Named parts of the domain; at least one case must reach each."""


class WeightAxes(Model):
    """The axes of an activation that may also be a weight."""

    channel_axis: int = Field(le=-1)
    """The axis along which scales may differ, counted from the end. It is the last axis of the output."""
    block_axis: int = Field(le=-1)
    """The axis over which its products are added, counted from the end."""


class Input(Model):
    """One operand: its shape, its role (activation, weight, bias) and the kind of its elements."""

    axes: ExprOrList
    """Its axes by name, or an expression for the whole shape; a leading "*name" means any number of axes."""
    role: Literal["activation", "weight", "bias"] = "activation"
    """An activation changes from run to run; weights and biases are constants of the graph."""
    kind: Literal["value", "index", "real"] = "value"
    """The meaning of the elements: values that are quantized to codes; integers within `domain` that are their own
    codes; or real numbers that the operator reads unquantized."""
    optional: bool = False
    """A graph may leave it out."""
    needs: Identifier | None = None
    """An optional input; if it is left out, this one is left out, too."""
    channel_axis: int | None = None
    """The axis of a weight or bias along which scales may differ; -1: the last axis, for axes in one expression."""
    block_axis: int | None = None
    """The axis over which its products are added. A scheme may give a weight one scale for each block along it."""
    weight_in_blocks: WeightAxes | None = None
    """If given: under a scheme with weights in blocks this activation is a constant of the graph, with these axes."""
    spatial: bool = False
    """Whether axis 1 is the channel, which a node may move to the end."""
    domain: list[End] | None = Field(default=None, min_length=2, max_length=2)
    """Smallest and largest value that the operator is defined for; .inf is allowed. An index needs it."""
    summary: str = ""
    """What it means, in one line."""


class Pieces(Model):
    """A result that consists of several tensors, split along one axis."""

    axis: Expr
    """The axis of the split; a negative one counts from the end."""
    sizes: Expr
    """The size of each tensor along that axis."""


class Output(Model):
    """One result of the operator: its axes and the kind of its elements."""

    axes: list[Expr] | None = None
    """Its axes by name, where tiling needs them; a leading "*name" means any number of axes."""
    kind: Literal["value", "index", "mask", "shape"] = "value"
    """The meaning of the elements: real values, indices, truth values, or sizes."""
    spatial: bool = False
    """Whether axis 1 is the channel, which a node may move to the end."""
    channel_axis: Expr | None = None
    """The axis along which channels lie."""
    pieces: Pieces | None = None
    """How a result of several tensors is split. The function then returns one tensor per size."""
    min: Expr | None = None
    """The smallest possible value."""
    max: Expr | None = None
    """The largest possible value."""
    summary: str = ""
    """What it means, in one line."""


class Constraint(Model):
    """A condition that every legal graph satisfies."""

    require: Expr
    """An expression over dims and attrs that is true for every legal graph."""
    error: str
    """The text of the error for a graph that violates it; {names} are replaced by their values."""


class ErrorModel(Model):
    """Error propagation from inputs to the output: which enclosure the check `accuracy` uses."""

    kind: Literal[
        "movement",
        "selection",
        "linear",
        "mean",
        "bilinear",
        "piecewise_bilinear",
        "monotone",
        "piecewise_monotone",
        "set_valued",
        "poles",
        "softmax",
        "normalization",
        "resize",
        "index",
        "comparison",
        "product",
        "euclidean",
        "custom",
    ]
    """movement copies one input. selection takes one of several values. linear adds operands, bilinear adds products.
    mean divides a sum by the number of its terms. piecewise_bilinear is bilinear in an activation and a weight between
    the activation's critical points, and is 0 there. monotone and piecewise_monotone are functions of one input. poles
    divides by an input (1 or the first of two inputs), or has the poles that critical_points and period name.
    comparison says whether a relation between two operands is true. product multiplies the elements of one input along
    the attribute axes. euclidean is the root of the sum of their squares. custom states nothing: accuracy judges it
    by its declared stages, and not at all without stages."""
    terms: Expr | None = None
    """Number of terms of the sum in one output element."""
    critical_points: list[Finite] = []
    """Inputs at which a piecewise function, or a selection of one input, changes its piece; poles of a periodic
    function."""
    period: Annotated[Finite, Field(gt=0)] | None = None
    """Distance after which the critical points of a periodic function repeat."""
    axis: Expr | None = None
    """The axis along which the operator reduces."""
    centred: bool = True
    """normalization: true for deviations from the mean, false for the elements themselves."""
    logarithm: bool = False
    """softmax: the output is the logarithm of the shares."""
    relation: Literal["less", "less_equal", "greater", "greater_equal", "equal"] | None = None
    """comparison: the relation of the first operand to the second."""
    cancels_below_zero: Expr | None = None
    """Functions of one input: the magnitude of two terms whose difference is a negative result, such as alpha in alpha
    * exp(x) - alpha. A float32 result has the rounding error of these terms, even if it is small."""
    smallest: bool = False
    """index: the smallest elements are chosen, not the largest."""


class Quantization(Model):
    """Parameter rules that all platforms share."""

    outputs: dict[Identifier, str] = {}
    """Output -> calibrated | index | same_as(<input>)."""
    family: Identifier
    """The operator family. Platforms choose requantization variants by family."""


def _tiling_kind(value: object) -> str:
    # with a discriminator pydantic reports errors of one form only, not of both
    return "<none>" if isinstance(value, NoTiling) or (isinstance(value, dict) and "none" in value) else "<axes>"


class TileRule(Model):
    """How one output axis is tiled."""

    rule: Literal["independent", "halo", "accumulate"]
    """independent: the same cut of the inputs; halo: a window of the input; accumulate: the sum is split."""
    when: Expr | None = None
    """The condition under which the rule applies."""
    input_axis: ExprOrNamed | None = None
    """Input axis for output axis i (rule '*'), or one per input where they differ. An input without this axis, or
    without an entry, is not cut. If the key is absent: i, with operands of another rank aligned at the last axis,
    as shapes broadcast."""
    axis: Identifier | None = None
    """halo, accumulate: the input axis that is cut; under rule '*' axis i."""
    stride: Expr | None = None
    """halo: distance in the input between the windows of neighbouring output elements."""
    window: Expr | None = None
    """halo: number of input elements that one output element reads."""
    before: list[Expr] | None = Field(default=None, min_length=2, max_length=2)
    """halo: [attribute, index] that holds the padding before the axis."""
    after: list[Expr] | None = Field(default=None, min_length=2, max_length=2)
    """halo: [attribute, index] that holds the padding after the axis."""

    @property
    def input_axes(self) -> list[tuple[tuple[str, ...], Expression]]:
        """The expressions of input_axis, each with its place in the rule."""
        if isinstance(self.input_axis, dict):
            return [(("input_axis", name), axis) for name, axis in self.input_axis.items()]
        return [] if self.input_axis is None else [(("input_axis",), self.input_axis)]


class NoTiling(Model):
    """The operator cannot be tiled."""

    none: str
    """Why."""


class Property(Model):
    """A metamorphic relation that holds bit for bit on codes."""

    relation: Literal["equivariant", "commutes", "shift_invariant", "zero_preserving"]
    """The change of the inputs, with its effect on the output."""
    axis: Identifier | None = None
    """equivariant: reordering this axis of the inputs reorders it in the output."""
    operands: list[Identifier] | None = None
    """commutes: the result is the same if these operands are swapped; shift_invariant: the result is the same if one
    is added to every code of this operand."""
    when: Expr | None = None
    """The condition under which the relation holds."""


class Exclude(Model):
    """A scheme or platform that does not apply, and why."""

    scheme: str | None = None
    """The scheme. If absent: every scheme."""
    platform: str | None = None
    """The platform. If absent: every platform."""
    reason: str
    """Why it does not apply."""


DrawnSet = Literal[
    "zeros",
    "one_hot",
    "corners",
    "ties",
    "saturation",
    "accumulator_limit",
    "scale_spread",
    "zero_point_extremes",
    "small_integers",
    "random",
]
DATA_SETS: tuple[DrawnSet, ...] = get_args(DrawnSet)
DataSet = Literal[
    DrawnSet, "every_code", "infinities", "uneven_channels", "outliers", "cancelling", "returning", "patterns"
]
"""Data sets that fill tensors; every_code (each code in turn), infinities (among real numbers), uneven_channels and
outliers (of weights), cancelling and returning (large parts of a small sum) and patterns (rows, orders, signs) are for
examples."""


class Example(Model):
    """A case that always runs."""

    id: Identifier
    """Its name, which never changes."""
    values: dict[Identifier, Value]
    """Dimensions and attributes; an attribute with a default may be left out."""
    omit: list[Identifier] = []
    """Optional inputs that the example leaves out."""
    data: DataSet = "random"
    """The data set that fills its tensors."""
    activation: Literal["none"] | Activation = "none"
    """The activation that is fused into it."""
    ranges: dict[Identifier, Annotated[list[Finite], Field(min_length=2, max_length=2)]] = {}
    """Calibrated [smallest, largest] of inputs and outputs. Ranges that are absent are drawn or calibrated."""


class Spec(Model):
    """One operator: the content of op_specs/<op>.yaml."""

    op: Identifier
    """Its name: snake_case, the name of the file and of the module."""
    version: str = Field(pattern=NUMBERS)
    """Raised when its meaning changes."""
    summary: str
    """What it computes, in one line."""
    names: dict[Identifier, str] = {}
    """Its names in other systems."""
    dims: dict[Identifier, Domain] = {}
    """Free dimensions, drawn for every case."""
    inputs: dict[Identifier, Input] = Field(min_length=1)
    """Its operands in order."""
    outputs: dict[Identifier, Output] = Field(min_length=1)
    """Its results in order."""
    fuses: list[Activation] = []
    """Activations that a graph may fuse into it."""
    attrs: dict[Identifier, Domain] = {}
    """Attributes with their domains, drawn for every case."""
    shape: dict[Identifier, ExprOrList]
    """Output -> its shape."""
    constraints: list[Constraint] = []
    """Conditions on legal graphs, each with the error of a violation. They do not filter generated cases."""
    error_model: ErrorModel
    """Error propagation from inputs to the output: which enclosure the check `accuracy` uses."""
    quantization: Quantization
    """Parameter rules that all platforms share."""
    stages: dict[Identifier, Stage] = {}
    """Its roundings by name, the output's last, if it rounds more than once. Default: those of the error model."""
    tiling: Annotated[
        Annotated[dict[str, TileRule], Tag("<axes>")] | Annotated[NoTiling, Tag("<none>")], Discriminator(_tiling_kind)
    ]
    """Output axis (or '*' for each) -> how it is tiled; or `none` with the reason."""
    data: list[DataSet] = Field(default=list(DATA_SETS), min_length=1)
    """Data sets that apply. If absent: all."""
    examples: list[Example] = []
    """Cases that always run."""
    properties: list[Property] = []
    """Metamorphic relations that hold bit for bit on codes."""
    excludes: list[Exclude] = []
    """Schemes and platforms that do not apply. All others do."""
    readings: dict[Identifier, ReadingName] = {}
    """Platform -> another arithmetic that is also correct there for a plugin of this operator, in all its cases."""
    oracle: str | None = None
    """A torch, numpy, scipy.special or onnx function that judges the reference; `none` if there is none."""
    formats: dict[Identifier, LayerFormat] = {}
    """How the operator is written in files of other systems."""

    def __hash__(self) -> int:
        """Return the identity: a spec is read once and shared, and caches are keyed by it."""
        return id(self)

    @property
    def has_weights(self) -> bool:
        """Whether an input is a weight: then schemes have a weight part."""
        return any(item.role == "weight" for item in self.inputs.values())

    @property
    def activations(self) -> list[str]:
        """Names of the activations: inputs that are not constants."""
        return [name for name, item in self.inputs.items() if item.role == "activation"]

    @property
    def coded(self) -> list[str]:
        """Names of the activations that hold codes."""
        return [name for name in self.activations if self.inputs[name].kind != "real"]

    def keys_of(self, outputs: Sequence[T]) -> list[tuple[str, T]]:
        """Return (key, tensor) for each of a node's *outputs*; all tensors of a result in pieces have its key."""
        keys = list(self.outputs)
        # such a result is the only output, whatever the number of tensors
        cut = next(iter(self.outputs.values())).pieces is not None
        return [(keys[0], name) for name in outputs] if cut else list(zip(keys, outputs, strict=True))
