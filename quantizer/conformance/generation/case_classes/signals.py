"""Cases of images of one row with more places than channels: signals, for operators of images without windows.

Kernels work along the channels of a signal or along its places, whichever are more. Drawn images have few of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.fixed_sizes import of_fixed
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import batch_of, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.spec import Spec

SIGNALS = ((32, 65, 1), (32, 65, 2), (16, 33, 1))
"""Channels, places, and groups of channels or the like where the operator has them: whole vectors of channels, and more
than twice as many places. An operator's targets share these cases."""


def signals(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of SIGNALS that its operator's targets have."""
    spec = target.spec
    names = _image(spec)
    groups = names and _groups(spec, names[1])
    # without groups, kinds that differ in them alone are one
    kinds = [kind for kind in SIGNALS if groups or kind[-1] == 1] if names and is_ours(spec) else []
    made = [_case(target, names, *kind) for kind in spread(everything, target, kinds, "signals")]
    return [case for case in made if case is not None]


def _image(spec: Spec) -> list[str]:
    """Return the dimensions of an image, from the batch to the columns; none if the operator has windows or others."""
    axes = spec.inputs[next(iter(spec.activations))].axes
    names = [axis.text for axis in axes] if isinstance(axes, list) else []
    return names if list(spec.dims) == names and "stride" not in spec.attrs and len(names) > 3 else []


def _case(target: Target, names: Sequence[str], channels: int, places: int, groups: int) -> Case | None:
    spec, (_, channel, *spatial) = target.spec, names
    fixed: dict[str, Any] = dict.fromkeys(spatial, 1) | {batch_of(spec): 1, channel: channels, spatial[-1]: places}
    fixed |= dict.fromkeys(_groups(spec, channel), groups)
    return of_fixed(target, fixed, key(0, target.id, "signals", str((channels, places, groups))))


def _groups(spec: Spec, channel: str) -> set[str]:
    """Return the attributes of which the number of channels must be a multiple."""
    of = spec.dims[channel].multiple_of
    return set() if of is None else {name for name in of.names if name in spec.attrs}
