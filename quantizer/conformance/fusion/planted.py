"""Bugs that need two nodes, planted on purpose: each is a wrong rewrite of one of the graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quantizer.conformance.fusion import conditions
from quantizer.conformance.fusion import wrong_rewrites as wrong
from quantizer.conformance.fusion.rewrites import Rewrite

WIDE = 2.0**20
"""A number larger than any value of a case: a clip at it changes nothing."""


@dataclass(frozen=True)
class Plant:
    """A wrong rewrite, and the graph in which it is planted."""

    name: str
    graph: str
    rewrite: Rewrite


PLANTS = (
    Plant("the relu clamps at the code 0", "conv_relu_add", wrong.clipped("relu", wrong.code_zero("relu"), WIDE)),
    Plant("a relu is computed as a relu6", "linear_relu_add", wrong.clipped("relu", lambda _: 0.0, 6.0)),
    Plant("the scale of a product is folded into the wrong tensor", "mul_add", wrong.scale_of("mul", "x")),
    Plant("the bias has the scale of the other operand", "conv_relu_add", wrong.bias_by("conv", "z")),
    Plant("the bias has the scale of the result", "linear_relu_add", wrong.bias_by("linear", "relu")),
    Plant("zeros around an image are the code 0", "pad_conv", wrong.padded_with_code_zero),
    Plant("the relu comes before the sum", "add_relu", wrong.relu_before_sum),
    Plant("the second reader sees the clamped sum", "conv_relu_shared", wrong.reads("sum", 1, "relu")),
    Plant("operands of a concatenation have one scale", "concat_scales", wrong.scale_of("z", "conv")),
    Plant("an average keeps its operand's scale", "pool_requantize", wrong.scale_of("pool", "z")),
    Plant("softmax is read by the scale of its operand", "softmax_scales", wrong.scale_of("weights", "scaled")),
    Plant("a transposition is computed as a reshape", "moves_through", wrong.reads("view", 0, "act")),
    Plant("a fusion forgets the zero point between two nodes", "mul_add", wrong.zero_of("mul", None)),
    Plant("operands of a concatenation have one zero point", "concat_scales", wrong.zero_of("z", "conv")),
    Plant(
        "a second reader has a dequantization of other numbers",
        "conv_relu_shared",
        wrong.own_scale("sum", "conv", "relu"),
    ),
    Plant("a fused relu drops the bias before it", "conv_relu_add", wrong.without_bias("conv")),
    Plant("the padding of both ends is in front", "pad_conv", wrong.padded_in_front),
    Plant("the axis of scales per channel does not follow a transposition", "concat_scales", wrong.axis_moved),
    Plant("a product and a sum are rounded once", "mul_add", wrong.unrounded("mul", "sum")),
    Plant(
        "the factor before softmax is in its operand, too",
        "softmax_scales",
        wrong.with_numbers("scale#scale", lambda s: s * 0.5),
    ),
    Plant(
        "a sum has the scales of its operands exchanged",
        "conv_relu_add",
        wrong.both(wrong.scale_of("relu", "z"), wrong.scale_of("z", "relu")),
    ),
    Plant(
        "a product and its factors before softmax are rounded once",
        "softmax_scales",
        wrong.unrounded("product", "scaled"),
    ),
    Plant(
        "softmax is read by 1/256 though its codes have another scale",
        "softmax_scales",
        wrong.read_by("weights", 2**-8),
    ),
    Plant("a requantization is folded into the wrong scale", "linear_relu_add", wrong.quantized_by("relu", "sum")),
    Plant("zeros around an image have the zero point of the result", "pad_conv", wrong.padded_with_zero_of("conv")),
    Plant("codes between an average and a sum are dropped", "pool_requantize", wrong.unrounded("pool", "sum")),
    Plant(
        "all channels are read by the scale of the first",
        "concat_scales",
        wrong.with_numbers("w#scale", lambda s: s[:1].expand(s.shape).clone()),
    ),
    Plant("a reshape exchanges the scales of channels", "pad_conv", wrong.with_numbers("w#scale", lambda s: s.flip(0))),
    Plant("operands of a concatenation are exchanged", "concat_scales", wrong.exchanged("join")),
    Plant("a folded padding is not counted in an average", "pad_pool", wrong.pool_without_padding),
    Plant("the padding of an average is all in front", "pad_pool", wrong.padded_in_front),
    Plant("both parts of a split are the second", "split_sum", wrong.reads("sum", 0, "tail")),
    Plant("a part of a split has the scale of the result", "split_sum", wrong.scale_of("head", "sum")),
    Plant("a second part of a split reads the first", "split_sum", wrong.reads("gate", 0, "head")),
    Plant("a clip narrower than the codes is left to them", "conv_clip", wrong.clipped("clip", lambda _: -WIDE, WIDE)),
    Plant("a clip is fused as a relu", "conv_clip", wrong.clipped("clip", lambda _: 0.0, WIDE)),
    Plant("the first of two constant factors is lost", "scaled_twice", wrong.reads("second", 0, "x#quantized")),
    Plant("the shift of a batch normalization comes before its factor", "scaled_twice", wrong.factor_after),
    Plant("two constant factors are folded into one without codes", "scaled_twice", wrong.unrounded("first", "second")),
    Plant("a relu is left to codes below whose zero point there are others", "add_relu", wrong.left_to_codes("relu")),
    Plant("a relu before a pool is left to its codes", "relu_pool", wrong.left_to_codes("relu")),
    Plant("a relu after a matrix product is left to its codes", "matmul_add_relu", wrong.left_to_codes("relu")),
    Plant(
        "two operands of equal scales have one zero point",
        "add_relu",
        wrong.where(conditions.equal("scale", "x", "z"), wrong.zero_of("z", "x")),
    ),
    Plant(
        "two operands of equal zero points have one scale",
        "add_relu",
        wrong.where(conditions.equal("zero", "x", "z"), wrong.scale_of("z", "x")),
    ),
    Plant(
        "a concatenation copies an operand whose zero point is its own",
        "concat_scales",
        wrong.where(conditions.equal("zero", "z", "join"), wrong.scale_of("z", "join")),
    ),
    Plant(
        "merged convolutions of equal scales have one zero point",
        "convs_joined",
        wrong.where(conditions.equal("scale", "first", "second"), wrong.zero_of("second", "first")),
    ),
    Plant(
        "a permutation of three axes is taken for its inverse",
        "moves_through",
        wrong.with_attributes("turn", wrong.inverse_order),
    ),
    Plant(
        "the paddings of a pool at both ends are exchanged",
        "relu_pool",
        wrong.with_attributes("pool", wrong.ends_exchanged),
    ),
    Plant(
        "an average divides by places inside the image",
        "pool_requantize",
        wrong.with_attributes("pool", wrong.without_padding_counted),
    ),
    Plant("a second part of a split starts where the first ends", "split_sum", wrong.gap_lost),
    Plant(
        "one row for all is read as the sum's operand",
        "mul_add",
        wrong.where(
            lambda graph: graph.tensor("y").shape != graph.tensor("x").shape, wrong.reads("sum", 1, "y#quantized")
        ),
    ),
    Plant("each group has the bias of the first", "conv_relu_add", wrong.bias_of_first_group),
    Plant(
        "channels past a multiple of 16 have no bias", "conv_relu_add", wrong.with_numbers("b", wrong.without_rest(16))
    ),
    Plant(
        "terms past the first 64 are lost",
        "matmul_add_relu",
        wrong.where(
            lambda graph: graph.tensor("x").shape[1] > 64, wrong.with_numbers("w#codes", wrong.without_rest(64))
        ),
    ),
    Plant("the lower bound of a clip is 0", "conv_clip", wrong.clipped("clip", lambda _: 0.0, 3.0)),
    Plant("the upper bound of a clip is lost", "conv_clip", wrong.clipped("clip", lambda _: 0.5, WIDE)),
    Plant(
        "bounds of a clip are counted from the code 0",
        "conv_clip",
        wrong.clipped_between(wrong.off_by_zero_point(0.5), wrong.off_by_zero_point(3.0)),
    ),
    Plant(
        "bounds of a clip have the scale of the sum after it",
        "conv_clip",
        wrong.clipped_between(wrong.by_scale_of("sum", 0.5), wrong.by_scale_of("sum", 3.0)),
    ),
    Plant("a clip comes after the sum", "conv_clip", wrong.clip_after_sum),
    Plant(
        "a concatenation copies an operand whose scale is its own",
        "concat_conv",
        wrong.where(conditions.equal("scale", "x", "z"), wrong.zero_of("z", "x")),
    ),
    Plant(
        "operands of a concatenation exchange their scales",
        "concat_conv",
        wrong.both(wrong.scale_of("x", "z"), wrong.scale_of("z", "x")),
    ),
    Plant(
        "merged convolutions of equal shapes are exchanged",
        "convs_joined",
        wrong.where(conditions.one_shape("first", "second"), wrong.exchanged("join")),
    ),
    Plant("a relu is dropped for both readers of a convolution", "conv_relu_shared", wrong.left_to_codes("relu")),
    Plant(
        "factors of a product exchange their zero points",
        "mul_add",
        wrong.both(wrong.zero_of("x", "y"), wrong.zero_of("y", "x")),
    ),
    Plant(
        "a folded padding is the larger of two",
        "pad_conv",
        wrong.padding_folded(lambda inside, own: [max(pair) for pair in zip(inside, own, strict=True)]),
    ),
    Plant(
        "a folded padding replaces the convolution's own", "pad_conv", wrong.padding_folded(lambda inside, _: inside)
    ),
    Plant(
        "a folded padding exchanges height and width",
        "pad_conv",
        wrong.padding_folded(lambda a, b: [a[i] + b[i] for i in (1, 0, 3, 2)]),
    ),
    Plant(
        "an average is given the numbers of its operand",
        "pool_requantize",
        wrong.both(wrong.quantized_by("pool", "x"), wrong.scale_of("pool", "x")),
    ),
    Plant("a relu before a pool is a relu6", "relu_pool", wrong.clipped("relu", lambda _: 0.0, 6.0)),
    Plant("the shift after two factors has the scale of one", "scaled_twice", wrong.scale_of("b", "h")),
    Plant(
        "softmax is taken along the other axis",
        "softmax_scales",
        wrong.with_attributes("weights", lambda _: {"axis": 0}),
    ),
    Plant("softmax is read without its zero point", "softmax_scales", wrong.zero_of("weights", None)),
    Plant("the factor before softmax is lost", "softmax_scales", wrong.reads("weights", 0, "product")),
    Plant("a relu before a split reaches its first part alone", "split_sum", wrong.reads("tail", 0, "x#quantized")),
    Plant("a sigmoid that is moved is read by 1/256", "moves_through", wrong.read_by("act", 2**-8)),
    Plant(
        "a transposition of axes of one size is dropped",
        "moves_through",
        wrong.where(conditions.cubic, wrong.reads("view", 0, "act")),
    ),
    Plant("an LSTM cell's state leaves tanh out", "lstm_cell", wrong.reads("hidden", 1, "next")),
    Plant("an LSTM cell's candidate goes through a sigmoid", "lstm_cell", wrong.computed_as("g", "Sigmoid")),
    Plant("an LSTM cell's old state has the scale of the new", "lstm_cell", wrong.scale_of("state", "next")),
    Plant("an LSTM cell's kept state is not rounded", "lstm_cell", wrong.unrounded("kept", "next")),
    Plant(
        "SiLU is computed as hard swish", "conv_silu", wrong.computed_as("gate", "HardSigmoid", alpha=1 / 6, beta=0.5)
    ),
    Plant(
        "square weights are not transposed",
        "linear_relu_add",
        wrong.where(conditions.square, wrong.with_attributes("linear", lambda _: {"transB": 0})),
    ),
    Plant("the mean is subtracted the other way round", "mean_centred", wrong.exchanged("centred")),
    Plant("the mean is read without its zero point", "mean_centred", wrong.zero_of("mean", None)),
    Plant("a difference and its factor are rounded once", "mean_centred", wrong.unrounded("centred", "scaled")),
    Plant("the mean is not rounded", "mean_centred", wrong.unrounded("mean", "centred")),
    Plant(
        "a concatenation copies an operand of equal scale but another zero point",
        "concat_scales",
        wrong.where(conditions.equal("scale", "z", "join"), wrong.zero_of("z", "join")),
    ),
    Plant(
        "a convolution writes codes of its own into a concatenation of equal scale",
        "concat_scales",
        wrong.where(conditions.equal("scale", "conv", "join"), wrong.zero_of("conv", "join")),
    ),
    Plant(
        "operands of a concatenation with equal scales have one zero point",
        "concat_scales",
        wrong.where(conditions.equal("scale", "z", "conv"), wrong.zero_of("z", "conv")),
    ),
    Plant("a convolution before a concatenation is not rounded", "concat_scales", wrong.unrounded("conv", "join")),
    Plant("weights of the second operand of a concatenation come first", "concat_conv", wrong.second_part_first),
    Plant("a sum reads one operand twice", "add_relu", wrong.reads("sum", 1, "x#quantized")),
    Plant("a convolution and its clip are rounded once", "conv_clip", wrong.unrounded("conv", "clip")),
    Plant(
        "a clip is given the numbers of the convolution",
        "conv_clip",
        wrong.both(wrong.quantized_by("clip", "conv"), wrong.scale_of("clip", "conv")),
    ),
    Plant("a relu and the sum after it are rounded once", "conv_relu_add", wrong.unrounded("relu", "sum")),
    Plant("paddings of both ends are exchanged", "conv_relu_add", wrong.with_attributes("conv", wrong.ends_exchanged)),
    Plant(
        "the first reader of a convolution sees it without its relu", "conv_relu_shared", wrong.reads("sum", 0, "conv")
    ),
    Plant("the gate of SiLU is not rounded", "conv_silu", wrong.unrounded("gate", "product")),
    Plant("SiLU reads its gate twice", "conv_silu", wrong.reads("product", 0, "gate")),
    Plant("merged convolutions have the scale of the first", "convs_joined", wrong.scale_of("second", "first")),
    Plant(
        "the second of merged convolutions has the result's scale", "convs_joined", wrong.quantized_by("second", "join")
    ),
    Plant("a layer and its relu are rounded once", "linear_relu_add", wrong.unrounded("linear", "relu")),
    Plant("an LSTM cell exchanges two gates", "lstm_cell", wrong.exchanged_between("kept", "added")),
    Plant("an LSTM cell's tanh is not rounded", "lstm_cell", wrong.unrounded("held", "hidden")),
    Plant("a matrix product and a sum are rounded once", "matmul_add_relu", wrong.unrounded("product", "sum")),
    Plant("a sum and its relu are rounded once", "matmul_add_relu", wrong.unrounded("sum", "relu")),
    Plant(
        "square factors are read transposed",
        "matmul_add_relu",
        wrong.where(conditions.square, wrong.with_numbers("w#codes", lambda codes: codes.t().contiguous())),
    ),
    Plant("a difference has the scale of its operand", "mean_centred", wrong.scale_of("centred", "x")),
    Plant("axes move the other way", "moves_through", wrong.with_attributes("turn", lambda _: {"perm": (0, 3, 1, 2)})),
    Plant("a sum is quantized by the product's scale", "mul_add", wrong.quantized_by("sum", "mul")),
    Plant("a product reads one factor twice", "mul_add", wrong.reads("mul", 1, "x#quantized")),
    Plant(
        "padding of its own is lost after one in front",
        "pad_conv",
        wrong.with_attributes("conv", lambda _: {"pads": (0,) * 4}),
    ),
    Plant("an average is quantized by its operand's scale", "pad_pool", wrong.quantized_by("pool", "x")),
    Plant(
        "the paddings of an average are exchanged",
        "pool_requantize",
        wrong.with_attributes("pool", wrong.ends_exchanged),
    ),
    Plant("a pool reads what was before the relu", "relu_pool", wrong.reads("pool", 0, "x#quantized")),
    Plant("a pool is read without its zero point", "relu_pool", wrong.zero_of("pool", None)),
    Plant(
        "two factors exchange their scales",
        "scaled_twice",
        wrong.both(wrong.scale_of("g", "h"), wrong.scale_of("h", "g")),
    ),
    Plant("the second product is not rounded", "scaled_twice", wrong.unrounded("second", "sum")),
    Plant("softmax is not rounded before the product", "softmax_scales", wrong.unrounded("weights", "mixed")),
    Plant("a factor is folded into softmax without codes", "softmax_scales", wrong.unrounded("scaled", "weights")),
    Plant("the gate of a split is not rounded", "split_sum", wrong.unrounded("gate", "sum")),
    Plant("a relu before a split reaches its second part alone", "split_sum", wrong.reads("head", 0, "x#quantized")),
    Plant("a concatenation is quantized twice", "concat_scales", wrong.quantized_first("join", "z")),
    Plant("a sum is quantized by its operand's scale", "add_relu", wrong.quantized_by("sum", "x")),
    Plant("zeros around an image are the negated zero point", "pad_conv", wrong.padded_with_negative_zero),
    Plant(
        "a dequantization is folded away", "mul_add", wrong.both(wrong.read_by("mul", 1.0), wrong.zero_of("mul", None))
    ),
    Plant("a pool keeps the codes of its operand", "relu_pool", wrong.numbers_of("pool", "relu")),
    Plant(
        "a pool has the numbers of another tensor",
        "relu_pool",
        wrong.both(wrong.numbers_of("pool", "z"), wrong.scale_of("pool", "z"), wrong.zero_of("pool", "z")),
    ),
    Plant(
        "a mean is given the numbers of its operand",
        "mean_centred",
        wrong.both(wrong.quantized_by("mean", "x"), wrong.scale_of("mean", "x")),
    ),
    Plant(
        "a layer before a sum gives 0",
        "linear_relu_add",
        wrong.both(wrong.with_numbers("w#codes", torch.zeros_like), wrong.without_bias("linear")),
    ),
    Plant("a product is read by the scale before its factor", "softmax_scales", wrong.scale_of("scaled", "product")),
    Plant("a convolution before a sum is not saturated", "conv_relu_shared", wrong.unsaturated("conv")),
)
