"""TpuLang, as tpu-mlir lowers it."""
