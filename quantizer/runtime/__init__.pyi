from .analysis import OperationError, error_table, graphwise_error_analyse, layerwise_error_analyse
from .dispatch import find_handler, operation_handlers, register_operation_handler
from .graph_statistics import parameter_analyse, parameters_table, statistical_analyse, statistics_table
from .hooks import QuantOPRuntimeHook, RuntimeHook
from .integer import integer_graph
from .integer_executor import IntegerExecutor
from .lsq import LearnedStep
from .onnx_model import load_caffe_graph, load_onnx_graph
from .qdq import export_qdq
from .quantization import dispatch_graph, quantize_graph
from .sample_data import read_batches, synthetic_batches
from .setting import Setting
from .tensor_config import (
    OperationQuantizationConfig,
    QuantizationProperty,
    QuantizationStates,
    TensorQuantizationConfig,
)
from .torch_executor import TorchExecutor

__all__ = [
    "IntegerExecutor",
    "LearnedStep",
    "OperationError",
    "OperationQuantizationConfig",
    "QuantOPRuntimeHook",
    "QuantizationProperty",
    "QuantizationStates",
    "RuntimeHook",
    "Setting",
    "TensorQuantizationConfig",
    "TorchExecutor",
    "dispatch_graph",
    "error_table",
    "export_qdq",
    "find_handler",
    "graphwise_error_analyse",
    "integer_graph",
    "layerwise_error_analyse",
    "load_caffe_graph",
    "load_onnx_graph",
    "operation_handlers",
    "parameter_analyse",
    "parameters_table",
    "quantize_graph",
    "read_batches",
    "register_operation_handler",
    "statistical_analyse",
    "statistics_table",
    "synthetic_batches",
]
