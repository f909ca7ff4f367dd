"""Cfg files, per-layer values and opt_config: what is read, and what every mistake is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quantizer.core.errors import FormatError, QuantizerError, UnsupportedError
from quantizer.optimize.cfg import Options, parse_cfg, read_cfg
from quantizer.optimize.fields import FIELDS, defaults
from quantizer.optimize.per_layer import LayerKey, parse_per_layer
from quantizer.optimize.settings import KEYS, Settings, layer_settings, read_opt_config
from quantizer.optimize.values import integer

HIDDEN, VISIBLE = 24, 76
REFERENCE = Path(__file__).parents[2] / "cases" / "reference"
LAYERS = {
    name: LayerKey(number, name, kind, method)
    for number, (name, kind, method) in enumerate(
        [
            ("data", "Input", ""),
            ("conv1", "Convolution", ""),
            ("conv2", "Convolution", ""),
            ("act", "Activation", "TANH"),
        ]
    )
}


def parsed(*lines: str) -> Options:
    return parse_cfg("\n".join(("[Common]", "graph = g.txt", "bin = g.bin", *lines)), Path("opt.cfg"))


def test_every_documented_field_is_there() -> None:
    hidden = [field for field in FIELDS.values() if field.hidden]
    assert (len(hidden), len(FIELDS) - len(hidden)) == (HIDDEN, VISIBLE)
    assert all(field.meaning and field.kind.legal for field in FIELDS.values())


@pytest.mark.parametrize("target", ["Z1", "X1", "X2", "X3", "X3P"])
def test_every_default_is_legal(target: str) -> None:
    for name, text in defaults(target).items():
        parsed(f"{name} = {text}") if text and FIELDS[name].status != "refused" else None
    options = parsed(f"min_compatible_zhouyi_target = {target}")
    assert options["bias_effective_bits"] == ("" if target in ("Z1", "X1") else 32)
    tuned = ((0.0,), (1.0,)) if target.startswith("X3") else ((0.0,), (0.0,))
    assert options["enable_pass_tune_op_softmax"] == tuned


@pytest.mark.parametrize(
    "path", sorted(REFERENCE.glob("compass*/**/opt.cfg")), ids=lambda path: "-".join(path.parts[-3:-1])
)
def test_recorded_files_are_read(path: Path) -> None:
    assert read_cfg(path).file("graph") is not None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("activation_bits = 7", ["opt.cfg:4: activation_bits", "'7' must be an integer from 8 to 16", "Default: '8'"]),
        ("activation_bits = 8.0", ["must be an integer"]),
        ("weight_bits = 8 & <[(1,2]:16>", ["must be [(first,last)]", "For some layers"]),
        ("weight_bits = 8 & <[(2,1)]:16>", ["(2,1) is not a range"]),
        ("weight_bits = 8 & <[Convolution]:99>", ["'99' must be an integer from 4 to 16"]),
        ("weight_bits = 8 & <{(a+)+}:16>", ["repeats no group"]),
        ("weight_bits = 8 & <{(a|aa)+$}:16>", ["repeats no group"]),
        ("weight_bits = 8 & <{a?a?a?a?aaaa}:16>", ["3 repetitions"]),
        ("weight_bits = 8 & <{(}:16>", ["no pattern"]),
        ("weight_bits = 8 &", ["nothing stands after '&'"]),
        ("calibration_strategy_for_activation = meanfoo", ["must be extrema, mean", "kld"]),
        (
            "quantize_method_for_activation = per_channel_asymmetric",
            ["must be one of per_tensor_symmetric_restricted_range"],
        ),
        ("quantize_method_for_weight = per_row", ["per_block_asymmetric"]),
        ("trigger_float_op = float8_preferred", ["must be one of disable, float16_preferred"]),
        ("trim_infinity_before_statistic = clip(1, 2)", ["low <= 0 <= high"]),
        ("running_statistic_momentum = 1.5", ["a number from 0.0 to 1.0"]),
        ("metric = TopKMetric(5", ["metrics joined by commas"]),
        ("dump = yes", ["must be true or false"]),
        ("mixed_precision_auto_search = 1,0.02,X", ["batches,threshold,L or G"]),
        ("bin = other.bin", ["given on line 3 already"]),
        ("[Other]", ["there is one section"]),
        ("just a line", ["must be field = value"]),
        ("min_compatible_zhouyi_target = X9", ["must be one of Z1, Z2"]),
        ("featuremap_tiling_param = [(1,2)]", ["[(first,last,h,w),...]"]),
        ("featuremap_tiling_param = [(1,1,0,2)]", ["[(first,last,h,w),...] with h and w of at least 1"]),
        ("featuremap_tiling_param = [(1,1,2,2),(3,3,1,00)]", ["with h and w of at least 1"]),
        ("enable_pass_tune_op_softmax = [nan][0]", ["'[nan][0]' must be", "of finite numbers, such as [0][0]"]),
        ("enable_pass_tune_op_softmax = [inf][0]", ["of finite numbers"]),
        ("enable_pass_tune_op_complicated_activations = [0][1e400]", ["of finite numbers"]),
        ("global_calibration = equalization[1e400]", ["'equalization[1e400]'", "with numbers from 0 to 1000000"]),
        ("global_calibration = gptq_zy[1e300]", ["with numbers from 0 to 1000000"]),
        ("set_qinvariant_for_start_nodes = a", ["layer numbers"]),
    ],
)
def test_cfg_mistakes_are_reported_with_place_and_remedy(line: str, words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        parsed(line)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "graph = a\n", "[common]\n", "\x00"])
def test_the_first_cfg_line_must_be_the_section(text: str) -> None:
    with pytest.raises(FormatError, match=r"must be \[Common\]"):
        parse_cfg(text, Path("opt.cfg"))


def test_an_unknown_field_is_ignored_with_a_warning() -> None:
    """As in the original: the typing error is reported, and the default applies."""
    options = parsed("activation_bit = 16", "of_nothing = 1")
    (first, second) = options.warnings
    assert "opt.cfg:4: 'activation_bit': no such field, is ignored. Did you mean 'activation_bits'?" in first
    assert "opt.cfg:5: 'of_nothing': no such field, is ignored. See `quantizer optimize --field`." in second
    assert options["activation_bits"] == 8


def test_ignored_fields_give_a_warning() -> None:
    options = parsed(
        "compat_quantized_model = true", "enable_ds = true", "ds_parameter_constant = a", "dataloader_workers = 2"
    )
    assert [warning.split(": ")[1] for warning in options.warnings] == [
        "dataloader_workers",
        "enable_ds",
        "ds_parameter_constant",
        "compat_quantized_model",
    ]
    assert all("not acted on" in warning for warning in options.warnings)


@pytest.mark.parametrize(
    "line",
    [
        "optimize_wdc_for_x2 = true",
    ],
)
def test_unimplemented_fields_that_change_the_ir_are_refused(line: str) -> None:
    with pytest.raises(UnsupportedError, match=r"opt.cfg:4: .*not implemented here.*says why.*Remove the line"):
        parsed(line)


def test_spaces_comments_and_empty_values() -> None:
    options = parsed(
        "# comment", "; comment", "// comment", "activation_bits = 8 & < [ (1, 2) ] : 16 >", "weight_bits ="
    )
    assert options.per_layer("activation_bits").ranges == ((1, 2, 16),)
    assert options["weight_bits"] == 8
    assert "its default 8 is taken" in options.warnings[0]


def test_metrics_take_arguments_and_are_deduplicated() -> None:
    options = parsed("metric = TopKMetric, TopKMetric(5),CosDistanceMetric(),TopKMetric(5)")
    assert options["metric"] == (("TopKMetric", ()), ("TopKMetric", ("5",)), ("CosDistanceMetric", ()))


def test_layers_are_found_by_number_then_type_then_name() -> None:
    text = "8&<{conv.*}:9><[Convolution,tanh]:10><[(2,2),(7,9)]:11><{data}:12>"
    values = parse_per_layer(text, integer(8, 16))
    assert [values.of(key) for key in LAYERS.values()] == [12, 10, 11, 10]
    assert parse_per_layer("8&<{.*1}:9>", integer(8, 16)).of(LAYERS["conv1"]) == 9
    assert parse_per_layer("8&<{onv}:9>", integer(8, 16)).of(LAYERS["conv1"]) == 8


def test_missing_files_and_dependent_fields_are_refused(tmp_path: Path) -> None:
    def run(*lines: str) -> None:
        path = tmp_path / "opt.cfg"
        path.write_text("\n".join(("[Common]", *lines)))
        read_cfg(path)

    (tmp_path / "g.txt").touch()
    with pytest.raises(FormatError, match="graph: missing"):
        run("bin = g.txt")
    with pytest.raises(FormatError, match=r"opt.cfg:3: bin: .*no such file"):
        run("graph = g.txt", "bin = other")
    with pytest.raises(FormatError, match=r"opt.cfg:3: bin: .*x: no such file"):
        run("graph = g.txt", f"bin = {'x' * 300}")
    with pytest.raises(FormatError, match=r"opt.cfg:2: 'output_dir = a.*b': holds a NUL character"):
        run("output_dir = a\0b")
    for field, name in (("out_ir_name", "../../x"), ("quant_ir_name", "/tmp/x"), ("model_name", "a\\b")):
        with pytest.raises(FormatError, match=rf"opt.cfg:4: {field}: .*must be a name without /.*output_dir") as err:
            run("graph = g.txt", "bin = g.txt", f"{field} = {name}")
        assert repr(name) in str(err.value)
        assert "\n" not in str(err.value)
    with pytest.raises(FormatError, match="a data set class reads it"):
        run("graph = g.txt", "bin = g.txt", "calibration_data = g.txt")
    with pytest.raises(FormatError, match="a metric needs dataset"):
        run("graph = g.txt", "bin = g.txt", "metric = RMSEMetric")
    with pytest.raises(FormatError, match="no such file or directory"):
        read_cfg(tmp_path / "none.cfg")
    with pytest.raises(FormatError, match="cannot be read"):
        read_cfg(tmp_path)
    (tmp_path / "binary.cfg").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="is not UTF-8"):
        read_cfg(tmp_path / "binary.cfg")


def test_paths_are_relative_to_the_working_directory_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    for name in ("g.txt", "g.bin"):
        (tmp_path / "there" / name).touch()
    (tmp_path / "there" / "opt.cfg").write_text("[Common]\ngraph=g.txt\nbin=g.bin\n")
    monkeypatch.chdir(tmp_path)
    assert read_cfg(Path("there/opt.cfg")).file("graph") == Path("there/g.txt")
    monkeypatch.chdir(tmp_path / "there")
    assert read_cfg(Path("opt.cfg")).file("graph") == Path("g.txt")


def settings_of(tmp_path: Path, content: object, *lines: str) -> dict[str, Settings]:
    path = tmp_path / "oc.json"
    path.write_text(json.dumps(content))
    return layer_settings(parsed(f"opt_config = {path}", *lines), LAYERS)


def test_opt_config_wins_over_the_cfg(tmp_path: Path) -> None:
    own = {"q_bits_activation": 16, "force_dtype_int": True, "q_strategy_activation": "3std", "just_for_display": {}}
    found = settings_of(tmp_path, {"conv1": own}, "activation_bits = 9")
    assert found["conv1"]["activation_bits"] == 16
    assert found["conv1"]["force_dtype_int"] is True
    assert found["conv1"].strategy.name == "nstd"
    assert found["conv2"]["activation_bits"] == 9


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"conv": {}}, ["oc.json: conv: no such layer", "Did you mean"]),
        ({"conv1": {"q_bits": 8}}, ["oc.json: conv1.q_bits: no such key", "q_bits_"]),
        ({"conv1": {"q_bits_activation": "x"}}, ["conv1.q_bits_activation", "an integer from 8 to 16"]),
        ({"conv1": {"q_bits_activation": [8]}}, ["got [8]"]),
        ({"conv1": 8}, ["conv1: must be an object"]),
        ([1], ["must be an object of layers"]),
    ],
)
def test_mistakes_in_opt_config(tmp_path: Path, content: object, words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        settings_of(tmp_path, content)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_opt_config_that_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "oc.json"
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(QuantizerError, match="not JSON"):
            read_opt_config(path, LAYERS)


def test_keys_of_opt_config_are_fields() -> None:
    assert set(KEYS.values()) <= {name for name, field in FIELDS.items() if field.per_layer}
