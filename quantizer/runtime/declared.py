"""Finds the scheme of a platform that fits all parameters of a node of an integer graph, or the reason why none fits.

A scheme combines bits, symmetry and granularity. The platform lists its schemes, and for each the operators that have
it. A node that no declared scheme fits has no integer function, even if one could be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.core.library import Library, load_library
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme, WeightPart
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Constant, QParams
from quantizer.numerics.rules import weight_part

CONSTANT_FACTORS = ("matrix_product",)
"""Operator families whose constant activation may have another sign than the other operands, as a weight may."""


@dataclass(frozen=True)
class Provided:
    """A node of a registry operator: parameters by the spec's names, and the graph's names of its tensors."""

    spec: Spec
    names: Mapping[str, str]
    """Input or output of the spec -> tensor of the graph."""
    activations: Mapping[str, QParams]
    """Inputs that are read as codes, indices left out."""
    output: QParams | None
    """None for an index."""
    constants: Mapping[str, Constant]
    """Weights and biases."""
    fixed: frozenset[str] = frozenset()
    """Activations that are constants of the graph."""

    @property
    def weights(self) -> dict[str, Constant]:
        """Constants that the sums multiply by."""
        return {key: c for key, c in self.constants.items() if self.spec.inputs[key].role == "weight"}

    @property
    def formats(self) -> dict[str, QParams]:
        """The formats of the activations, and of the result if it has parameters."""
        result = next(iter(self.spec.outputs))
        return {**self.activations, **({} if self.output is None else {result: self.output})}


def declared_scheme(provided: Provided, platform: Platform) -> Scheme:
    """Return the first scheme of *platform* that fits *provided*.

    Raises UnsupportedError if no scheme does. It names the tensor, its properties, what the platform declares, and
    platforms that accept it.
    """
    library = load_library()
    schemes = _schemes(provided.spec, platform, library)
    if not schemes:
        raise UnsupportedError(f"platform {platform.platform!r} has no operator {provided.spec.op}")
    # one property after another, so that the error names the first that no scheme has
    for misfit in _misfits(platform):
        left = [scheme for scheme in schemes if misfit(provided, scheme) is None]
        if not left:
            raise UnsupportedError(_reason(misfit(provided, schemes[0]) or "", provided, platform, schemes, library))
        schemes = left
    reason = _mixed(provided, platform)
    if reason is not None:
        raise UnsupportedError(reason)
    return schemes[0]


def check_accumulator(provided: Provided, platform: Platform, bits: int, terms: int) -> None:
    """Raise UnsupportedError if a sum of products of possible codes leaves the accumulator of *bits* bits.

    terms: the number of products in one sum, for operands that are not constants.
    """
    if platform.accumulator.overflow == "unbounded" or provided.spec.error_model.kind != "bilinear":
        return
    largest, limit = _largest_sum(provided, terms), 2 ** (bits - 1) - 1
    # -2**(bits - 1) is legal too, but magnitudes are compared: one value is given away
    if largest > limit:
        raise UnsupportedError(
            f"{_called(provided, next(iter(provided.spec.outputs)))}: its sums reach {largest}, platform "
            f"{platform.platform!r} declares an accumulator of {bits} bits, up to {limit}, and beyond: "
            f"{platform.accumulator.overflow}"
        )


def _schemes(spec: Spec, platform: Platform, library: Library) -> list[Scheme]:
    """Return the integer schemes under which the platform runs the operator, those of its own quantizer first."""
    # graph_schemes are accepted in models, although the platform's own quantizer never writes them
    also = platform.model_copy(update={"schemes": [*platform.schemes, *platform.graph_schemes]})
    found = [library.schemes[name] for name in library.schemes_for(spec, also)]
    return [scheme for scheme in found if not scheme.activation.fast and scheme.grid == "uniform"]


Misfit = Callable[[Provided, Scheme], str | None]


def _misfits(platform: Platform) -> tuple[Misfit, ...]:
    """Return tests, functions of a scheme. Each returns a reason why the scheme does not fit, or None."""

    def weights(provided: Provided, scheme: Scheme, wrong: Callable[[QParams, WeightPart], str | None]) -> str | None:
        for key, constant in provided.weights.items():
            assert scheme.weight is not None
            part = weight_part(scheme.weight, platform, provided.spec.quantization.family)
            if (said := wrong(constant.params, part)) is not None:
                return f"{_called(provided, key)} has {said}"
        return None

    def weight_bits(provided: Provided, scheme: Scheme) -> str | None:
        return weights(provided, scheme, lambda p, part: None if p.dtype.bits == part.bits else f"weights of {p.dtype}")

    def sign(provided: Provided, scheme: Scheme) -> str | None:
        kind = "uint" if platform.parameters.weight_sign == "unsigned" else "int"
        free = scheme.name in platform.graph_schemes
        return weights(
            provided,
            scheme,
            lambda p, _: None if free or p.dtype.kind == kind else f"weights of {p.dtype}, a sign that it lacks",
        )

    def grain(provided: Provided, scheme: Scheme) -> str | None:
        return weights(
            provided,
            scheme,
            lambda p, part: "a scale for each channel" if p.axis is not None and part.granularity == "tensor" else None,
        )

    def offset(provided: Provided, scheme: Scheme) -> str | None:
        return weights(
            provided,
            scheme,
            lambda p, part: (
                f"zero point {_first(p.zero_point)}"
                if part.symmetry == "symmetric" and bool(p.zero_point.any())
                else None
            ),
        )

    return _activation_bits, _zero_points, _activation_rule, weight_bits, sign, grain, offset, _bias_bits


def _activation_bits(provided: Provided, scheme: Scheme) -> str | None:
    for key, params in provided.formats.items():
        if params.dtype.bits != scheme.activation.bits:
            return f"{_called(provided, key)} has codes of {params.dtype}"
    return None


def _zero_points(provided: Provided, scheme: Scheme) -> str | None:
    if scheme.activation.symmetry == "asymmetric":
        return None
    for key, params in provided.formats.items():
        if bool(params.zero_point.any()):
            return f"{_called(provided, key)} has zero point {_first(params.zero_point)} at {params.dtype.bits} bits"
    return None


def _activation_rule(provided: Provided, scheme: Scheme) -> str | None:
    if scheme.activation.rule != "power_of_two":
        return None
    for key, params in provided.formats.items():
        # frexp's fraction is in [1/2, 1): exactly 1/2 for a power of two
        if bool((torch.frexp(params.scale).mantissa != 0.5).any()):
            return f"{_called(provided, key)} has scale {float(params.scale.reshape(-1)[0]):.9g}"
    return None


def _bias_bits(provided: Provided, scheme: Scheme) -> str | None:
    for key, constant in provided.constants.items():
        bits = constant.params.dtype.bits
        if provided.spec.inputs[key].role == "bias" and scheme.weight is not None and bits > scheme.weight.bias_bits:
            return f"{_called(provided, key)} has a bias of {bits} bits"
    return None


def _mixed(provided: Provided, platform: Platform) -> str | None:
    """Return why the signs of the tensors are illegal on the platform; None if they are equal or may differ there."""
    if platform.parameters.activation_sign == "by_range":
        return None
    # a constant operand of a product is a weight in disguise: its sign may differ
    kept = {
        key: params
        for key, params in provided.formats.items()
        if not (key in provided.fixed and provided.spec.quantization.family in CONSTANT_FACTORS)
    }
    kinds = {params.dtype.name: key for key, params in kept.items()}
    if len(kinds) < 2:
        return None
    shown = ", ".join(f"{_called(provided, key)} of {name}" for name, key in kinds.items())
    return (
        f"{shown}: platform {platform.platform!r} has one format for the activations of an operator. "
        "Quantize them alike"
    )


def _reason(misfit: str, provided: Provided, platform: Platform, schemes: Iterable[Scheme], library: Library) -> str:
    names = ", ".join(scheme.name for scheme in schemes)
    others = [
        p.platform
        for p in library.platforms.values()
        if p.platform != platform.platform and _fits(provided, p, library)
    ]
    instead = f", or name a platform that has it ({', '.join(others)})" if others else ""
    return f"{misfit}: platform {platform.platform!r} declares {names} for {provided.spec.op}. Quantize it so{instead}"


def _fits(provided: Provided, platform: Platform, library: Library) -> bool:
    schemes = _schemes(provided.spec, platform, library)
    fits = [scheme for scheme in schemes if all(misfit(provided, scheme) is None for misfit in _misfits(platform))]
    return bool(fits) and _mixed(provided, platform) is None


def _called(provided: Provided, key: str) -> str:
    return repr(provided.names.get(key, key))


def _first(zero: Tensor) -> int:
    """Return the first zero point that is not 0."""
    flat = zero.reshape(-1)
    return int(flat[flat != 0][0])


def _largest_sum(provided: Provided, terms: int) -> int:
    """Return the largest magnitude of a sum of products of codes less their zero points, the bias included."""
    reach = [max(abs(p.qmin - z), abs(p.qmax - z)) for p in provided.activations.values() for z in (int(p.zero_point),)]
    # two computed operands: all products may have the largest magnitude at once
    if not provided.weights:
        product = terms
        for item in reach:
            product *= item
        return product
    # with constant weights the ends are exact: each code at the end that its weight's sign asks for
    low = high = torch.zeros((), dtype=torch.int64)
    for key, constant in provided.weights.items():
        first = next(iter(provided.activations.values()))
        most = max(first.qmax - int(first.zero_point), 0)
        least = min(first.qmin - int(first.zero_point), 0)
        axis = provided.spec.inputs[key].channel_axis or 0
        centred = constant.codes - constant.params.along(constant.params.zero_point, constant.codes.dim())
        # the rows have the shape [channels, terms]
        rows = centred.movedim(axis, 0).reshape(centred.shape[axis], -1)
        above, below = rows.clamp(min=0).sum(1), rows.clamp(max=0).sum(1)
        low, high = above * least + below * most, above * most + below * least
    for key, constant in provided.constants.items():
        if provided.spec.inputs[key].role == "bias":
            bias = constant.codes.reshape(-1)
            # groups of a transposed convolution share filters: each filter has a bias for each group
            repeats = bias.numel() // max(low.numel(), 1)
            low, high = (end.repeat(max(repeats, 1)) + bias for end in (low, high))
    return int(torch.maximum(low.abs(), high.abs()).max())
