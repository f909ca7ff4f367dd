"""LiteRT: joins the models of several operators, so that a delegate sees neighbouring operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quantizer.core.errors import RefusedError
from quantizer.platforms.litert.model import ABSENT, Op, TensorDef, model
from quantizer.platforms.litert.part import Graph, Written
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.lowering import Wires


def join(jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> Job:
    """Return the model of *jobs* with the results of *outputs*, in that order.

    A fed tensor of a job that *wires* names is the result of an earlier job. RefusedError if their format, sizes or
    parameters differ.
    """
    whole, results = Graph(), [ABSENT] * len(jobs)
    for number, job in enumerate(jobs):
        assert isinstance(job, Written), "a lowering of this room wrote it"
        places = {
            place: _placed(whole, number, tensor, results[wires[number, tensor.name]])
            # a constant may have the name of a wired operand; only fed tensors are wired
            if (number, tensor.name) in wires and tensor.name in job.feeds
            else _added(whole, number, job, tensor)
            for place, tensor in enumerate(job.graph.tensors)
        }
        whole.ops += [_moved(op, places) for op in job.graph.ops]
        results[number] = places[job.output]
    made = model(whole.ops, whole.tensors, [results[number] for number in outputs])
    return Job(made, whole.feeds, jobs[0].options)


def _placed(whole: Graph, number: int, tensor: TensorDef, place: int) -> int:
    """Return the index of the result that feeds *tensor*."""
    # everything but the name must agree: format, shape, scale and zero point
    given = replace(whole.tensors[place], name=tensor.name)
    if given != tensor:
        raise RefusedError(f"operator {number} reads {tensor.name!r} in another form than its maker writes")
    return place


def _added(whole: Graph, number: int, job: Written, tensor: TensorDef) -> int:
    """Return the index of a tensor of one job in the joined model, under a new name."""
    name = f"{number}/{tensor.name}"
    if tensor.name in job.feeds:
        whole.feeds[name] = job.feeds[tensor.name]
    return whole.add(replace(tensor, name=name))


def _moved(op: Op, places: Mapping[int, int]) -> Op:
    # ABSENT has no place and stays what it is
    inputs, outputs = (tuple(places.get(place, place) for place in found) for found in (op.inputs, op.outputs))
    return replace(op, inputs=inputs, outputs=outputs)
