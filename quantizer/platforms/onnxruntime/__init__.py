"""ONNX Runtime, with its CPU kernels."""
