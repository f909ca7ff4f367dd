"""ONNX Runtime as a worker of the form onnx-qdq."""

import onnxruntime

NAME, VERSION, FORM, FLOATS = "ort_qdq", onnxruntime.__version__, "onnx-qdq", True


def load(model, options):
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads, made.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(model, made, providers=["CPUExecutionProvider"])


def run(session, feeds):
    return session.run(None, feeds)
