"""The fields of Caffe's files that are read, as separately written protobuf descriptors.

Source of names and numbers: Caffe's caffe.proto. A prototxt must not use other fields; from a caffemodel only layer
names and blobs are read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

PACKAGE = "quantizer_caffe"
OLD_TYPES: dict[str, tuple[int, str]] = {
    "NONE": (0, ""),
    "ABSVAL": (35, "AbsVal"),
    "ACCURACY": (1, "Accuracy"),
    "ARGMAX": (30, "ArgMax"),
    "BNLL": (2, "BNLL"),
    "CONCAT": (3, "Concat"),
    "CONTRASTIVE_LOSS": (37, "ContrastiveLoss"),
    "CONVOLUTION": (4, "Convolution"),
    "DATA": (5, "Data"),
    "DECONVOLUTION": (39, "Deconvolution"),
    "DROPOUT": (6, "Dropout"),
    "DUMMY_DATA": (32, "DummyData"),
    "EUCLIDEAN_LOSS": (7, "EuclideanLoss"),
    "ELTWISE": (25, "Eltwise"),
    "EXP": (38, "Exp"),
    "FLATTEN": (8, "Flatten"),
    "HDF5_DATA": (9, "HDF5Data"),
    "HDF5_OUTPUT": (10, "HDF5Output"),
    "HINGE_LOSS": (28, "HingeLoss"),
    "IM2COL": (11, "Im2col"),
    "IMAGE_DATA": (12, "ImageData"),
    "INFOGAIN_LOSS": (13, "InfogainLoss"),
    "INNER_PRODUCT": (14, "InnerProduct"),
    "LRN": (15, "LRN"),
    "MEMORY_DATA": (29, "MemoryData"),
    "MULTINOMIAL_LOGISTIC_LOSS": (16, "MultinomialLogisticLoss"),
    "MVN": (34, "MVN"),
    "POOLING": (17, "Pooling"),
    "POWER": (26, "Power"),
    "RELU": (18, "ReLU"),
    "SIGMOID": (19, "Sigmoid"),
    "SIGMOID_CROSS_ENTROPY_LOSS": (27, "SigmoidCrossEntropyLoss"),
    "SILENCE": (36, "Silence"),
    "SOFTMAX": (20, "Softmax"),
    "SOFTMAX_LOSS": (21, "SoftmaxWithLoss"),
    "SPLIT": (22, "Split"),
    "SLICE": (33, "Slice"),
    "TANH": (23, "TanH"),
    "WINDOW_DATA": (24, "WindowData"),
    "THRESHOLD": (31, "Threshold"),
}
"""Type of a layer in Caffe's format V1 -> its number there, and the type's later name.

Source: V1LayerParameter in caffe.proto, and upgrade_proto.cpp.
"""
FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "BlobShape": {"dim": (1, "int64*")},
    "BlobProto": {
        "num": (1, "int32"),
        "channels": (2, "int32"),
        "height": (3, "int32"),
        "width": (4, "int32"),
        "data": (5, "float*"),
        "shape": (7, "BlobShape"),
        "double_data": (8, "double*"),
    },
    "FillerParameter": {
        "type": (1, "string"),
        "value": (2, "float"),
        "min": (3, "float"),
        "max": (4, "float"),
        "mean": (5, "float"),
        "std": (6, "float"),
        "sparse": (7, "int32"),
        "variance_norm": (8, "=FAN_IN,FAN_OUT,AVERAGE"),
    },
    "ParamSpec": {
        "name": (1, "string"),
        "share_mode": (2, "=STRICT,PERMISSIVE"),
        "lr_mult": (3, "float"),
        "decay_mult": (4, "float"),
    },
    "NetStateRule": {
        "phase": (1, "=TRAIN,TEST"),
        "min_level": (2, "int32"),
        "max_level": (3, "int32"),
        "stage": (4, "string*"),
        "not_stage": (5, "string*"),
    },
    "ConvolutionParameter": {
        "num_output": (1, "uint32"),
        "bias_term": (2, "bool"),
        "pad": (3, "uint32*"),
        "kernel_size": (4, "uint32*"),
        "group": (5, "uint32"),
        "stride": (6, "uint32*"),
        "weight_filler": (7, "FillerParameter"),
        "bias_filler": (8, "FillerParameter"),
        "pad_h": (9, "uint32"),
        "pad_w": (10, "uint32"),
        "kernel_h": (11, "uint32"),
        "kernel_w": (12, "uint32"),
        "stride_h": (13, "uint32"),
        "stride_w": (14, "uint32"),
        "engine": (15, "=DEFAULT,CAFFE,CUDNN"),
        "axis": (16, "int32"),
        "force_nd_im2col": (17, "bool"),
        "dilation": (18, "uint32*"),
    },
    "InnerProductParameter": {
        "num_output": (1, "uint32"),
        "bias_term": (2, "bool"),
        "weight_filler": (3, "FillerParameter"),
        "bias_filler": (4, "FillerParameter"),
        "axis": (5, "int32"),
        "transpose": (6, "bool"),
    },
    "PoolingParameter": {
        "pool": (1, "=MAX,AVE,STOCHASTIC"),
        "kernel_size": (2, "uint32"),
        "stride": (3, "uint32"),
        "pad": (4, "uint32"),
        "kernel_h": (5, "uint32"),
        "kernel_w": (6, "uint32"),
        "stride_h": (7, "uint32"),
        "stride_w": (8, "uint32"),
        "pad_h": (9, "uint32"),
        "pad_w": (10, "uint32"),
        "engine": (11, "=DEFAULT,CAFFE,CUDNN"),
        "global_pooling": (12, "bool"),
        "round_mode": (13, "=CEIL,FLOOR"),
    },
    "ReLUParameter": {"negative_slope": (1, "float"), "engine": (2, "=DEFAULT,CAFFE,CUDNN")},
    "BatchNormParameter": {
        "use_global_stats": (1, "bool"),
        "moving_average_fraction": (2, "float"),
        "eps": (3, "float"),
    },
    "ScaleParameter": {
        "axis": (1, "int32"),
        "num_axes": (2, "int32"),
        "filler": (3, "FillerParameter"),
        "bias_term": (4, "bool"),
        "bias_filler": (5, "FillerParameter"),
    },
    "EltwiseParameter": {"operation": (1, "=PROD,SUM,MAX"), "coeff": (2, "float*"), "stable_prod_grad": (3, "bool")},
    "ConcatParameter": {"concat_dim": (1, "uint32"), "axis": (2, "int32")},
    "SoftmaxParameter": {"engine": (1, "=DEFAULT,CAFFE,CUDNN"), "axis": (2, "int32")},
    "DropoutParameter": {"dropout_ratio": (1, "float")},
    "ArgMaxParameter": {"out_max_val": (1, "bool"), "top_k": (2, "uint32"), "axis": (3, "int32")},
    "BiasParameter": {"axis": (1, "int32"), "num_axes": (2, "int32"), "filler": (3, "FillerParameter")},
    "CropParameter": {"axis": (1, "int32"), "offset": (2, "uint32*")},
    "ELUParameter": {"alpha": (1, "float")},
    "EmbedParameter": {
        "num_output": (1, "uint32"),
        "input_dim": (2, "uint32"),
        "bias_term": (3, "bool"),
        "weight_filler": (4, "FillerParameter"),
        "bias_filler": (5, "FillerParameter"),
    },
    "ExpParameter": {"base": (1, "float"), "scale": (2, "float"), "shift": (3, "float")},
    "FlattenParameter": {"axis": (1, "int32"), "end_axis": (2, "int32")},
    "LogParameter": {"base": (1, "float"), "scale": (2, "float"), "shift": (3, "float")},
    "LRNParameter": {
        "local_size": (1, "uint32"),
        "alpha": (2, "float"),
        "beta": (3, "float"),
        "norm_region": (4, "=ACROSS_CHANNELS,WITHIN_CHANNEL"),
        "k": (5, "float"),
        "engine": (6, "=DEFAULT,CAFFE,CUDNN"),
    },
    "MVNParameter": {"normalize_variance": (1, "bool"), "across_channels": (2, "bool"), "eps": (3, "float")},
    "NormalizeParameter": {
        "across_spatial": (1, "bool"),
        "scale_filler": (2, "FillerParameter"),
        "channel_shared": (3, "bool"),
        "eps": (4, "float"),
    },
    "PermuteParameter": {"order": (1, "uint32*")},
    "PowerParameter": {"power": (1, "float"), "scale": (2, "float"), "shift": (3, "float")},
    "PReLUParameter": {"filler": (1, "FillerParameter"), "channel_shared": (2, "bool")},
    "ReductionParameter": {"operation": (1, "=NONE,SUM,ASUM,SUMSQ,MEAN"), "axis": (2, "int32"), "coeff": (3, "float")},
    "ReshapeParameter": {"shape": (1, "BlobShape"), "axis": (2, "int32"), "num_axes": (3, "int32")},
    "SigmoidParameter": {"engine": (1, "=DEFAULT,CAFFE,CUDNN")},
    "SliceParameter": {"slice_dim": (1, "uint32"), "slice_point": (2, "uint32*"), "axis": (3, "int32")},
    "TanHParameter": {"engine": (1, "=DEFAULT,CAFFE,CUDNN")},
    "ThresholdParameter": {"threshold": (1, "float")},
    "TileParameter": {"axis": (1, "int32"), "tiles": (2, "int32")},
    "InputParameter": {"shape": (1, "BlobShape*")},
    "LayerParameter": {
        "name": (1, "string"),
        "type": (2, "string"),
        "bottom": (3, "string*"),
        "top": (4, "string*"),
        "loss_weight": (5, "float*"),
        "param": (6, "ParamSpec*"),
        "blobs": (7, "BlobProto*"),
        "include": (8, "NetStateRule*"),
        "exclude": (9, "NetStateRule*"),
        "phase": (10, "=TRAIN,TEST"),
        "propagate_down": (11, "bool*"),
        "argmax_param": (103, "ArgMaxParameter"),
        "bias_param": (141, "BiasParameter"),
        "crop_param": (144, "CropParameter"),
        "elu_param": (140, "ELUParameter"),
        "embed_param": (137, "EmbedParameter"),
        "exp_param": (111, "ExpParameter"),
        "flatten_param": (135, "FlattenParameter"),
        "log_param": (134, "LogParameter"),
        "lrn_param": (118, "LRNParameter"),
        "mvn_param": (120, "MVNParameter"),
        "norm_param": (206, "NormalizeParameter"),
        "permute_param": (202, "PermuteParameter"),
        "power_param": (122, "PowerParameter"),
        "prelu_param": (131, "PReLUParameter"),
        "reduction_param": (136, "ReductionParameter"),
        "reshape_param": (133, "ReshapeParameter"),
        "sigmoid_param": (124, "SigmoidParameter"),
        "slice_param": (126, "SliceParameter"),
        "tanh_param": (127, "TanHParameter"),
        "threshold_param": (128, "ThresholdParameter"),
        "tile_param": (138, "TileParameter"),
        "concat_param": (104, "ConcatParameter"),
        "convolution_param": (106, "ConvolutionParameter"),
        "dropout_param": (108, "DropoutParameter"),
        "eltwise_param": (110, "EltwiseParameter"),
        "inner_product_param": (117, "InnerProductParameter"),
        "pooling_param": (121, "PoolingParameter"),
        "relu_param": (123, "ReLUParameter"),
        "softmax_param": (125, "SoftmaxParameter"),
        "batch_norm_param": (139, "BatchNormParameter"),
        "scale_param": (142, "ScaleParameter"),
        "input_param": (143, "InputParameter"),
    },
    "OldestLayerParameter": {"name": (1, "string"), "type": (2, "string")},
    "OldLayerParameter": {
        "layer": (1, "OldestLayerParameter"),
        "bottom": (2, "string*"),
        "top": (3, "string*"),
        "name": (4, "string"),
        "type": (5, "=" + ",".join(f"{label}:{number}" for label, (number, _) in OLD_TYPES.items())),
        "blobs": (6, "BlobProto*"),
        "blobs_lr": (7, "float*"),
        "weight_decay": (8, "float*"),
        "include": (32, "NetStateRule*"),
        "exclude": (33, "NetStateRule*"),
        "loss_weight": (35, "float*"),
        "param": (1001, "string*"),
        "blob_share_mode": (1002, "=STRICT,PERMISSIVE*"),
        "argmax_param": (23, "ArgMaxParameter"),
        "concat_param": (9, "ConcatParameter"),
        "convolution_param": (10, "ConvolutionParameter"),
        "dropout_param": (12, "DropoutParameter"),
        "eltwise_param": (24, "EltwiseParameter"),
        "exp_param": (41, "ExpParameter"),
        "inner_product_param": (17, "InnerProductParameter"),
        "lrn_param": (18, "LRNParameter"),
        "mvn_param": (34, "MVNParameter"),
        "pooling_param": (19, "PoolingParameter"),
        "power_param": (21, "PowerParameter"),
        "relu_param": (30, "ReLUParameter"),
        "sigmoid_param": (38, "SigmoidParameter"),
        "slice_param": (31, "SliceParameter"),
        "softmax_param": (39, "SoftmaxParameter"),
        "tanh_param": (37, "TanHParameter"),
        "threshold_param": (25, "ThresholdParameter"),
    },
    "NetParameter": {
        "name": (1, "string"),
        "layers": (2, "OldLayerParameter*"),
        "input": (3, "string*"),
        "input_dim": (4, "int32*"),
        "force_backward": (5, "bool"),
        "debug_info": (7, "bool"),
        "input_shape": (8, "BlobShape*"),
        "layer": (100, "LayerParameter*"),
    },
}
"""Message -> field -> (number, type): `*` is repeated, `=A,B` an enumeration from 0 on, `=A:5,B:2` one of these."""
_Field = descriptor_pb2.FieldDescriptorProto
# as caffe.proto declares blobs; a parser accepts both forms
_PACKED = ("float", "double", "int64")


@cache
def net_parameter() -> Any:
    """Return the class of Caffe's NetParameter."""
    file = descriptor_pb2.FileDescriptorProto(name="quantizer_caffe.proto", package=PACKAGE, syntax="proto2")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind)
    # a pool of its own: another package in this process may have Caffe's messages in the default one
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.NetParameter"))


def _add(message: Any, name: str, number: int, kind: str) -> None:
    repeated, plain = kind.endswith("*"), kind.rstrip("*")
    field = message.field.add(
        name=name, number=number, label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    )
    if plain.startswith("="):
        enum = message.enum_type.add(name=f"{name}_values")
        for place, item in enumerate(plain[1:].split(",")):
            label, _, value = item.partition(":")
            enum.value.add(name=label, number=int(value or place))
        field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.{message.name}.{name}_values"
    elif plain in FIELDS:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{plain}"
    else:
        field.type = getattr(_Field, f"TYPE_{plain.upper()}")
        if repeated and plain in _PACKED and message.name in ("BlobProto", "BlobShape"):
            field.options.packed = True
