"""The body of the worker that `quantizer engine new --form onnx-qlinear` writes."""

BODY = '''
import onnxruntime  # your engine's own package


def load(model, options):
    """Return a session for the bytes of an ONNX file; raise NotImplementedError for what it cannot run."""
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def run(session, feeds):
    """Return every output of the graph; feeds are arrays by the names of its inputs."""
    return session.run(None, feeds)
'''
