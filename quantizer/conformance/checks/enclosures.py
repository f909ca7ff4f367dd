"""The enclosures of the check `accuracy`, one per error model: all results for inputs within half a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds, grids
from quantizer.conformance.bounds import Interval
from quantizer.conformance.checks import poles
from quantizer.conformance.checks.held_biases import held_radius, is_held
from quantizer.conformance.checks.norm_interval import norm_enclosure
from quantizer.conformance.checks.resize import resize_enclosure
from quantizer.conformance.grids import listed
from quantizer.conformance.trials.provided import as_torch
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import limits

Array = NDArray[Any]


def radius(trial: Trial, name: str) -> Array:
    """Return dx, the largest distance of a code's value from the float it represents, or the trial's own radius."""
    if name in trial.radii:
        return trial.radii[name]
    if trial.spec.inputs[name].kind != "value":
        return np.zeros(trial.case.shapes[name])
    params = trial.qparams(name)
    if listed(params) is not None:
        scale, mode = trial.broadcast(name, params.scale), trial.target.platform.quantizer.rounding
        return grids.radius(trial.doubles[name].numpy(), scale, params, nearest=mode.startswith("half"))
    quantizer = trial.target.platform.quantizer
    further = held_radius(trial, name) if is_held(trial, name) else 0.0
    return further + bounds.input_radius(
        trial.doubles[name].numpy(),
        trial.broadcast(name, params.scale),
        trial.broadcast(name, params.zero_point),
        params.qmin,
        params.qmax,
        float32=quantizer.operation != "exact",
        rounding=quantizer.rounding,
    )


def computed(trial: Trial, **operands: Array) -> Array:
    """Return the reference's result for operands by name."""
    return trial.reference({name: as_torch(values) for name, values in operands.items()})


def known_operands(trial: Trial) -> dict[str, tuple[Array, Array]]:
    """Return each input's float values and dx, the largest distance of a code's value from them."""
    return {name: (values.numpy(), radius(trial, name)) for name, values in trial.doubles.items()}


def _movement(trial: Trial) -> Interval:
    return bounds.movement_of(lambda **ends: computed(trial, **ends), known_operands(trial))


def _linear(trial: Trial) -> Interval:
    def absolute(**values: Array) -> Array:
        return trial.magnitude({name: as_torch(part) for name, part in values.items()})

    terms = sum(map(trial.most_read, trial.doubles))
    return bounds.linear(
        lambda **v: computed(trial, **v), absolute, known_operands(trial), terms=terms, centre=trial.centre
    )


def _bilinear(trial: Trial) -> Interval:
    operands = known_operands(trial)
    x, w = [name for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    b = next((name for name in trial.tensors if trial.spec.inputs[name].role == "bias"), None)

    def f(value: Array, weight: Array, bias: Array | None = None) -> Array:
        named = {x: value, w: weight} | ({b: bias} if b is not None and bias is not None else {})
        return computed(trial, **named)

    bias = None
    if b is not None:
        # the distance of a bias is known per channel; the bound takes it per output element
        bias = (operands[b][0], np.broadcast_to(trial.per_channel(as_torch(operands[b][1])), trial.output_shape))
    terms = max(trial.most_read(x), trial.most_read(w))
    return bounds.bilinear(f, f, operands[x], operands[w], bias, terms=terms, centre=trial.centre)


def _piecewise_bilinear(trial: Trial) -> Interval:
    (x, dx), (w, dw) = known_operands(trial).values()
    (first, second), points = trial.tensors, trial.spec.error_model.critical_points
    return bounds.piecewise_bilinear(
        lambda value, weight: computed(trial, **{first: value, second: weight}), (x, dx), (w, dw), points
    )


def _softmax(trial: Trial) -> Interval:
    x, dx = known_operands(trial)["x"]
    enclosure = bounds.log_softmax if trial.spec.error_model.logarithm else bounds.softmax
    return enclosure(x, np.broadcast_to(dx, x.shape), trial.axis)


def _magnitude(x: Array, dx: Array) -> Array:
    """Return the size of the largest terms that the reference of a one-input function subtracts."""
    return np.asarray(np.maximum(np.abs(x) + dx, 1.0))


def _monotone(trial: Trial) -> Interval:
    """Enclose a monotone function.

    A function that is defined beyond its monotone domain (a square) changes direction at the domain's end.
    """
    name = trial.spec.activations[0]
    x, dx = known_operands(trial)[name]
    item = trial.spec.inputs[name]
    ends = [] if item.domain is None else [end for end in limits(item, trial.bound) if math.isfinite(end)]
    return bounds.piecewise_monotone(lambda v: computed(trial, **{name: v}), x, dx, ends, magnitude=_magnitude(x, dx))


def _piecewise(trial: Trial) -> Interval:
    name = trial.spec.activations[0]
    x, dx = known_operands(trial)[name]
    points = turning_points(trial, x - dx, x + dx)
    return bounds.piecewise_monotone(lambda v: computed(trial, **{name: v}), x, dx, points, magnitude=_magnitude(x, dx))


def turning_points(trial: Trial, low: Array, high: Array) -> list[Array | float]:
    """Return the extrema of the function; for a periodic function, the first of each kind inside every interval."""
    model = trial.spec.error_model
    if model.period is None:
        return list(model.critical_points)
    return [bounds.critical_points_between(low, high, point, model.period) for point in model.critical_points]


def _poles(trial: Trial) -> Interval:
    boxes = {name: Interval.around(x, np.broadcast_to(dx, x.shape)) for name, (x, dx) in known_operands(trial).items()}
    if len(boxes) == 1:
        ((name, box),) = boxes.items()
        return poles.enclosure(trial, name, box)
    return bounds.divide(*boxes.values())


def _product(trial: Trial) -> Interval:
    ((x, dx),) = known_operands(trial).values()
    found = bounds.product(x, dx, trial.bound["axes"])
    return Interval(found.lo.reshape(trial.output_shape), found.hi.reshape(trial.output_shape))


def _euclidean(trial: Trial) -> Interval:
    ((name, (x, dx)),) = known_operands(trial).items()
    return bounds.euclidean(lambda v: computed(trial, **{name: v}), x, dx, terms=trial.terms)


ENCLOSURES: Mapping[str, Callable[[Trial], Interval]] = {
    "movement": _movement,
    "selection": lambda trial: _piecewise(trial) if trial.spec.error_model.critical_points else _movement(trial),
    "linear": _linear,
    "mean": _linear,
    "bilinear": _bilinear,
    "piecewise_bilinear": _piecewise_bilinear,
    "softmax": _softmax,
    "normalization": lambda trial: norm_enclosure(trial, known_operands(trial)),
    "resize": lambda trial: resize_enclosure(trial, *known_operands(trial)["x"]),
    "monotone": _monotone,
    "piecewise_monotone": _piecewise,
    "poles": _poles,
    "product": _product,
    "euclidean": _euclidean,
}
