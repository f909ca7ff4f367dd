"""The body of the worker that `quantizer engine new --form tflite` writes."""

BODY = '''
from ai_edge_litert.interpreter import Interpreter, OpResolverType  # your engine's own package

KERNELS = OpResolverType.BUILTIN_REF  # LiteRT's optimized `add` is wrong for very fine outputs (docs/gallery.md)


def load(model, options):
    """Return an interpreter for the bytes of a TFLite file; raise NotImplementedError for what it cannot run."""
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=KERNELS)
    interpreter.allocate_tensors()
    return interpreter


def run(session, feeds):
    """Return every output of the graph; feeds are arrays by the names of its inputs."""
    for detail in session.get_input_details():
        session.set_tensor(detail["index"], feeds[detail["name"]])
    session.invoke()
    return [session.get_tensor(detail["index"]) for detail in session.get_output_details()]
'''
