"""torch: joins the calls of several operators into one program; a relu becomes part of the function before it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantizer.core.errors import RefusedError
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Wires

RELU = "relu"
SUFFIX = "_relu"
"""The suffix of the names of functions with a relu."""
HIGHEST = 255
"""The highest code."""
FUSED = ("convolution", "fully_connected", "add", "mul")
"""Kinds of jobs whose function has a variant with a relu."""
UNDER_ONEDNN = ("convolution", "add")
"""torch has conv2d_add and conv2d_add_relu for these two, but not under the engines of this room."""


@dataclass(frozen=True)
class Part:
    """One operator's call, the bytes of its constants, and the earlier parts that compute its operands."""

    made: Mapping[str, Any]
    constants: bytes
    feeds: Mapping[str, Array]
    wires: Mapping[str, int]


def join(jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> Job:
    """Return the program of *jobs* with the results of *outputs*; RefusedError if torch fuses none of them."""
    parts = [_part(number, job, wires) for number, job in enumerate(jobs)]
    relus = fused_relus(parts, outputs)
    if not relus:
        raise RefusedError(_unfused(parts))
    # with the zero point at 255 a relu leaves one code, which QNNPACK refuses
    if jobs[0].options["engine"] == "qnnpack" and any(parts[relu].made["output"][1] == HIGHEST for relu in relus):
        raise RefusedError("QNNPACK takes no empty range of output codes")
    steps = [_step(number, part, relus) for number, part in enumerate(parts)]
    text = json.dumps({"steps": steps, "outputs": list(outputs)}).encode()
    feeds = {f"{n}/{name}": values for n, part in enumerate(parts) for name, values in part.feeds.items()}
    return Job(text + b"\n" + b"".join(part.constants for part in parts), feeds, jobs[0].options)


def fused_relus(parts: Sequence[Part], outputs: Sequence[int]) -> dict[int, int]:
    """Return the relus that are part of the previous function: relu -> that function, which has no other reader."""
    readers = Counter(source for part in parts for source in part.wires.values())
    found = {}
    for number, part in enumerate(parts):
        source = part.wires.get("x") if part.made["kind"] == RELU else None
        # the sum before the relu is needed elsewhere, and a fused function does not return it
        if source is None or source in outputs or readers[source] > 1:
            continue
        before = parts[source].made
        if before["kind"] in FUSED and not before["suffix"] and before["output"] == part.made["output"]:
            found[number] = source
    return found


def _part(number: int, job: Job, wires: Wires) -> Part:
    # a model is one line of JSON, then the bytes of its constants
    text, _, constants = job.model.partition(b"\n")
    wired = {name: wires[number, name] for name in job.feeds if (number, name) in wires}
    return Part(
        json.loads(text), constants, {name: values for name, values in job.feeds.items() if name not in wired}, wired
    )


def _step(number: int, part: Part, relus: Mapping[int, int]) -> dict[str, Any]:
    """Return the description of a part; a relu inside an earlier function stands for that function's result."""
    suffix = SUFFIX if number in relus.values() else part.made["suffix"]
    known = {"wires": part.wires, "bytes": len(part.constants), "is_fused": number in relus}
    return {**part.made, "suffix": suffix, **known}


def _unfused(parts: Sequence[Part]) -> str:
    """Return why no function of the program is fused."""
    kinds = [str(part.made["kind"]) for part in parts]
    pairs = [(kinds[source], part.made["kind"]) for part in parts for source in part.wires.values()]
    if found := next((kind for kind, reader in pairs if kind in FUSED and reader == RELU), None):
        return f"torch fuses no relu with {found}: the sum before the relu is needed too, or has other numbers"
    if UNDER_ONEDNN in pairs:
        return "torch fuses a convolution and a sum under its engine onednn only"
    return f"torch has no fused function for {', '.join(kinds)}"
