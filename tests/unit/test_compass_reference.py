"""Platform `compass` against real runs of the Compass Optimizer (cases/reference/compass), to the last bit."""

from __future__ import annotations

import configparser
import io
import pickletools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.calibration.extrema import extrema
from quantizer.calibration.mean import mean
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.float_forward import float_radius
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import AttrValue, Case, DataRecipe, Range, TilePlan
from quantizer.core.library import load_library
from quantizer.core.schemes import ActivationPart, Scheme, WeightPart
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics import mkl
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, QParams, Rescale
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.ratio_to_multiplier import float32_multiplier as compass_numbers
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call
from quantizer.runtime.executor import execute, to_operator_order

Array = NDArray[Any]
Batches = Iterable[Tensor]
ROOT = Path(__file__).parents[2] / "cases" / "reference" / "compass"
LIBRARY = load_library()
PLATFORM = LIBRARY.platform("compass")
PROVEN = (
    "act_relu",
    "act_sigmoid",
    "avgpool2",
    "batchnorm",
    "concat",
    "conv3x3",
    "dwconv3x3",
    "elt_add",
    "fc",
    "globalavg",
    "layernorm",
    "matmul",
    "maxpool3",
    "reduce_mean",
    "reshape",
    "softmax",
)
CONFIGS = ("default", "ext", "pc_asym", "a16")
SAMPLES = {0: ("calib", 0), 1: ("calib", 1), 2: ("val", 2)}
"""Number in ref.npz -> file and index of the sample."""
FLOAT64_SUMS = ("convolution", "depthwise_convolution")
"""Families whose float forward adds in float64 and rounds once (facts/compass.md 14)."""
ESTIMATORS: dict[str, Callable[[Batches], Range]] = {"extrema": extrema, "mean": mean}
BY_A_LIBRARY = {"fully_connected"}
"""Operators whose recorded last bits a library chose by the recorder's processor: MKL's product of a matrix and a vector."""
OF_MKL = {"layer_norm"}
"""Further ones where torch has no MKL: by its root."""
NO_NUMBERS = {
    "is_perf_mode",
    "unquantifiable",
    "activation_quantization_axis",
    "quantize_method",
    "scale_type",
    "shift_type",
    "weights_zp",
    "biases_zp",
    "var_shift_type",
    "norm_scale_type",
    "norm_shift_type",
}
"""What a quantized layer says besides the numbers that a rule chooses; zero points of constants are read as parameters."""
load_built_ins()


@dataclass(frozen=True)
class Run:
    """One recorded run: its input, the chosen parameters, and the results."""

    folder: Path

    @cached_property
    def options(self) -> Mapping[str, str]:
        parser = configparser.ConfigParser()
        parser.read(self.folder / "opt.cfg")
        return dict(parser["Common"])

    @cached_property
    def graph(self) -> Graph:
        return self.read("float")

    def read(self, stem: str) -> Graph:
        return compass.native(compass.read(self.folder / f"{stem}.txt", self.folder / f"{stem}.bin"), LIBRARY.specs)

    @cached_property
    def node(self) -> Node:
        (node,) = self.graph.nodes
        return node

    @cached_property
    def call(self) -> Call:
        return Call(LIBRARY.spec(self.node.op), cast("Mapping[str, AttrValue]", self.node.attrs), self.node.order)

    @cached_property
    def recorded(self) -> dict[str, Array]:
        with np.load(self.folder / "ref.npz") as arrays:
            return dict(arrays)

    def recorded_output(self, kind: str, sample: int) -> Tensor:
        return self.arrange("y", torch.from_numpy(self.recorded[f"b{sample}_{kind}0"].astype(np.float64)))

    def arrange(self, name: str, values: Tensor) -> Tensor:
        """Return *values* of operand *name* in the operator's axis order."""
        spec = self.call.spec
        spatial = spec.outputs[name].spatial if name in spec.outputs else spec.inputs[name].spatial
        return to_operator_order(values, self.call.order, spatial=spatial)

    @cached_property
    def operands(self) -> dict[str, str]:
        """Operand of the operator -> tensor of the graph."""
        return {
            key: name for key, name in zip(self.call.spec.inputs, self.node.inputs, strict=True) if name is not None
        }

    @cached_property
    def constants(self) -> dict[str, Tensor]:
        tensors = {key: self.graph.tensor(name).data for key, name in self.operands.items()}
        return {key: self.arrange(key, data) for key, data in tensors.items() if data is not None}

    @cached_property
    def activations(self) -> list[str]:
        return [key for key in self.operands if key not in self.constants]

    def samples(self, stem: str) -> list[dict[str, Tensor]]:
        shapes = [self.graph.tensor(name).shape for name in self.graph.inputs]
        columns = stored_columns(self.folder / f"{stem}.npy", shapes)
        return [
            {name: torch.from_numpy(c[i : i + 1].copy()) for name, c in zip(self.graph.inputs, columns, strict=True)}
            for i in range(len(columns[0]))
        ]

    def sample(self, number: int) -> dict[str, Tensor]:
        stem, index = SAMPLES[number]
        return self.samples(stem)[index]

    def forward(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return every tensor of the float graph, float32, summed as the original sums."""
        wide = torch.float64 if self.call.spec.quantization.family in FLOAT64_SUMS else torch.float32
        with pinned():
            found = execute(self.graph, {name: values.to(wide) for name, values in feeds.items()}, LIBRARY.specs).values
        return {name: values.to(torch.float32) for name, values in found.items()}

    @cached_property
    def reproduces(self) -> bool:
        """Whether our float forward gives the recorded floats bit for bit."""
        return all(
            torch.equal(
                self.forward(self.sample(n))[self.node.outputs[0]], torch.from_numpy(self.recorded[f"b{n}_float_out0"])
            )
            for n in SAMPLES
        )

    @cached_property
    def scheme(self) -> Scheme:
        """The weight and the activation part that opt.cfg says, or the optimizer's defaults."""
        said = self.options.get
        weight = said("quantize_method_for_weight", "per_tensor_symmetric_restricted_range")
        activation = said("quantize_method_for_activation", "per_tensor_symmetric_full_range")
        bias_bits = int(said("bias_bits", "32"))
        return Scheme(
            name=self.folder.name,
            activation=ActivationPart(
                bits=int(said("activation_bits", "8")),
                symmetry="asymmetric" if activation.endswith("asymmetric") else "symmetric",
                range="restricted" if activation.endswith("restricted_range") else "full",
                accumulator_bits=bias_bits,
                lut_bits=int(said("lut_items_in_bits", "8")),
            ),
            weight=WeightPart(
                bits=int(said("weight_bits", "8")),
                granularity="channel" if weight.startswith("per_channel") else "tensor",
                symmetry="asymmetric" if weight.endswith("asymmetric") else "symmetric",
                range="restricted" if weight.endswith("restricted_range") else "full",
                bias_bits=bias_bits,
            ),
        )

    def estimate(self, batches: Batches) -> Range:
        assert self.options["calibration_batch_size"] == "1"
        return ESTIMATORS[self.options.get("calibration_strategy_for_activation", "mean")](batches)

    @cached_property
    def ranges(self) -> dict[str, Range]:
        batches = [self.forward(feeds) for feeds in self.samples("calib")]
        names = {key: self.operands[key] for key in self.activations} | {"y": self.node.outputs[0]}
        return {key: self.estimate(values[name] for values in batches) for key, name in names.items()}

    def request(self, ranges: Mapping[str, Range]) -> Request:
        made = {key: torch.empty(self.graph.tensor(name).shape, device="meta") for key, name in self.operands.items()}
        shapes = {key: tuple(self.arrange(key, values).shape) for key, values in made.items()}
        return Request(self.call.spec, self.scheme, PLATFORM, shapes, self.call.attrs, ranges, self.constants)

    @cached_property
    def parameters(self) -> Parameters:
        return BuiltinEngine().quantize(self.request(self.ranges))

    @cached_property
    def quantized(self) -> Graph:
        return self.read("quant")

    def chosen(self, key: str) -> GraphTensor:
        """Return operand or output *key* of the graph that the optimizer wrote."""
        (node,) = self.quantized.nodes
        names = dict(zip(self.call.spec.inputs, node.inputs, strict=True)) | {"y": node.outputs[0]}
        return self.quantized.tensor(str(names[key]))

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """Further numbers of the quantized layer by name: of the text as they are, of the .bin as lists."""
        (node,) = self.quantized.nodes
        given = self.node.extra
        extra = {
            k: v for k, v in node.extra.items() if not k.startswith("compass.") and (k not in given or v != given[k])
        }
        return {
            k: v.data.tolist() if isinstance(v, GraphTensor) and v.data is not None else v for k, v in extra.items()
        }

    def trial(self, feeds: Mapping[str, Tensor]) -> Trial:
        """Return what checks look at, on given data instead of generated data."""
        asked, plan = self.request(self.ranges), TilePlan({})
        recipe, order = DataRecipe("recorded", 0), self.call.order
        case = Case(asked.spec.op, "recorded", "compass", asked.shapes, asked.attrs, asked.ranges, order, plan, recipe)
        trial = Trial(Target(asked.spec, asked.scheme, PLATFORM), case, BuiltinEngine())
        values = {key: self.arrange(key, feeds[self.operands[key]]) for key in self.activations}
        trial.tensors = values | self.constants
        return trial


def stored_columns(path: Path, shapes: list[tuple[int, ...]]) -> list[Array]:
    """Return one float32 array of samples per input; those of several inputs are byte strings in a pickled dict.

    The pickle is taken apart, never run.
    """
    raw = path.read_bytes()
    stream = io.BytesIO(raw)
    np.lib.format.read_magic(stream)
    _, _, kind = np.lib.format.read_array_header_1_0(stream)
    if not kind.hasobject:
        return [np.load(path)]
    strings = [arg for _, arg, _ in pickletools.genops(stream) if isinstance(arg, bytes) and len(arg) > 1]
    return [np.frombuffer(s, "<f4").reshape(-1, *shape[1:]) for s, shape in zip(strings, shapes, strict=True)]


@cache
def recorded_run(name: str, config: str) -> Run:
    return Run(ROOT / name / config)


def covered() -> list[tuple[str, str]]:
    """Return every recorded run whose float graph is a single operator of the registry."""
    found = [(folder.parent.name, folder.name) for folder in sorted(ROOT.glob("*/*"))]
    return [pair for pair in found if {node.op for node in recorded_run(*pair).graph.nodes} <= LIBRARY.specs.keys()]


def bits(values: Tensor | None) -> list[int]:
    """Return the bit patterns of float32 numbers."""
    assert values is not None
    assert values.dtype == torch.float32
    return cast("list[int]", values.reshape(-1).view(torch.int32).tolist())


@pytest.fixture(params=[f"{name}-{config}" for name in PROVEN for config in CONFIGS])
def run(request: pytest.FixtureRequest) -> Run:
    return recorded_run(*request.param.rsplit("-", 1))


@pytest.mark.parametrize(("name", "config"), covered())
def test_the_float_forward_is_within_its_bound(name: str, config: str) -> None:
    """Recorded and own floats lie within gamma_n * f(|x|) + ulp/2 of the float64 reference."""
    run = recorded_run(name, config)
    for number in SAMPLES:
        feeds = run.sample(number)
        trial = run.trial(feeds)
        radius = float_radius(trial)
        ours = execute(run.graph, feeds, LIBRARY.specs).values[run.node.outputs[0]]
        assert ours.dtype == torch.float32
        for values in (run.arrange("y", ours).double(), run.recorded_output("float_out", number)):
            assert values.shape == trial.y.shape
            assert bool((np.abs(values.numpy() - trial.y) <= radius).all())


def test_every_proven_operator_has_recorded_runs() -> None:
    assert {(name, config) for name in PROVEN for config in CONFIGS} <= set(covered())


def test_float_forward_repeats_every_bit(run: Run) -> None:
    """Results of the recorder's MKL kernels, which depend on its processor, lie within twice the bound instead."""
    assert run.reproduces or run.call.spec.op in (BY_A_LIBRARY if mkl.is_pinned() else BY_A_LIBRARY | OF_MKL)
    for number in SAMPLES:
        feeds = run.sample(number)
        ours = run.arrange("y", run.forward(feeds)[run.node.outputs[0]]).double()
        away = (ours - run.recorded_output("float_out", number)).abs().numpy()
        assert bool((away <= (0.0 if run.reproduces else 2.0 * float_radius(run.trial(feeds)))).all())


def test_parameters_of_activations_equal_the_recorded_ones(run: Run) -> None:
    """layer_top_scale (float32), layer_top_zp, type and range of inputs and output."""
    found = {**run.parameters.inputs, **run.parameters.outputs}
    for key in [*run.activations, "y"]:
        wanted, got = run.chosen(key), found[key]
        assert wanted.qparams is not None
        assert (got.dtype, got.qmin, got.qmax) == (wanted.dtype, wanted.qparams.qmin, wanted.qparams.qmax)
        assert int(got.zero_point) == int(wanted.qparams.zero_point)
        if key != "y" or run.reproduces:
            assert bits(got.steps) == bits(wanted.qparams.steps)
        else:
            least, most = steps_within_the_float_bound(run)
            assert least <= float(cast("Tensor", wanted.qparams.steps)) <= most


def steps_within_the_float_bound(run: Run) -> tuple[float, float]:
    """Return the output steps for ranges that are wider and narrower by the bound of the float forward."""
    found = []
    for sign in (1.0, -1.0):
        batches = []
        for feeds in run.samples("calib"):
            trial = run.trial(feeds)
            radius = sign * float(float_radius(trial).max())
            batches.append(torch.tensor([trial.y.min() - radius, trial.y.max() + radius]))
        found.append(float(cast("Tensor", run.request({**run.ranges, "y": run.estimate(batches)}).output().steps)))
    return found[0], found[1]


def test_codes_and_scales_of_constants_equal_the_recorded_ones(run: Run) -> None:
    """Codes and scales of weights and biases; a bias in the file has absorbed the input's zero point, clamped."""
    for key, constant in run.parameters.constants.items():
        wanted, params = run.chosen(key), constant.params
        assert wanted.data is not None
        assert wanted.dtype.name == params.dtype.storage
        codes = constant.codes
        if run.call.spec.inputs[key].role == "bias" and "weight" in run.constants:
            weight = run.parameters.constants["weight"].codes
            sums = weight.reshape(len(weight), -1).sum(1)
            codes = (codes - int(run.parameters.inputs["x"].zero_point) * sums).clamp(params.qmin, params.qmax)
        assert codes.tolist() == run.arrange(key, wanted.data.long()).tolist()
        assert wanted.qparams is not None
        assert bits(params.steps) == bits(wanted.qparams.steps)
        assert params.zero_point.tolist() == wanted.qparams.zero_point.tolist()
    assert run.parameters.constants.keys() == run.constants.keys()


def test_multipliers_and_tables_equal_the_recorded_ones(run: Run) -> None:
    """scale_value and shift_value or scale and shift, the factors of Eltwise, lut; no further number is left."""
    numbers, ratio, tables = run.numbers, run.parameters.rescale, run.parameters.tables
    table = tables.get("exp")
    checked = {"weights_scale", "biases_scale"}
    if ratio is not None and ratio.variant == "multiplier_shift" and not tables.keys() & {"lut", "exp"}:
        names = ("scale", "shift") if ratio.mantissa.dim() else ("scale_value", "shift_value")
        assert (numbers[names[0]], numbers[names[1]]) == written_ratio(run, ratio)
        checked |= set(names)
    if "lut" in run.parameters.tables:
        assert numbers["lut"] == run.parameters.tables["lut"].entries.tolist()
        checked |= {"lut"}
    if table is not None:
        assert numbers["lut"] == table.entries.tolist()
        bits_of = run.scheme.activation.bits
        assert (table.first, table.step * len(numbers["lut"])) == (1 - (1 << bits_of), 1 << bits_of)
        wanted = (run.parameters.numbers["multiplier"], run.parameters.numbers["shift"])
        assert (numbers["scale_value"], numbers["shift_value"]) == wanted
        checked |= {"lut", "scale_value", "shift_value"}
    if "inverse_root" in tables:
        assert numbers["lut"] == tables["inverse_root"].entries.tolist()
        named = {
            "var_shift_value": "variance_shift",
            "norm_scale_value": "norm_multiplier",
            "norm_shift_value": "norm_shift",
        }
        assert {key: numbers[key] for key in named} == {
            key: run.parameters.numbers[name] for key, name in named.items()
        }
        assert run.parameters.numbers.keys() == set(named.values())
        checked |= {"lut", *named}
    assert numbers.keys() <= checked | NO_NUMBERS


def written_ratio(run: Run, ratio: Rescale) -> tuple[Any, Any]:
    """Return the multiplier and shift as the file has them: of channels, of a layer, with factors, or of each branch."""
    if ratio.mantissa.dim():
        return [int(m) for m in ratio.mantissa], ratio.shift.tolist()
    if len(ratio.factors) < 2:
        return int(ratio.mantissa), int(ratio.shift)
    if run.call.spec.op != "concat":
        return (int(ratio.mantissa), *(int(ratio.factors[key]) for key in run.activations)), int(ratio.shift)
    pairs = [compass_multiplier(run, key) for key in run.activations]
    assert [ratio.factors[key] for key in run.activations] == [float(m) * 2.0 ** -int(n) for m, n in pairs]
    return tuple(int(m) for m, _ in pairs), tuple(int(n) for _, n in pairs)


def compass_multiplier(run: Run, key: str) -> tuple[Tensor, Tensor]:
    """Return the multiplier of one branch: the file has it as integer and shift, the parameters as their quotient."""
    steps, own = run.parameters.outputs["y"].steps, run.parameters.inputs[key].steps
    assert steps is not None
    assert own is not None
    return compass_numbers(steps / own, run.scheme.activation.bits)


@pytest.mark.parametrize("number", SAMPLES)
def test_codes_equal_the_recorded_ones(run: Run, number: int) -> None:
    """Float samples give the recorded input codes, those the recorded output codes, those the recorded reals."""
    feeds, codes = run.sample(number), {k: c.codes for k, c in run.parameters.constants.items()}
    for index, key in enumerate(run.activations):
        wanted = run.arrange(key, torch.from_numpy(run.recorded[f"b{number}_q_in{index}"]).long())
        values = run.arrange(key, feeds[run.operands[key]])
        assert torch.equal(quantize(values, run.parameters.inputs[key], PLATFORM.quantizer), wanted)
        codes[key] = wanted
    got = BuiltinEngine().run(run.call, codes, run.parameters).codes
    wanted = run.recorded_output("q_out", number).long()
    assert torch.equal(got, wanted)
    real = run.recorded_output("deq_out", number).numpy()
    ulp = np.spacing(np.abs(real).astype(np.float32)).astype(np.float64)
    assert bool((np.abs(dequantize(wanted, cast("QParams", run.chosen("y").qparams)).numpy() - real) <= ulp).all())


def test_checks_pass_the_recorded_parameters_and_codes(run: Run) -> None:
    """All but two defects of 16 bits that the platform declares: misaligned tables of 2**10 entries, coarse inverse roots."""
    trial = run.trial(run.sample(1))
    wide = run.scheme.activation.bits > run.scheme.activation.lut_bits
    coarse = wide and "inverse_root" in run.parameters.tables
    misaligned = wide and bool(run.parameters.tables.keys() - {"inverse_root"})
    assert arithmetic(trial).status == ("fail" if coarse else "pass")
    assert parameters(trial).status == ("fail" if misaligned else "pass")
    assert {"misaligned_table", "norm_inverse_root_coarse"} <= {defect.id for defect in PLATFORM.defects}


def test_library_schemes_equal_those_of_recorded_runs() -> None:
    for config, name in (("pc_asym", "w8a8"), ("a16", "w16a16")):
        found, declared = recorded_run("conv3x3", config).scheme, LIBRARY.scheme(name)
        assert (found.weight, found.activation) == (declared.weight, declared.activation)
