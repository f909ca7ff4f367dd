"""The body of the worker that `quantizer engine new --form tosa` writes."""

BODY = '''
import numpy as np
import tosa_reference_model  # your engine's own package


def load(model, options):
    """Return a session for the bytes of a TOSA flatbuffer; raise NotImplementedError for what it cannot run."""
    return model


def run(session, feeds):
    """Return the output; the feeds are in the order of the graph's inputs.

    A second array may hold the status of the run: 1 means that the specification leaves the result open.
    """
    outputs, status = tosa_reference_model.run(session, list(feeds.values()))
    return [*outputs, np.array(status.value)]
'''
