"""From a case to a job of the chip's simulator, which runs in a process of its own."""

import json
from collections.abc import Mapping

from torch import Tensor

from quantizer.core import Platform, RefusedError, Scheme, Spec
from quantizer.numerics import Parameters
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call

CHECKS = ("parameters", "arithmetic", "accuracy", "repeat", "golden", "engine")


def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return why the simulator does not run an operator, or None."""
    return None if spec.op == "relu" else f"the simulator has no {spec.op}"


def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
    """Return the job: the numbers of the layer as JSON, the codes as an array."""
    if call.activation != "none":
        raise RefusedError("the simulator fuses nothing")
    numbers, into, out = parameters.numbers, parameters.inputs["x"], parameters.outputs["y"]
    layer = {
        "multiplier": numbers["multiplier"],
        "shift": numbers["shift"],
        "zero_in": int(into.zero_point),
        "zero_out": int(out.zero_point),
        "lowest": int(out.qmin),
        "highest": int(out.qmax),
    }
    return Lowered(Job(json.dumps(layer).encode(), {"x": codes["x"].numpy()}))
