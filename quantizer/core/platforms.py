"""Platforms: the arithmetic and parameter rules of one system, declared in the YAML files of rooms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from quantizer.core.defects import Defect, GraphDefect
from quantizer.core.model import Model
from quantizer.core.model_errors import IDENTIFIER
from quantizer.core.platform_settings import (
    Accumulator,
    Choice,
    Enclosing,
    Finite,
    FirstRounding,
    FixedOutput,
    Multiplier,
    ParameterRule,
    Quantizer,
    Release,
    TableRule,
)
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.spec_values import Activation, Expr, Identifier
from quantizer.core.stages import Stage
from quantizer.core.variants import Variant
from quantizer.core.version_numbers import release_of


class Platform(Model):
    """How one system computes, and how it chooses parameters."""

    platform: str = Field(pattern=IDENTIFIER, max_length=40)
    """Its name: the name of the file."""
    summary: str
    """What the system is, in one line."""
    target: str | None = None
    """The chip or the version of the system."""
    functions: str | None = None
    """The platform of a room. Its functions, oracles and `excludes`, and its judge, also hold here. A copy under
    another name keeps the key. Default: the platform itself."""
    schemes: list[str] = Field(min_length=1)
    """Names of the schemes that the system has, for operators with weights and for operators without."""
    scheme_families: dict[str, list[str]] = {}
    """Scheme -> the operator families that have it here. A scheme that is not named has all families that it fits.
    Schemes of formats other than integers, or with weights in blocks, must be named."""
    graph_schemes: list[str] = []
    """Further schemes that its kernels can compute in a graph, although its own quantizer never uses them."""
    ops: list[str] | None = None
    """Operators that the system has; None: all."""
    ops_named_for: str | None = None
    """A key of `names`. The platform also has every operator with a name under this key in its spec."""
    quantizer: Quantizer = Quantizer()
    """How a real value becomes a code."""
    kernel_quantizer: Quantizer | None = None
    """Rounding of the runtime `quantize` kernel, where it differs from the model converter's."""
    parameters: ParameterRule = ParameterRule()
    """How a calibrated range becomes a scale and a zero point."""
    rounding: RoundingMode = "half_even"
    """How requantization rounds."""
    first_rounding: FirstRounding | None = None
    """multiplier_shift rounds twice: to these binary places after its shift, then to a code as `rounding` says."""
    requantize: dict[str, Variant]
    """Operator family -> requantization variant; 'default' for all other families."""
    graph_requantize: dict[str, Variant] = {}
    """Operator family -> variant of an operator that a graph holds as a float operator between its quantizations, if
    the runtime does not fuse these. An operator on codes keeps `requantize`."""
    variants: dict[str, list[Choice]] = {}
    """Operator family -> variants for some of its cases. The first variant whose condition holds is used."""
    multiplier: Multiplier = Multiplier()
    """How a real ratio becomes integers."""
    bias_effective_bits: dict[str, int] = {}
    """Operator family -> effective bits of a bias. If the largest code has more bits, all codes lose their low bits."""
    significant_bits: dict[Literal["inverse_root"], Expr] = {}
    """Real number between two stages -> significant bits of its format, as an expression over activation_bits."""
    accumulator: Accumulator = Accumulator()
    """What happens to a sum that leaves the accumulator."""
    fixed_outputs: dict[str, FixedOutput] = {}
    """Operator -> output parameters that the system fixes."""
    fixed_ranges: dict[str, Annotated[list[Finite], Field(min_length=2, max_length=2)]] = {}
    """Operator -> fixed range of its output. Calibration is ignored. Its codes use the full format."""
    unit_range_above_8_bits: list[str] = []
    """Operator families whose outputs of more than 8 bits have the fixed range [-1, 1], independent of calibration.
    It is symmetric, the largest code is 1, and the smallest code is unused. Their tables hold one period and are read
    without interpolation."""
    tables: TableRule = TableRule()
    """How a function of one input becomes a lookup table."""
    activations: dict[Activation, Activation] = {"relu": "relu", "relu6": "relu6"}
    """Fused activation -> the activation that the integer arithmetic computes."""
    activation_limits: dict[Literal["default"] | Variant, Quantizer] = {}
    """Requantization variant, or default -> how a fused activation's limit becomes a code. Default: in the same way as
    outputs."""
    absorbs_zero_point: list[str] = []
    """Operator families whose bias is kept in float32 and includes the input zero point's share of the sums.
    Codes of more than 24 bits lose low bits."""
    padded_tiles: dict[str, int] = {}
    """Operator -> code of the padding in tiles that are cut along windows. If absent, padding means 0."""
    clamp_range_to_output_limits: list[str] = []
    """Operator families whose calibrated range is clamped to the possible values of the output."""
    full_range_outputs: list[str] = []
    """Operators whose output has the parameters of the input but may use the full format."""
    shared_parameters: list[str] = []
    """Operator families whose inputs share parameters, from the union of their ranges."""
    same_as_input: list[str] = []
    """Operator families whose output takes the parameters of the first input."""
    ones_complement_outputs: list[str] = []
    """Operator families whose output has the step of the first input and signed codes of the full format. The zero
    point is such that code x becomes -x - 1, or 127 - x for unsigned codes of 8 bits. No multiplication is needed."""
    same_as_equal_inputs: list[str] = []
    """Operator families whose output takes the inputs' parameters if these are all equal."""
    aligned_within: dict[str, Finite] = {}
    """Operator family -> factor. Operands are not rescaled if all scales (the output's included) lie within this factor
    and all zero points are equal."""
    per_channel_weights: list[str] = []
    """Operator families whose weights have one scale per channel under every scheme."""
    per_tensor_weights: list[str] = []
    """Operator families whose weights have one scale under every scheme."""
    vector_lanes: int = Field(default=1, ge=1)
    """The number of codes in one vector of an element-wise kernel, which computes the rest of a row one by one."""
    weight_bits: dict[str, Annotated[int, Field(ge=2, le=16)]] = {}
    """Operator family -> bits of its weights under every scheme."""
    output_signs: dict[str, str] = {}
    """Fused activation, or else operator family -> sign of the output: signed, unsigned, inputs (signed if one input
    is), or an expression over attributes that is true for signed. Other outputs are signed if activations are."""
    stages: dict[str, Annotated[dict[Identifier, Stage], Field(min_length=1)]] = {}
    """Operator -> its roundings on this system by name, the output's last. They replace the stages of the spec."""
    index_dtype: str = "int64"
    """Number format of index outputs."""
    releases: list[Release] = []
    """Settings of later versions of the system, oldest first."""
    enclosing: Enclosing | None = None
    """If present, outputs are judged by intervals, and runs of the same elements in other shapes need not agree bit for
    bit. Such a platform is
    judged where a run names it, or names an engine that no platform describes."""
    defects: list[Defect] = []
    """Known defects of the real system; they do not expire."""
    graph_defects: list[GraphDefect] = []
    """Known defects that the real system shows only where it fuses nodes."""

    @property
    def places(self) -> tuple[str, ...]:
        """The names under which its functions, oracles and exceptions are looked up; the first with an entry counts."""
        own, other = self.platform, self.functions
        # a copy may keep the key with its own name
        return (own, other) if other and other != own else (own,)

    @property
    def runtime_quantizer(self) -> Quantizer:
        """How a real value becomes a code while a graph runs: `kernel_quantizer` if given, else `quantizer`."""
        return self.kernel_quantizer or self.quantizer

    def at_release(self, engine: str, version: str) -> Platform:
        """Return the platform as *version* of *engine* computes it; an empty version is the platform's own."""
        # releases are listed in rising order: the last that was reached holds
        reached = [r for r in self.releases if r.engine == engine and release_of(r.first) <= release_of(version)]
        return self.model_copy(update={"quantizer": reached[-1].quantizer}) if reached else self

    @property
    def is_later(self) -> bool:
        """Whether these are the settings of a later release, not the platform's own."""
        return any(self.quantizer == release.quantizer for release in self.releases)

    @property
    def in_graphs(self) -> Platform:
        """The platform as it computes operators that a graph holds as float operators between their quantizations."""
        if not self.graph_requantize:
            return self
        return self.model_copy(update={"requantize": {**self.requantize, **self.graph_requantize}})

    def limit(self, variant: Variant | None) -> Quantizer | None:
        """Return how the limit of a fused activation becomes a code under *variant*."""
        usual = self.activation_limits.get("default")
        return usual if variant is None else self.activation_limits.get(variant, usual)

    def variant(self, family: str, names: Callable[[], Mapping[str, Any]]) -> Variant:
        """Return the requantization variant of *family* for a case with these values of *names*."""
        usual = self.requantize.get(family, self.requantize["default"])
        if not (choices := self.variants.get(family)):
            return usual
        # computed only where a condition asks for them: it runs for every case
        values = names()
        return next((choice.variant for choice in choices if choice.when(values)), usual)


def computed_activation(platform: Platform, fused: str) -> str:
    """Return the activation that the platform computes on integers for a fused one: itself if it names no other."""
    named: Mapping[Any, str] = platform.activations
    return named.get(fused, fused)
