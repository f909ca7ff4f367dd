"""The table of all fields of a cfg file, with default, legal values, meaning, and whether this flow uses the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from quantizer.optimize import values as v
from quantizer.optimize.global_methods import global_methods
from quantizer.optimize.values import Kind

Status = Literal["acted on", "ignored", "refused"]
"""acted on: implemented; ignored: parsed, with a warning if set; refused: a value other than the default is an
error."""
METHODS = tuple(
    f"{grain}_{rule}"
    for grain in ("per_tensor", "per_channel", "per_block")
    for rule in ("symmetric_restricted_range", "symmetric_full_range", "asymmetric")
)
ACTIVATION_METHODS = tuple(m for m in METHODS if m != "per_channel_asymmetric" and not m.startswith("per_block"))
TARGETS = ("Z1", "Z2", "Z3", "X1", "X2", "X3", "X3P", "X3S")
FLOATS = ("float16", "bfloat16", "float32")
# act_int_wht: real activations, integer weights
TRIGGERS = (
    "disable",
    *(f"{name}_{what}{force}" for name in FLOATS for what in ("preferred", "act_int_wht") for force in ("", "!")),
)


@dataclass(frozen=True)
class Field:
    """One field of the section [Common]."""

    name: str
    kind: Kind
    default: str
    meaning: str
    per_layer: bool = False
    hidden: bool = False
    status: Status = "acted on"


TEXT, FLAG = v.anything("a text"), v.boolean()
PATH = v.anything("a path, of an existing file where it is given")
_FIELDS = (
    Field("graph", v.anything("a path"), "", "text file of the float IR"),
    Field("bin", v.anything("a path"), "", "file of the float IR's constants"),
    Field("model_name", TEXT, "unknown", "name of the model, in the names of files beside the IR; without / and \\"),
    Field(
        "out_ir_name", TEXT, "", "name of the quantized IR's files without suffix, / and \\; <model_name>_o where empty"
    ),
    Field("quant_ir_name", TEXT, "", "older name of out_ir_name", hidden=True),
    Field("output_dir", TEXT, "./opt_log", "folder of the quantized IR and its companion files; created"),
    Field("dataset", TEXT, "", "name of the data set class (see --plugin)"),
    Field("metric", v.metrics(), "", "names of metric classes with text arguments (see --plugin)"),
    Field("data", PATH, "", "samples that metrics are computed on"),
    Field("label", PATH, "", "labels of these samples"),
    Field("calibration_data", PATH, "", "samples that ranges are calibrated on; zeros where empty"),
    Field("calibration_batch_size", v.integer(1), "1", "samples of one calibration batch"),
    Field("calibration_shuffe", FLAG, "False", "whether calibration samples are shuffled (seeded, so repeatable)"),
    Field("metric_batch_size", v.integer(1), "1", "samples of one metric batch"),
    Field("data_batch_dim", v.integer(0), "0", "axis of the batch in samples; another than 0 needs a collate_fn"),
    Field("label_batch_dim", v.integer(0), "0", "axis of the batch in labels; another than 0 needs a collate_fn"),
    Field("without_batch_dim", FLAG, "False", "whether the model has no batch axis", status="refused"),
    Field("dataloader_workers", v.integer(0), "0", "processes that load data; one loads it here", status="ignored"),
    Field("eval_optimized_model", FLAG, "True", "whether metrics are computed for the quantized graph"),
    Field("eval_original_model", FLAG, "True", "whether metrics are computed for the float graph"),
    Field("skip_optimization", FLAG, "false", "whether to stop after reading and measuring the given IR"),
    Field("similarity_data_num", v.integer(1), "1", "batches on which layers are compared", hidden=True),
    Field(
        "quantize_method_for_weight",
        v.one_of(METHODS),
        METHODS[0],
        "how weights and biases become codes",
        per_layer=True,
    ),
    Field(
        "quantize_method_for_activation",
        v.one_of(ACTIVATION_METHODS),
        METHODS[1],
        "how activations become codes",
        per_layer=True,
    ),
    Field("weight_bits", v.integer(4, 16), "8", "bits of a weight code", per_layer=True),
    Field("activation_bits", v.integer(8, 16), "8", "bits of an activation code", per_layer=True),
    Field("bias_bits", v.integer(16, 48), "32", "bits of a bias code", per_layer=True),
    Field("lut_items_in_bits", v.integer(8, 16), "8", "lookup tables have 2**this entries at most", per_layer=True),
    Field(
        "weight_block_size", v.integer(1), "256", "elements of a block that share a scale (per_block)", per_layer=True
    ),
    Field(
        "activation_block_size",
        v.integer(1),
        "256",
        "elements of a block of activations",
        per_layer=True,
        hidden=True,
        status="ignored",
    ),
    Field(
        "quant_type",
        v.anything("disable, or number formats of activations, weights and biases"),
        "disable",
        "number formats instead of bit widths",
        per_layer=True,
        status="refused",
    ),
    Field(
        "multiplier_bits",
        v.integer(2, 15, empty=True),
        "",
        "bits of a multiplier; empty: as many as the activation has",
        per_layer=True,
        hidden=True,
    ),
    Field(
        "force_dtype_int",
        FLAG,
        "False",
        "whether outputs that are never negative have signed codes all the same",
        per_layer=True,
    ),
    Field(
        "force_shift_positive",
        FLAG,
        "False",
        "whether a negative shift becomes 0 with the largest multiplier",
        per_layer=True,
    ),
    Field(
        "set_qinvariant_for_start_nodes",
        v.layer_numbers(),
        "",
        "Input and Constant layers whose values are codes already (scale 1, zero point 0)",
    ),
    Field(
        "regularize_activation_perchannel_scales",
        v.one_of(("disable", "enable")),
        "disable",
        "limit on outliers of scales per channel",
        per_layer=True,
        hidden=True,
        status="refused",
    ),
    Field(
        "activation_perchannel_min_elements",
        v.integer(1),
        "1",
        "elements that a channel of an activation must have",
        hidden=True,
        status="refused",
    ),
    Field(
        "bias_effective_bits",
        v.integer(16, 48, empty=True),
        "",
        "high bits of a bias that count; by the target where empty",
        per_layer=True,
    ),
    Field(
        "bias_effective_bits_auto_adaption",
        FLAG,
        "False",
        "search for bias bits where effective ones are fewer",
        per_layer=True,
        status="refused",
    ),
    Field("unify_shifts_for_aiff", FLAG, "True", "whether all channels of a layer have one shift", per_layer=True),
    Field(
        "remain_shift",
        v.integer(0, 32, empty=True),
        "",
        "shift that is left after the accumulator's own",
        per_layer=True,
        status="refused",
    ),
    Field(
        "min_compatible_zhouyi_target", v.one_of(TARGETS, upper=True), "X2", "oldest hardware that the IR must run on"
    ),
    Field("perf_mode_for_lib", FLAG, "True", "written to the IR as is_perf_mode", per_layer=True),
    Field(
        "cast_dtypes_for_lib",
        FLAG,
        "False",
        "casts to what the closed operator library has",
        per_layer=True,
        status="refused",
    ),
    Field("optimize_wdc_for_x2", FLAG, "False", "weights that compress better", per_layer=True, status="refused"),
    Field("with_winograd", FLAG, "False", "Winograd's convolution where it takes fewer cycles", per_layer=True),
    Field("resize_degrade_to_nearest", FLAG, "False", "nearest instead of bilinear resizing of codes", per_layer=True),
    Field(
        "calibration_strategy_for_weight",
        v.strategy(mean=False),
        "extrema",
        "how the range of a constant is found",
        per_layer=True,
    ),
    Field(
        "calibration_strategy_for_activation",
        v.strategy(mean=True),
        "mean",
        "how the range of an activation is found",
        per_layer=True,
    ),
    Field("global_calibration", global_methods(), "none", "calibration of the whole graph"),
    Field(
        "running_statistic_momentum",
        v.real(0.0, 1.0),
        "0.9",
        "weight of earlier batches in moving averages",
        per_layer=True,
    ),
    Field("histc_bins", v.integer(1, 1 << 20), "2048", "bins of histograms (kld)", per_layer=True),
    Field(
        "trim_infinity_before_statistic",
        v.clamping(),
        "clip(-inf,inf)",
        "how outliers count in statistics",
        per_layer=True,
    ),
    Field("statistic_file", PATH, "", "statistics of an earlier run, as save_statistic_info writes them"),
    Field("save_statistic_info", FLAG, "False", "whether to write <model_name>_statistic_info.npz"),
    Field("ignore_missing_statistic", FLAG, "False", "whether tensors may be missing in statistic_file"),
    Field("unify_scales_for_concat", FLAG, "False", "one scale for all inputs of a Concat", status="refused"),
    Field(
        "unify_scales_for_concat_threshold",
        v.real(1.0),
        "1.05",
        "inputs of a Concat whose scales lie within this factor are copied",
    ),
    Field(
        "unify_scales_for_concat_max_depth", v.integer(1), "20", "layers that unification looks back", status="ignored"
    ),
    Field(
        "unify_scales_for_kvc_concat",
        FLAG,
        "False",
        "one scale for a cache and what is appended",
        per_layer=True,
        status="refused",
    ),
    Field(
        "unify_scales_for_multi_inputs_operators",
        v.anything("[(LayerType,depth,threshold,max|min|avg|out|skip),...]"),
        "",
        "one scale for all inputs of these layers",
        per_layer=True,
        status="refused",
    ),
    Field(
        "mixed_precision_auto_search",
        v.search(),
        "0,0.,L",
        "search for layers that need more bits: batches, largest drop of the first metric, L (or G, smallest)",
    ),
    Field("trigger_float_op", v.one_of(TRIGGERS), "disable", "layers that stay in floating point", per_layer=True),
    Field("opt_config", PATH, "", "JSON of settings by layer name; wins over the cfg"),
    Field("qconfig", TEXT, "", "class that changes settings by program (see --plugin)", status="refused"),
    Field(
        "featuremap_tiling_param",
        v.numbers(
            r"\[(\(\d{1,9},\d{1,9},[1-9]\d{0,8},[1-9]\d{0,8}\),?)+\]",
            "[(first,last,h,w),...] with h and w of at least 1",
        ),
        "",
        "layers that are tiled",
        hidden=True,
    ),
    Field("featuremap_splits_item_x", v.integer(1, 127), "1", "tiles in x", hidden=True),
    Field("featuremap_splits_item_y", v.integer(1, 127), "1", "tiles in y", hidden=True),
    Field("featuremap_splits_concat_blk", v.integer(1, 127), "3", "tiles that one Concat joins", hidden=True),
    Field(
        "featuremap_splits_overlap_rate",
        v.integer(0, 99),
        "50",
        "overlap at which tiling stops, in percent",
        hidden=True,
    ),
    Field("featuremap_splits_sram_size", v.integer(0, 8191), "0", "kilobytes that tiles must fit", hidden=True),
    Field(
        "enable_pass_merge_matmul_mul",
        FLAG,
        "True",
        "fold a constant factor into a MatMul's output scale; where there is one, it must be false",
    ),
    Field("enable_pass_convert_resize_to_convolution", FLAG, "False", "resizing as convolution", status="refused"),
    Field("enable_pass_decompose_nonmonotonic_activations", FLAG, "False", "activations as products", status="refused"),
    Field(
        "enable_pass_tune_op_complicated_activations",
        v.tuning(),
        "[0][0]",
        "method and numbers of activations",
        per_layer=True,
    ),
    Field(
        "enable_pass_tune_op_softmax",
        v.tuning(),
        "[0][0]",
        "method and numbers of softmax: 0 automatic, 1 fast_exp, 2 table",
        per_layer=True,
    ),
    Field(
        "enable_pass_deeply_set_unquantifiable",
        FLAG,
        "false",
        "floating point through layers that only move data",
        status="refused",
    ),
    Field("enable_pass_split_qkv_fc_in_transformer", FLAG, "False", "split of joined projections", status="refused"),
    Field("enable_pass_detect_inf_mask_nodes", FLAG, "False", "search for masks of infinities", status="refused"),
    Field("enable_pass_scaled_dot_product_attention", FLAG, "False", "fuse attention", hidden=True, status="refused"),
    Field("modify_batch_dim", v.batch_change(), "False", "another batch size for the graph", status="refused"),
    Field("export_parallel_batch", FLAG, "False", "copies of the graph side by side", status="refused"),
    Field("enable_ds", FLAG, "False", "dynamic shapes", per_layer=True, status="ignored"),
    Field("ds_output_shape_constant", TEXT, "disable", "dynamic shapes", per_layer=True, status="ignored"),
    Field("ds_parameter_constant", TEXT, "disable", "dynamic shapes", per_layer=True, hidden=True, status="ignored"),
    Field("dump", FLAG, "False", "whether to write every tensor of both graphs as .npy"),
    Field("dump_dir", TEXT, "./opt_dump", "folder of these files"),
    Field(
        "fake_quant_scopes_for_debug",
        v.numbers(r"\[(\(\d+,\d+\),?)+\]", "[(first,last),...]"),
        "",
        "layers of the float IR that run in floating point while metrics score the quantized graph",
    ),
    Field("fake_quant_operators_for_debug", TEXT, "", "layer types that do"),
    Field(
        "write_similarity_to_ir",
        FLAG,
        "False",
        "whether the IR says how near each layer is",
        hidden=True,
        status="refused",
    ),
    Field("record_debug_acc_info", FLAG, "False", "whether to append scores to a file", hidden=True, status="ignored"),
    Field("compat_quantized_model_simplify_dequantize_quantize", FLAG, "True", "quantized input", status="ignored"),
    *(
        Field(f"compat_{name}", kind, default, "quantized input", hidden=True, status="ignored")
        for name, kind, default in (
            ("quantized_model", FLAG, "False"),
            ("quantized_model_eliminate_cast", FLAG, "True"),
            (
                "quantized_model_strategy",
                v.one_of(("8bSymWeightUnchange", "8bAsymWeightTo16bSymWeight", "sym", "asym", "fasymp", "fsym")),
                "8bSymWeightUnchange",
            ),
            ("quantized_model_int8_to_uint8", FLAG, "False"),
            ("quantized_model_ops", TEXT, ""),
            ("quantized_model_unify_shifts_mode", v.one_of(("max", "mean", "auto", "none", "entropy")), "auto"),
            ("quantized_model_left_shift_bits", v.integer(2, 15), "8"),
            ("quantized_model_force_weight_asym", FLAG, "False"),
        )
    ),
)

FIELDS: Mapping[str, Field] = {field.name: field for field in _FIELDS}
EFFECTIVE_BITS = "32"
"""Bias bits that count on targets from X2 on."""
SINCE_X3 = ("X3", "X3P", "X3S")
SINCE_X2 = ("X2", *SINCE_X3)
"""Zhouyi targets from one generation on."""


def defaults(target: str) -> dict[str, str]:
    """Return the default text of every field for one target."""
    found = {name: field.default for name, field in FIELDS.items()}
    # defaults as all others: a cfg can override each of them
    if target in SINCE_X2:
        found |= {"bias_effective_bits": EFFECTIVE_BITS, "trigger_float_op": "disable&<[RMSNorm]:float16_preferred!>"}
    if target in SINCE_X3:
        found |= dict.fromkeys(("enable_pass_tune_op_complicated_activations", "enable_pass_tune_op_softmax"), "[0][1]")
    return found
