"""TOSA: joins the graphs of several operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quantizer.core.errors import RefusedError
from quantizer.platforms.tosa.graph import Applied, Fed, Held, Record, TosaGraph, Value, Written
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.lowering import Wires


def join(jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> Job:
    """Return the graph of *jobs* with the results of *outputs*, in that order.

    A fed tensor of a job that *wires* names is the result of an earlier job. RefusedError if their formats differ.
    """
    whole = TosaGraph()
    results: list[Value] = []
    for number, job in enumerate(jobs):
        assert isinstance(job, Written), "a lowering of this room wrote it"
        places = {name: results[wires[number, name]] for name in job.feeds if (number, name) in wires}
        for record in job.records:
            # records are in the order in which they were made, so that operands come before their readers
            places[record.value.name] = added(whole, job, record, places)
        results.append(places[job.output])
    return whole.job([results[number] for number in outputs])


def added(whole: TosaGraph, job: Job, record: Record, places: Mapping[str, Value]) -> Value:
    """Add a tensor of one job to the whole graph, and return it there; *places* has the tensors that it may read."""
    name, shape, kind = record.value.name, record.value.shape, record.value.kind
    match record:
        case Fed() if name in places:
            if places[name].kind != kind:
                raise RefusedError(f"{name!r} has codes of {kind.name}, its maker writes {places[name].kind.name}")
            # the maker may hold the same elements in another shape, such as one without leading axes of one element
            return whole.reshape(places[name], shape)
        case Fed():
            return whole.feed(job.feeds[name], kind)
        case Held():
            return whole.const(record.numbers, kind)
        case Applied():
            inputs = [places[source] for source in record.inputs]
            return whole.op(record.op, inputs, shape, kind, *record.attributes)
