"""Declaration of the room of the Compass Optimizer."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Flow, Oracle, Room

_ORACLE = "quantizer.platforms.compass.oracle"
ROOM = Room(
    Path(__file__).parent,
    platforms=("compass",),
    functions=("quantizer.platforms.compass.rules", "quantizer.platforms.compass.kernels"),
    oracles=(Oracle("softmax", f"{_ORACLE}:softmax", numbers=f"{_ORACLE}:softmax_numbers"),),
    forms={"compass-ir": "quantizer.platforms.compass.model"},
    skeletons={"compass-ir": "quantizer.platforms.compass.skeleton:BODY"},
    flow=Flow("quantizer.platforms.compass.exporting:written_case", "quantizer.platforms.compass.flow:codes"),
    exports={"Compass IR": "quantizer.platforms.compass.exporting:files"},
    faults="quantizer.platforms.compass.file_faults:FAULTS",
    policies="quantizer.platforms.compass.policies:POLICIES",
)
