"""Models of cases for a bundle: the file that a system reads, its feeds, and the layout of its output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.errors import RefusedError, UnsupportedError
from quantizer.core.rooms import engines, forms
from quantizer.core.wording import suggestion
from quantizer.runtime.engines.lowering import Lowered, load_lowering

OWN = "npz"
"""The form whose numbers every bundle contains anyway."""
Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape of a model's output, and the permutation of its axes that gives the operator's order."""


def check_forms(asked: Sequence[str]) -> None:
    """Raise UnsupportedError for a form that no lowering writes, or whose packages are missing."""
    known = [name for name in forms() if name != OWN]
    for name in asked:
        if name not in known:
            raise UnsupportedError(f"--form={name}: no such form.{suggestion(name, known, 'Known')}")
        load_lowering(forms()[name])


def lowered(trial: Trial, form: str) -> tuple[Lowered, Layout]:
    """Return the model of a case and the layout of its output; RefusedError if the form does not hold the case."""
    lowering, platform = load_lowering(forms()[form]), trial.target.platform
    variant = _variant(form, platform.platform)
    if (why := lowering.supports(trial.spec, trial.target.scheme, platform, variant)) is not None:
        raise RefusedError(why)
    made = lowering.lower(trial.call, trial.codes, trial.parameters, variant)
    return made, layout(made, trial.output_shape)


def _variant(form: str, platform: str) -> str:
    """Return the variant of a form's own engine that computes *platform*, else its first."""
    homes = [entry.variant_of_platform for entry in engines().values() if entry.form == form and not entry.guest]
    named = [variant for home in homes for name, variant in home.items() if name == platform]
    return next(iter((*named, *(variant for home in homes for variant in home.values()))), "")


def layout(made: Lowered, shape: Sequence[int]) -> Layout:
    """Return the layout of the model's output: transposed by the axes and then reshaped, it is the operator's output.

    Numbered elements go through the same conversion as results of engines. RefusedError if they come out in the order
    of no known layout.
    """
    for file, axes in _layouts(tuple(shape)):
        numbered = np.arange(math.prod(file)).reshape(file)
        found = _converted(made, numbered)
        if found is not None and np.array_equal(found, numbered.transpose(axes).reshape(shape)):
            return file, axes
    raise RefusedError("the output of its model lies in an order that a bundle cannot name")


def _layouts(shape: tuple[int, ...]) -> Iterator[Layout]:
    """Yield the operator's own order, and each order with one axis moved to the end.

    Both occur also with one axis of size 1 more or less.
    """
    one_less = [shape[:axis] + shape[axis + 1 :] for axis, size in enumerate(shape) if size == 1]
    one_more = [(*shape[:axis], 1, *shape[axis:]) for axis in range(len(shape) + 1)]
    for sizes in (shape, *one_less, *one_more):
        yield sizes, tuple(range(len(sizes)))
        for moved in range(len(sizes) - 1):
            rest = [axis for axis in range(len(sizes)) if axis != moved]
            file = (*(sizes[axis] for axis in rest), sizes[moved])
            axes = [*range(len(rest))]
            axes.insert(moved, len(rest))
            yield file, tuple(axes)


def _converted(made: Lowered, numbered: Array) -> Array | None:
    """Return the operator's result from a model's output; None if the conversion needs another shape."""
    try:
        return np.asarray(made.result((numbered,)))
    except (ValueError, IndexError):
        return None


def transposed(values: Array, shape: Sequence[int], axes: Sequence[int], wanted: Sequence[int]) -> Array:
    """Return a model's output in the operator's order and shape."""
    return values.reshape(shape).transpose(axes).reshape(wanted)


def is_layout(shape: Sequence[int], axes: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether a layout suits an output of shape *wanted*: the same axes, apart from those of size 1."""
    return sorted(axes) == [*range(len(shape))] and [n for axis in axes if (n := shape[axis]) != 1] == [
        *itertools.filterfalse(lambda n: n == 1, wanted)
    ]
