"""Declaration of the room of LiteRT."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Engine, Oracle, Room

_ORACLE = "quantizer.platforms.litert.oracle"
_LOGISTIC = (f"{_ORACLE}:logistic", f"{_ORACLE}:logistic_table", f"{_ORACLE}:logistic_numbers")
ROOM = Room(
    Path(__file__).parent,
    platforms=("tflite_builtin", "tflite_ref", "xnnpack"),
    functions=("quantizer.platforms.litert.rules", "quantizer.platforms.litert.kernels"),
    oracles=(
        Oracle("softmax", f"{_ORACLE}:softmax", f"{_ORACLE}:softmax_entries", f"{_ORACLE}:softmax_numbers"),
        Oracle("logistic", *_LOGISTIC),
        Oracle("hyperbolic_tangent", *_LOGISTIC),
        Oracle(
            "addition", "quantizer.platforms.litert.restated_sums:addition", platforms=("tflite_builtin", "xnnpack")
        ),
        *(
            Oracle(family, "quantizer.platforms.litert.restated_means:means")
            for family in ("average_pooling", "global_average", "mean", "sum")
        ),
        Oracle("leaky_rectifier", f"{_ORACLE}:leaky", numbers=f"{_ORACLE}:leaky_numbers"),
    ),
    engines=(
        Engine(
            "litert",
            "tflite",
            "quantizer.platforms.litert.worker",
            ("ai-edge-litert",),
            {"tflite_ref": "reference", "tflite_builtin": "builtin", "xnnpack": "xnnpack"},
            threads=True,
            script="quantizer.platforms.litert.script:script",
        ),
    ),
    forms={"tflite": "quantizer.platforms.litert.engine"},
    skeletons={"tflite": "quantizer.platforms.litert.skeleton:BODY"},
)
