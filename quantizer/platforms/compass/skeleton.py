"""The body of the worker that `quantizer engine new --form compass-ir` writes."""

BODY = '''
import io
import zipfile

import my_simulator  # your engine's own package


def load(model, options):
    """Return a session for the zip of a quantized Compass IR; raise NotImplementedError for what it cannot run."""
    files = zipfile.ZipFile(io.BytesIO(model))
    return my_simulator.Session(files.read("graph.txt").decode(), files.read("graph.bin"))


def run(session, feeds):
    """Return the output of the layer; feeds are the codes of its inputs by name, images channels last."""
    return [session.run(feeds)]
'''
