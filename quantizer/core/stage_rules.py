"""Validates declared stages.

Names must exist, every stage except the output needs a format, and each stage must be used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from quantizer.core.domains import domains_of
from quantizer.core.model_errors import Finding
from quantizer.core.real_expressions import OF_NUMBERS, OF_TWO, WORDS
from quantizer.core.spec import Spec
from quantizer.core.stages import Stage, ends_of
from quantizer.core.wording import suggestion
from quantizer.core.yaml_source import Location


def check_stages(spec: Spec, stages: Mapping[str, Stage], place: Location = ("stages",)) -> Iterator[Finding]:
    """Yield the errors in *stages* of *spec*, which are declared at *place* of a file."""
    if not stages:
        return
    if len(spec.outputs) != 1 or next(iter(spec.outputs.values())).kind != "value" or spec.quantization.outputs:
        text = "are for an operator with one output of real values, whose range is calibrated."
        yield Finding(place, text, key=True)
        return
    if spec.fuses:
        yield Finding(place, "round an activation themselves. Remove `fuses`, and write it as a stage.", key=True)
    (output,) = spec.outputs
    if list(stages)[-1] != output:
        yield Finding(place, f"must end with {output}, the output.", key=True)
        return
    domains = domains_of(spec).keys()
    known = {n for n, item in spec.inputs.items() if item.kind == "value" and not item.optional}
    scales = {word for name in spec.coded if name in known for word in ends_of(name, 0, 0, 0)}
    read = frozenset[str]().union(*(stage.value.names for stage in stages.values()))
    for name, stage in stages.items():
        where = (*place, name)
        if name in domains or name in spec.inputs or name in WORDS:
            yield Finding(where, "is another name already. Choose another name.", key=True)
        elif name != output and name not in read:
            yield Finding(where, "no later stage reads it. Remove it, or name it in one.", key=True)
        yield from _named(
            stage.value.names, {*known, *domains}, (*where, "value"), "operand, earlier stage, dim or attr"
        )
        yield from _format(stage, {*domains, *scales}, domains, where, is_output=name == output)
        if stage.rounding == "stochastic":
            yield Finding((*where, "rounding"), "stochastic: runs could not be compared. Write another mode.")
        # only later stages may read it
        known.add(name)
        scales |= ends_of(name, 0, 0, 0).keys()


def _format(
    stage: Stage, names: Collection[str], domains: Collection[str], where: Location, *, is_output: bool
) -> Iterator[Finding]:
    """Yield the errors about bits and scale: the output must have neither, every other stage both."""
    for key in ("bits", "scale"):
        if is_output and getattr(stage, key) is not None:
            yield Finding((*where, key), "the output's format is the scheme's. Remove it.", key=True)
        elif not is_output and getattr(stage, key) is None:
            yield Finding((*where, key), "must be given for a stage before the output.")
    if stage.bits is not None:
        yield from _named(stage.bits.names, {*domains, "activation_bits"}, (*where, "bits"), "dim or attr")
    if stage.scale is not None:
        yield from _named(stage.scale.names, {*names, "activation_bits"}, (*where, "scale"), "number of a scale")
        if wrong := sorted(stage.scale.functions - {*OF_NUMBERS, *OF_TWO}):
            text = f"a scale uses {', '.join((*OF_NUMBERS, *OF_TWO))} only, got {wrong[0]}."
            yield Finding((*where, "scale"), text)


def _named(used: frozenset[str], known: Collection[str], where: Location, what: str) -> Iterator[Finding]:
    for name in sorted(used - set(known) - WORDS):
        yield Finding(where, f"name {name!r} is no {what}.{suggestion(name, known, 'Known')}")
