"""The tensors of a case as plain arrays: in its replay file if they are small, and as an archive with a description."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.trials.elements import ALLOWED
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import QParams

Array = NDArray[Any]
MAX_STORED = 4096
"""The most elements of all operands together that a replay file stores."""
ARRAYS, DESCRIPTION = "case.npz", "case.json"


def stored_tensors(trial: Trial) -> dict[str, dict[str, Any]]:
    """Return the reals of each operand, and the codes if a rule provides them; empty above MAX_STORED elements.

    They are for a reader only: a replay computes them again from the recipe of the case.
    """
    try:
        if sum(values.numel() for values in trial.tensors.values()) > MAX_STORED:
            return {}
        found = {name: _stored(real=values.numpy()) for name, values in trial.tensors.items()}
    except Exception:  # noqa: BLE001 - data that cannot be made is what the verdict is about
        return {}
    try:
        for name, codes in trial.codes.items():
            found[name] |= {} if codes.is_floating_point() else {"code": codes.reshape(-1).tolist()}
        found["y"] = {"shape": list(trial.got.shape), "got": trial.got.reshape(-1).tolist()}
    except Exception:  # noqa: BLE001 - what is under test raises; its operands are still shown
        return found
    return found


def _stored(real: Array) -> dict[str, Any]:
    """Return shape and values; NaN and infinities, which JSON cannot write, are texts."""
    flat = [value if np.isfinite(value) else str(value) for value in real.reshape(-1).tolist()]
    return {"shape": list(real.shape), "real": flat}


def arrays(trial: Trial) -> dict[str, Array]:
    """Return a case's arrays by name: operands as real numbers and codes, the expected codes, the engine's codes.

    `expected.low` and `expected.high` are the smallest and largest code that check *arithmetic* allows; if it judges
    only stages, the file has only the float64 reference on the values of the codes.
    """
    found = {f"{name}.real": np.asarray(values.numpy()) for name, values in trial.tensors.items()}
    for name, codes in trial.codes.items():
        if not codes.is_floating_point():
            found[f"{name}.code"] = codes.numpy()
    found["expected.real"] = trial.y_hat
    # run for its allowed interval, which it leaves in `trial.shared`
    arithmetic(trial)
    for end in ALLOWED:
        if end in trial.shared:
            found[end] = np.broadcast_to(trial.shared[end], trial.got.shape)
    found["got.code"] = trial.got
    return found


def description(trial: Trial, found: dict[str, Array]) -> str:
    """Return a description of the arrays as JSON: the case, the meaning of each name, and the provided parameters."""
    parameters = trial.parameters
    grids = {
        **parameters.inputs,
        **{name: one.params for name, one in parameters.constants.items()},
        **parameters.outputs,
    }
    content: dict[str, Any] = {
        "version": 1,
        "case": trial.case.to_dict(),
        "engine": trial.engine.name,
        "arrays": {
            name: {"meaning": _meaning(name), "shape": list(array.shape), "dtype": str(array.dtype)}
            for name, array in found.items()
        },
        "parameters": {name: _grid(params) for name, params in grids.items()},
        "tables": {
            name: {"first": table.first, "step": table.step, "unit": table.unit, "entries": table.entries.tolist()}
            for name, table in parameters.tables.items()
        },
    }
    if (rescale := parameters.rescale) is not None:
        content["multiplier"] = {
            "variant": rescale.variant,
            "mantissa": rescale.mantissa.tolist(),
            "shift": rescale.shift.tolist(),
            "divisor": rescale.divisor,
            "factors": dict(rescale.factors),
        }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _grid(params: QParams) -> dict[str, Any]:
    return {
        "dtype": str(params.dtype),
        "scale": params.scale.tolist(),
        "zero_point": params.zero_point.tolist(),
        "axis": params.axis,
        "codes": [params.qmin, params.qmax],
        **({} if params.blocks is None else {"blocks": {"axis": params.blocks.axis, "size": params.blocks.size}}),
    }


def _meaning(name: str) -> str:
    """Return the meaning of an array in the archive, by the end of its name."""
    known = {
        "expected.real": "the float64 reference on the values of the operands' codes",
        ALLOWED[0]: "the smallest output code that is right",
        ALLOWED[1]: "the largest output code that is right",
        "got.code": "the output code of the engine under test",
    }
    operand, _, kind = name.rpartition(".")
    return known.get(name) or f"operand {operand}: {'its codes' if kind == 'code' else 'its real values'}"
