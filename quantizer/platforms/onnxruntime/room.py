"""Declaration of the room of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Engine, Oracle, Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("ort",),
    functions=("quantizer.platforms.onnxruntime.rules", "quantizer.platforms.onnxruntime.kernels"),
    oracles=(Oracle("softmax", codes="quantizer.platforms.onnxruntime.oracle:softmax"),),
    engines=(
        Engine(
            "onnxruntime",
            "onnx-qlinear",
            "quantizer.platforms.onnxruntime.worker",
            ("onnxruntime", "onnx"),
            {"ort": "cpu"},
            models="quantizer.platforms.onnxruntime.models",
            title="ONNX Runtime",
            threads=True,
            script="quantizer.platforms.onnxruntime.script:script",
        ),
    ),
    forms={"onnx-qlinear": "quantizer.platforms.onnxruntime.engine"},
    skeletons={"onnx-qlinear": "quantizer.platforms.onnxruntime.skeleton:BODY"},
    graphs="ort",
)
