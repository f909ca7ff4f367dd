"""Known defects of real systems, declared by platforms and by `--op-xfails`, and validation of these declarations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from quantizer.core.errors import SpecError
from quantizer.core.expressions import parse
from quantizer.core.levels import known_sets
from quantizer.core.model import Model
from quantizer.core.model_errors import Finding
from quantizer.core.variants import RatioArithmetic, Variant
from quantizer.core.verdict import CHECKS
from quantizer.core.wording import suggestion
from quantizer.core.yaml_source import Location

Severity = Literal["memory", "wrong", "off_by_one", "design"]
"""memory: the engine reads foreign memory, or its process ends; wrong: errors larger than any rounding; off_by_one:
results next to the right one that contradict the system's own documentation or its other kernels; design: two
roundings that can both be defended."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The severities, the worst first."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
CASE_NAMES = tuple(
    (
        "activation_bits lut_bits weight_bits data activation input_spread spread largest_sum largest_ratio "
        "largest_code input_zero_point output_zero_point weight_zero_point range_low terms fast cut_axes largest_pair "
        "biased"
    ).split()
)
"""Names that the predicate of a defect may use besides dimensions and attributes.

activation: the fused one; input_spread, spread: largest scale over smallest, of the inputs, and of inputs and output;
largest_sum: the largest |sum| of centred codes, or |centred code| of one input; largest_ratio: the largest ratio of an
input's or weight's scale to the output's; largest_code: the largest |code| that the output would have without
saturation; input_zero_point, output_zero_point, weight_zero_point: the largest |zero point| of inputs, outputs and
weights; range_low: the highest of the lower ends of the calibrated ranges, each in its own steps; terms: the number of
terms in the error model; fast: whether the scheme is a fast one; cut_axes: the axes that tiles cut; largest_pair: the
largest sum that two products of a raw code and a raw weight could have; biased: whether the case has a bias."""


class Computes(Model):
    """The computation of an engine where it differs from its platform's declaration.

    A result that is neither is a failure.
    """

    requantize: dict[str, Variant] = {}
    """Operator family -> the requantization that it has in the engine."""
    ratio: dict[str, RatioArithmetic] = {}
    """Operator family -> the arithmetic in which the engine forms the ratio of scales."""
    multiples: dict[str, Annotated[int, Field(ge=2)]] = {}
    """Operand -> number.

    The engine rounds each code to the nearest multiple of this number, and ties to an even multiple.
    """
    saturating_pairs: dict[str, int] = {}
    """Operand -> axis along which its terms are summed. The engine shifts its signed codes to unsigned ones, adds the
    products of every two neighbouring terms with saturation at 16 bits, and then subtracts the shift's contribution."""
    whole_codes: list[str] = []
    """Attributes that the engine first converts to codes of the first input, rounded toward zero."""
    zero_point: Literal["before", "after"] = "after"
    """before: the engine adds the output's zero point in float32 and rounds the sum."""
    off_by: str = ""
    """How far the real result of the engine's float operator may be from the right one, for each element: an expression
    over `y`, the right result; `step`, the output's scale; `code`, `y` over `step`; `largest`, the largest |value| of
    an operand; `infinity`; attributes; and operands that broadcast to the result. Empty: the result must be right. The
    distance is allowed in addition to the error of float32. A result that may be off by infinity may be NaN, too."""
    within: Annotated[int, Field(ge=0)] = 0
    """The allowed distance from the codes of the built-in functions under this arithmetic, or under the platform's
    own."""

    @property
    def encloses(self) -> bool:
        """Whether results are judged by intervals, not by equality."""
        changed = self.multiples or self.saturating_pairs or self.whole_codes or self.off_by
        return bool(changed) or self.zero_point == "before"

    @property
    def checks(self) -> tuple[str, ...]:
        """Checks whose failures it can explain: by default those of codes."""
        of_codes = ("arithmetic", "accuracy", "tiled", "engine", *(["float"] if self.off_by else []))
        return (*of_codes, "properties", "repeat") if self.encloses else of_codes


class Defect(Model):
    """A known defect of a real system, which the platform reproduces."""

    id: str
    """Its name, which never changes."""
    ops: list[str] | None = None
    """Operators that show it; None: all."""
    predicate: str
    """A condition on the case. Where it is true, the named checks are expected to fail."""
    checks: list[str]
    """Checks that are expected to fail."""
    reason: str
    """What the real system does, and the source of this knowledge."""
    severity: Severity | None = None
    """How bad it is; differences by design are listed apart."""
    root: str = ""
    """The name of its cause, if several entries share one; empty: its own id. Reports count causes, not entries."""
    cause: str = ""
    """The faulty place in the system's source, or the faulty instruction, if it could be read or inferred.

    If entries share one cause, the first entry has this key and `upstream`."""
    upstream: list[str] = []
    """Addresses of reports of it, or of near relatives, where the system is developed."""
    case: str
    """A stored case that must fail: a path in the folder of stored cases."""
    since: str = ""
    """Day on which it was declared, YYYY-MM-DD: reports list defects by age."""
    engine: str | None = None
    """The real engine and variant (`name:variant`) with the defect, if the built-in functions of the platform do not
    have it."""
    versions: list[str] = []
    """Versions of that engine in which it was seen. Other versions are not excused."""
    needs: list[str] = []
    """Instruction sets, as Linux names them, that the engine must have to show it. Engines choose kernels by them.

    Only sets count that the processor has and the run's level (`--op-isa`) allows. If only one library of the engine
    must have a set, the set carries the library's name: library.avx512_vnni.
    """
    lacks: list[str] = []
    """Instruction sets that the engine, or one of its libraries, must not have to show it."""
    computes: Computes | None = None
    """What the engine computes, if known. Then only codes that equal it, or lie in its intervals, are excused."""
    unstable: bool = False
    """The engine's result changes from run to run and is sometimes correct. A case is then known even if it passes."""

    def concerns(self, op: str) -> bool:
        """Return whether the operator *op* shows the defect."""
        return self.ops is None or op in self.ops

    def seen_with(self, instructions: Collection[str]) -> bool:
        """Return whether an engine that has *instructions* shows it."""
        return set(self.needs) <= set(instructions) and set(self.lacks).isdisjoint(instructions)


GRAPH_ATTRIBUTES: Mapping[str, Any] = {
    "axis": 0,
    "ceil_mode": 0,
    "count_include_pad": 0,
    "dilations": (1,),
    "group": 1,
    "kernel_shape": (1,),
    "pads": (0,),
    "strides": (1,),
}
"""Attributes of ONNX in the predicate of a defect of fused graphs, with their values where a node has none."""
GRAPH_NAMES = (
    "input_scale",
    "input_zero_point",
    "output_scale",
    "output_zero_point",
    "second",
    "third",
    "shape",
    "second_shape",
    "before",
    "after",
    *GRAPH_ATTRIBUTES,
)
"""Names in the predicate of a defect of fused graphs.

Scale and zero point of a node's first operand and of its result, 0 where these hold no codes; the values of its second
and third operand, if these are constants of one element, else 0; the shapes of the first and second operand; `before`
and `after`: the operator that computes its first operand, and the only operator that reads its result, quantizations
left out (empty text: there is none); attributes.
"""


class GraphDefect(Model):
    """A known defect of a real engine that appears only where it fuses nodes, never in a single operator."""

    id: str
    """Its name, which never changes."""
    op: str
    """ONNX operator of the node whose fused kernel has the defect."""
    predicate: str
    """A condition on the node and its neighbours. Where it is true, results of the node and of later nodes may be
    wrong.

    It may name input_scale, input_zero_point, output_scale, output_zero_point (0 where there are no codes); second
    and third (values of constants of one element, else 0); shape and second_shape; before and after (operators,
    quantizations left out); and attributes of ONNX."""
    reason: str
    """What the real system does, and the source of this knowledge."""
    severity: Severity | None = None
    """How bad it is; differences by design are listed apart."""
    root: str = ""
    """The name of its cause, if several entries share one; empty: its own id."""
    cause: str = ""
    """The faulty place in the system's source, if it could be read or inferred."""
    upstream: list[str] = []
    """Addresses of reports of it where the system is developed."""
    script: str = ""
    """A file in `examples/gallery`: a stand-alone script that shows the defect through the engine's own API."""
    graph: str
    """A graph of `graph_specs` that shows it."""
    since: str
    """Day on which it was declared, YYYY-MM-DD."""
    engine: str
    """The real engine that has it."""
    versions: Annotated[list[str], Field(min_length=1)]
    """Versions of that engine in which it was seen. Other versions are not excused."""


def check_graph_defects(defects: Sequence[GraphDefect], taken: Sequence[str]) -> Iterator[Finding]:
    """Yield the errors of a platform's `graph_defects`; ids in *taken* are declared elsewhere."""
    seen = set(taken)
    for index, defect in enumerate(defects):
        if defect.id in seen:
            yield Finding(("graph_defects", index, "id"), f"{defect.id!r} is the id of another defect.")
        seen.add(defect.id)
        try:
            unknown = parse(defect.predicate).names - set(GRAPH_NAMES)
        except SpecError as err:
            yield Finding(("graph_defects", index, "predicate"), str(err))
        else:
            for name in sorted(unknown):
                text = f"no such name.{suggestion(name, GRAPH_NAMES, 'Known')}"
                yield Finding(("graph_defects", index, "predicate"), text)
        if not is_day(defect.since):
            text = f"must be a day, got {defect.since!r}. Write it as 2027-01-31."
            yield Finding(("graph_defects", index, "since"), text)


def check_defects(defects: Sequence[Defect], key: str, taken: Sequence[str] = ()) -> list[Finding]:
    """Return the errors of *defects*, which are declared under *key*; ids in *taken* are declared elsewhere."""
    findings = []
    ids = [*taken, *(defect.id for defect in defects)]
    for index, defect in enumerate(defects):
        # only against earlier ids, so that the later entry is reported
        if defect.id in ids[: len(taken) + index]:
            findings.append(Finding((key, index, "id"), f"{defect.id!r} is the id of another defect."))
        if not defect.id.isidentifier():
            text = f"must be letters, digits and underscores, got {defect.id!r}. Write it as sums_saturate."
            findings.append(Finding((key, index, "id"), text))
        try:
            parse(defect.predicate)
        except SpecError as err:
            findings.append(Finding((key, index, "predicate"), str(err)))
        # both or neither must be given
        if (defect.engine is None) != (not defect.versions):
            text = "a defect of a real engine names the versions in which it was seen, no other does."
            findings.append(Finding((key, index, "versions"), text))
        findings += _engine_findings(defect, (key, index))
        if defect.since and not is_day(defect.since):
            findings.append(
                Finding((key, index, "since"), f"must be a day, got {defect.since!r}. Write it as 2027-01-31.")
            )
        findings += [
            Finding((key, index, "checks", place), f"no such check.{suggestion(name, CHECKS, 'Known')}")
            for place, name in enumerate(defect.checks)
            if name not in CHECKS
        ]
    return findings


def _engine_findings(defect: Defect, at: Location) -> Iterator[Finding]:
    """Yield findings on the keys that only a defect of a real engine may have."""
    if defect.engine is None:
        said = [name for name in ("unstable", "computes", "needs", "lacks") if getattr(defect, name)]
        text = "our functions do the same everywhere: name the real engine that differs in `engine`."
        yield from (Finding((*at, name), text) for name in said)
    if defect.computes == Computes():
        yield Finding((*at, "computes"), "says nothing: name what the engine computes, or leave it out.")
    stated = defect.computes
    if stated and stated.encloses and (stated.requantize or stated.ratio or stated.within):
        text = "requantize, ratio and within are of exact platforms, the others of enclosing ones: declare two defects."
        yield Finding((*at, "computes"), text)
    for place, name in enumerate(defect.checks):
        if stated and name in CHECKS and name not in stated.checks:
            text = (
                f"{name}: the stated codes cannot explain why this check fails. Remove it, or declare another defect."
            )
            yield Finding((*at, "checks", place), text)
    if stated and stated.off_by:
        try:
            parse(stated.off_by)
        except SpecError as err:
            yield Finding((*at, "computes", "off_by"), str(err))
    known = known_sets(defect.engine or "")
    for key in ("needs", "lacks"):
        for place, name in enumerate(getattr(defect, key)):
            if name not in known:
                text = f"{name!r}: no such instruction set.{suggestion(name, known, 'Known')}"
                yield Finding((*at, key, place), text)


def is_day(text: str) -> bool:
    """Return whether *text* is a day, YYYY-MM-DD."""
    try:
        return bool(_DAY.fullmatch(text)) and date.fromisoformat(text) is not None
    except ValueError:
        return False
