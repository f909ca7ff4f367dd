"""The layer types of Compass IR, as attributes of an object to which plugins may add."""

from __future__ import annotations

from quantizer.core.errors import PluginError
from quantizer.core.wording import suggestion

_KNOWN = """
Abs AccidentalHits Acos Acosh Activation AdaptivePool Add AffineGrid ArgMinMax Asin Asinh Atan Atanh BNLL BasicLSTM
BatchNorm BatchToDepth BatchToSpace BatchToSpaceND BiasAdd BitShift Bitwise BoundingBox CELU CRELU CTCGreedyDecoder
CacheUpdate Cast Ceil ChannelShuffle Clip Col2Im CollapseRepeated Compress Concat Constant ConstantOfShape ConvInteger
ConvTranspose ConvTranspose3D Convolution Convolution3D Cosh Cosine Count Crop CropAndResize Cumulate DataStride
DeQuantize DecodeBox DepthToSpace DepthwiseConv DetectionOutput Dilation Div DivMod Dummy ELU Eltwise
EmbeddingLookupSparse Erf Erosion Exp FakeQuantWithMinMaxVars Filter FilterBoxes Floor FractionalPool FullyConnected
GELU GRUv1 GRUv3 Gather GatherElements GatherND Gemm GenerateProposals GetValidCount GlobalPool GridSample GroupNorm
HardSigmoid Hardmax Hardswish HeatmapMaxKeypoint If InTopK Input InstanceNorm Interp IsInf IsNaN LRN LayerNorm
LeakyRELU Log LogSoftmax Logical Loop MISH MVN MatMul MatMulInteger MaxPoolingWithArgMax MaxRoiPool MaxUnpool Meshgrid
Mod Moments Mul MultiboxTransformLoc NMS Negative NoOp NonZero Normalization NormalizedMoments OneHot OverlapAdd PRELU
Pad Permute Pooling Pooling3D PostNMS1 PostNMS2 Pow Proposal PyramidROIAlign Quantize QueryRebatch RELU RELU6 RMSNorm
RNN ROIPooling Reciprocal Reduce Region RegionFuse Repeat Reshape Resize ReverseSequence RgbToYuv RoiAlign
RotaryEmbedding Round Rsqrt SDPAttention SELU SHRINK ScatterElements ScatterND SegmentReduce Shape Sigmoid Sign Silu
Sine Sinh Slice SlotUpdate Softmax Softplus Softsign Sort SpaceToBatch SpaceToDepth Split Sqrt Square
SquaredDifference Squeeze StridedSlice Sub SufficientStatistics Swish Switch THRESHOLDEDRELU Tan Tanh Tile TopK
Transpose Trunc Unique UpsampleByIndex Where YuvToRgb ZeroFraction
"""


class OpTypeValue(str):
    """One layer type; its text is `OpType.Name`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The layer type as IR spells it."""
        return self.removeprefix("OpType.")


class UnknownOpTypeError(PluginError, AttributeError):
    """A layer type that neither Compass nor a plugin has."""


class OpTypes:
    """Layer types by attribute: `OpType.Convolution`."""

    def __init__(self, names: str) -> None:
        self.__dict__.update({name: OpTypeValue(f"OpType.{name}") for name in names.split()})

    def __getattr__(self, name: str) -> OpTypeValue:
        # copy and inspect ask for such names and expect a plain AttributeError
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnknownOpTypeError(
            f"OpType.{name}: no such layer type.{suggestion(name, list(self.__dict__), 'Known')}"
            f" For a new one call register_optype({name!r}) first."
        )

    def __contains__(self, name: object) -> bool:
        return str(name).removeprefix("OpType.") in self.__dict__


OpType = OpTypes(_KNOWN)


def register_optype(name: str) -> OpTypeValue:
    """Add layer type *name* and return it; an existing one stays unchanged."""
    if not name.isidentifier():
        raise PluginError(f"register_optype({name!r}): must be a name of letters, digits and _, such as 'DummyPlus'.")
    found: OpTypeValue = OpType.__dict__.setdefault(name, OpTypeValue(f"OpType.{name}"))
    return found


def forget_optypes(names: frozenset[str]) -> None:
    """Keep only the layer types in *names*. Types from a plugin that failed to load are removed."""
    for name in OpType.__dict__.keys() - names:
        del OpType.__dict__[name]


def known_optypes() -> frozenset[str]:
    """Return the names of all layer types."""
    return frozenset(OpType.__dict__)
