"""Finding and loading plugins: where, in which order, once each, and nothing of one that fails."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path
from textwrap import dedent

import pytest
from plugin_sandbox import sandbox, write

from quantizer.core.errors import PluginError, UnsupportedError
from quantizer.core.version_numbers import parse_version
from quantizer.ops import REGISTRY, operator
from quantizer.plugins import loading
from quantizer.plugins.aipu.optypes import OpType
from quantizer.plugins.aipu.registration import PluginType
from quantizer.plugins.classes import CLASSES
from quantizer.plugins.discovery import load_plugins, sources, spec_folders

NATIVE = dedent("""
    from quantizer.ops import operator

    @operator({op!r}, version={version!r})
    def reference(x):
        return x
""")
LAYER = dedent("""
    @op_register(OpType.{type}, {version!r})
    def forward(self, *args):
        self.outputs[0].betensor = self.inputs[0].betensor
""")
METRIC = dedent("""
    @register_plugin(PluginType.Metric, {version!r})
    class TopKMetric(OptBaseMetric):
        label = {version!r}
""")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sandbox():
        yield


def snapshot() -> tuple[object, ...]:
    entries = {name: list(known) for name, known in REGISTRY.entries.items()}
    classes = {name: list(known) for name, known in CLASSES.entries.items()}
    return (
        entries,
        classes,
        list(loading.LAYERS),
        set(vars(OpType)),
        set(sys.modules) & {"aipubt_bad", "bad"},
        list(sys.meta_path),
    )


def test_sources_are_in_order_and_each_is_once(tmp_path):
    late, early, local = tmp_path / "late", tmp_path / "early", tmp_path / "plugin"
    for folder, name in (
        (late, "aipubt_opt_op_b.py"),
        (late, "aipubt_opt_op_a.py"),
        (early, "aipubt_opt_metric_c.py"),
        (early, "aipubt_d.py"),
        (early, "other.py"),
        (local, "aipubt_opt_dataset_e.py"),
        (local, "no.py"),
        (local, "aipubt_pack/__init__.py"),
    ):
        write(folder, name, "")
    write(tmp_path, "aipubt_of_no_folder.py", "")
    path = os.pathsep.join(["", str(late), "", str(early), str(late)])
    found = sources([early / "aipubt_d.py"], {"AIPUPLUGIN_PATH": path})
    assert [item.name for item in found] == [
        "aipubt_d",
        "aipubt_opt_op_a",
        "aipubt_opt_op_b",
        "aipubt_opt_metric_c",
        "aipubt_opt_dataset_e",
        "aipubt_pack",
    ]


def test_listing_plugin_sources_does_not_import_torch(tmp_path):
    code = "import sys, quantizer.plugins.discovery as d; d.sources([], {}); sys.exit('torch' in sys.modules)"
    root = Path(loading.__file__).parents[2]
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("paths", "environment", "said"),
    [
        (["nowhere"], {}, "nowhere: no such file or folder"),
        (["empty"], {}, "empty: holds no plugin"),
        (["x" * 300], {}, "x: no such file or folder"),
        ([], {"AIPUPLUGIN_PATH": "x" * 300}, "x: no such folder"),
        ([], {"AIPUPLUGIN_PATH": "nowhere"}, "AIPUPLUGIN_PATH: nowhere: no such folder"),
    ],
)
def test_a_path_without_a_plugin_is_an_error(tmp_path, paths, environment, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(PluginError, match=said):
        load_plugins([Path(path) for path in paths], environment)


def test_every_plugin_file_of_a_folder_is_loaded_and_reported(tmp_path):
    write(tmp_path / "mine", "first.py", NATIVE.format(op="mine_first", version="1.10"), header=False)
    write(tmp_path / "mine", "second.py", LAYER.format(type="Silu", version="1024") + METRIC.format(version="2.5"))
    plugins = load_plugins([Path("mine")], {})
    assert [plugin.name for plugin in plugins] == ["first", "second"]
    assert plugins[0].origin == "mine/first.py"
    assert plugins[0].operators == ("mine_first",)
    assert plugins[0].versions == ("1.10",)
    assert (plugins[1].operators, plugins[1].metrics) == (("Silu",), ("TopKMetric",))
    assert plugins[1].versions == ("2.5", "1024")
    entry = REGISTRY.find("mine_first", "reference")
    assert entry is not None
    assert entry.origin == "mine/first.py"
    assert load_plugins([Path("mine")], {}) == plugins


def test_a_plugin_that_replaces_a_built_in_is_announced(tmp_path):
    file = write(tmp_path, "own_add.py", NATIVE.format(op="add", version="1.0"), header=False)
    load_plugins([file], {})
    assert [str(entry) for entry in REGISTRY.replacements()] == ["add.reference 1 (own_add.py)"]


@pytest.mark.parametrize(("version", "runs"), [("0.9", False), ("1.0", True), ("1.10", True)])
@pytest.mark.parametrize("platform", [None, "compass"])
def test_only_an_equal_or_higher_version_replaces_a_built_in(tmp_path, version, runs, platform):
    text = NATIVE.format(op="add", version=version).replace(")\n", f", platform={platform!r})\n", 1)
    load_plugins([write(tmp_path, "own_add.py", text, header=False)], {})
    entry = REGISTRY.find("add", "reference", "compass")
    assert entry is not None
    assert (entry.origin == "own_add.py") is runs


@pytest.mark.parametrize("low_first", [True, False])
def test_the_higher_version_runs_compared_numerically(tmp_path, low_first):
    names = ["low.py", "high.py"] if low_first else ["high.py", "low.py"]
    for name, version in zip(["low.py", "high.py"], ["1.9", "1.10"], strict=True):
        write(tmp_path, name, NATIVE.format(op="mine", version=version), header=False)
        write(tmp_path, f"metric_{name}", METRIC.format(version=version))
    load_plugins([Path(name) for name in names] + [Path(f"metric_{name}") for name in names], {})
    entry = REGISTRY.find("mine", "reference")
    assert entry is not None
    assert entry.version == parse_version("1.10")
    assert CLASSES.get(PluginType.Metric, "topkmetric").cls.label == "1.10"


@pytest.mark.parametrize(
    "text",
    [NATIVE.format(op="twice", version="1.0"), LAYER.format(type="Silu", version="1.0"), METRIC.format(version="1.0")],
    ids=["native", "layer", "metric"],
)
def test_two_plugins_of_equal_version_are_an_error_that_names_both(tmp_path, text):
    write(tmp_path, "one.py", text)
    write(tmp_path, "two.py", text.replace("'1.0'", "'1'"))
    load_plugins([Path("one.py")], {})
    before = snapshot()
    with pytest.raises(PluginError, match=r"(?s)two\.py.*one\.py.*Raise one version") as caught:
        load_plugins([Path("two.py")], {})
    assert "two.py" in str(caught.value)
    assert snapshot() == before


FAULTS = {
    "syntax": ("def broken(:\n    pass", "SyntaxError", 2),
    "exception": ("\nraise ValueError('no such table')", "ValueError: no such table", 3),
    "exit": ("import sys\nsys.exit(3)", "SystemExit: 3", 3),
    "module": (
        "import AIPUBuilder.Optimizer.util",
        "ModuleNotFoundError.*Did you mean 'AIPUBuilder.Optimizer.utils'",
        2,
    ),
    "name": ("from AIPUBuilder.Optimizer.framework import op_registre", "ImportError.*op_registre", 2),
    "type": ("from AIPUBuilder.Optimizer.framework import *\nOpType.Convolutoin", "Did you mean 'Convolution'", 3),
    "not a type": ("from AIPUBuilder.Optimizer.framework import *\nop_register('Silu')", "must be a layer type", 3),
    "version": ("from AIPUBuilder.Optimizer.framework import *\nop_register(OpType.Silu, 'one')", "version 'one'", 3),
    "fatal": ("from AIPUBuilder.Optimizer.logger import *\nOPT_FATAL('100% wrong')", "100% wrong", 3),
    "metric": (
        "from AIPUBuilder.Optimizer.framework import *\n@register_plugin(PluginType.Metric, 1)\nclass M: ...",
        "metric M: must inherit from OptBaseMetric",
        3,
    ),
    "dataset": (
        "from AIPUBuilder.Optimizer.framework import *\n@register_plugin(PluginType.Dataset, 1)\nclass D: ...",
        "dataset D: must define __len__ and __getitem__",
        3,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_import_error_names_file_line_and_exception(tmp_path, fault):
    text, said, line = FAULTS[fault]
    write(tmp_path, "plugin/aipubt_bad.py", f"X = 1\n{text}\n", header=False)
    with pytest.raises(PluginError, match=f"^plugin/aipubt_bad.py:{line}: .*{said}"):
        load_plugins([], {})


def test_a_plugin_failing_late_registers_nothing_and_fails_again(tmp_path):
    write(tmp_path, "fine.py", NATIVE.format(op="fine", version="1.0"), header=False)
    text = (
        LAYER.format(type="Silu", version="3.0") + METRIC.format(version="1.0") + NATIVE.format(op="half", version="1")
    )
    bad = write(tmp_path, "bad.py", "\nimport helper_of_bad\nregister_optype('HalfDone')" + text + "\n1 / 0\n")
    write(tmp_path, "helper_of_bad.py", "", header=False)
    load_plugins([Path("fine.py")], {})
    before = snapshot()
    for _ in range(2):
        with pytest.raises(PluginError, match=r"bad\.py:\d+: ZeroDivisionError"):
            load_plugins([bad], {})
        assert snapshot() == before
        assert "helper_of_bad" not in sys.modules
    assert REGISTRY.find("half", "reference") is None
    assert not hasattr(OpType, "HalfDone")


def test_a_file_with_a_colliding_metric_registers_none(tmp_path):
    load_plugins([write(tmp_path, "one.py", METRIC.format(version="1.0"))], {})
    both = METRIC.format(version="1.0").replace("TopKMetric", "AnotherMetric") + METRIC.format(version="1.0")
    with pytest.raises(PluginError, match=r"two\.py.*one\.py registers TopKMetric with the same version"):
        load_plugins([write(tmp_path, "two.py", both)], {})
    assert CLASSES.names(PluginType.Metric) == ["TopKMetric"]


def test_built_ins_survive_a_failing_plugin(tmp_path):
    with pytest.raises(PluginError):
        load_plugins([write(tmp_path, "bad.py", "import quantizer.ops.add\nraise ValueError\n", header=False)], {})
    assert REGISTRY.find("add", "reference") is not None


def test_the_layer_answers_only_while_a_plugin_loads(tmp_path):
    load_plugins([write(tmp_path, "one.py", LAYER.format(type="Silu", version="1.0"))], {})
    with pytest.raises(ModuleNotFoundError):
        import AIPUBuilder  # noqa: F401
    assert not [name for name in sys.modules if name.startswith("AIPUBuilder")]


@pytest.mark.parametrize("loaded", [False, True])
def test_an_installed_aipubuilder_next_to_ours_is_an_error(tmp_path, monkeypatch, loaded):
    real = write(tmp_path / "site", "AIPUBuilder/__init__.py", "", header=False)
    plugin = write(tmp_path, "one.py", LAYER.format(type="Silu", version="1.0"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    if loaded:
        import AIPUBuilder  # noqa: F401
    with pytest.raises(PluginError, match=r"(?s)one\.py:\d+: .*real one.*quantizer\.plugins\.aipu") as caught:
        load_plugins([plugin], {})
    assert str(real) in str(caught.value)
    native = write(tmp_path, "native.py", NATIVE.format(op="fine", version="1.0"), header=False)
    assert load_plugins([native], {})[0].operators == ("fine",)


def install(site: Path, monkeypatch: pytest.MonkeyPatch, code: str, entry: str = "vendor_ops") -> None:
    write(site, "vendor_ops/__init__.py", code, header=False)
    write(
        site,
        "vendor_ops-1.2.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: vendor-ops\nVersion: 1.2\n",
        header=False,
    )
    write(site, "vendor_ops-1.2.dist-info/entry_points.txt", f"[quantizer.operators]\nvendor = {entry}\n", header=False)
    monkeypatch.syspath_prepend(str(site))


SPECS = "from importlib.resources import files\nSPECS = files(__name__) / 'specs'\n"


@pytest.mark.parametrize("named", [SPECS, SPECS.replace("SPECS", "specs"), "from vendor_ops import specs\n"])
def test_an_entry_point_registers_under_its_distribution_and_brings_specs(tmp_path, monkeypatch, named):
    (tmp_path / "vendor_ops" / "specs").mkdir(parents=True)
    write(tmp_path, "vendor_ops/specs/__init__.py", "", header=False)
    code = named + "from quantizer.ops import operator\n@operator('vendor_thing')\ndef reference(x):\n    return x\n"
    install(tmp_path, monkeypatch, code)
    (plugin,) = load_plugins([], {})
    assert (plugin.name, plugin.origin, plugin.operators) == ("vendor", "vendor-ops", ("vendor_thing",))
    assert spec_folders([plugin, plugin]) == [tmp_path / "vendor_ops" / "specs"]
    entry = REGISTRY.find("vendor_thing", "reference")
    assert entry is not None
    assert entry.origin == "vendor-ops"


@pytest.mark.parametrize(
    ("code", "entry", "said"),
    [
        ("import json\nraise KeyError('x')\n", "vendor_ops", r"vendor_ops/__init__\.py:2: KeyError: 'x'"),
        ("import sys\nsys.exit('done')\n", "vendor_ops", "SystemExit: done"),
        ("x = (\n", "vendor_ops", r"__init__\.py:1: SyntaxError"),
        ("", "vendor_oops", "ModuleNotFoundError.*vendor_oops"),
        ("", "vendor_ops:nothing", "AttributeError.*nothing"),
        ("SPECS = 'nowhere'", "vendor_ops", "SPECS names nowhere, which is not a folder"),
    ],
)
def test_a_failing_entry_point_names_distribution_place_and_exception(tmp_path, monkeypatch, code, entry, said):
    install(tmp_path, monkeypatch, code, entry)
    before = snapshot()
    for _ in range(2):
        with pytest.raises(PluginError, match=rf"plugin vendor-ops.*{said}"):
            load_plugins([], {})
    assert snapshot() == before
    assert "vendor_ops" not in sys.modules


def test_plugins_may_import_each_other(tmp_path):
    write(tmp_path, "plugin/aipubt_a.py", "from aipubt_b import LIMIT\n" + LAYER.format(type="Silu", version="1"))
    write(tmp_path, "plugin/aipubt_b.py", "\nLIMIT = 3\n" + LAYER.format(type="Gemm", version="1"))
    plugins = load_plugins([], {})
    assert sorted(str(item.type) for item in loading.LAYERS) == ["OpType.Gemm", "OpType.Silu"]
    assert [plugin.name for plugin in plugins] == ["aipubt_a", "aipubt_b"]


@pytest.mark.parametrize("name", ["aipubt_a", "aipubt_b"])
def test_a_plugin_is_compiled_from_source_ignoring_cached_bytecode(tmp_path, name):
    """The statement names the source, and Python would never check an UNCHECKED_HASH file against it."""
    write(tmp_path, "plugin/aipubt_a.py", "import aipubt_b\nX = 1\n")
    write(tmp_path, "plugin/aipubt_b.py", "X = 1\n")
    source = tmp_path / f"plugin/{name}.py"
    other = tmp_path / "other.py"
    other.write_text("X = 2\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), cache_from_source(str(source)), invalidation_mode=unchecked)
    load_plugins([], {})
    assert sys.modules[name].X == 1


def test_two_files_of_one_name_are_two_plugins(tmp_path):
    for folder, kind in (("one", "Silu"), ("two", "Gemm")):
        write(tmp_path / folder, "aipubt_op.py", LAYER.format(type=kind, version="1"))
    path = os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two")])
    assert [plugin.operators for plugin in load_plugins([], {"AIPUPLUGIN_PATH": path})] == [("Silu",), ("Gemm",)]


DATASET = dedent("""
    import numpy as np

    @register_plugin(PluginType.Dataset, '1.0')
    class NpyRows(torch.utils.data.Dataset):
        def __init__(self, data_file, label_file=None):
            self.rows = np.load(data_file, allow_pickle=False)

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return [[self.rows[index]], float("-inf")]
""")


def test_datasets_and_metrics_are_found_by_name_in_any_case(tmp_path):
    (plugin,) = load_plugins(
        [write(tmp_path, "aipubt_opt_dataset_rows.py", DATASET + METRIC.format(version="1.0"))], {}
    )
    assert (plugin.datasets, plugin.metrics, plugin.operators) == (("NpyRows",), ("TopKMetric",), ())
    assert CLASSES.get(PluginType.Dataset, "npyROWS").name == "NpyRows"
    assert CLASSES.names(PluginType.Dataset) == ["NpyRows"]
    with pytest.raises(UnsupportedError, match="metric 'TopK': no such metric.*TopKMetric"):
        CLASSES.get(PluginType.Metric, "TopK")


@pytest.mark.parametrize(
    "text", ["-1.0", "\u0662.\u0660", "1.0rc1", "", "1_0", " 2", "9" * 5000, "1." * 20 + "1", "1..2"]
)
def test_a_version_is_numbers_joined_by_dots(text):
    with pytest.raises(PluginError, match="must be numbers joined by dots") as raised:
        parse_version(text)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("name", ["double\n::error::x\x1b[2J", 7, "", "Double"])
def test_operator_names_must_be_valid_in_specs(name):
    """It stands in the lines of a run, in records and in names of files."""
    with pytest.raises(PluginError, match="must be snake_case") as raised, REGISTRY.loading("a plugin"):
        operator(name, kind="reference")(lambda x: x)
    assert str(raised.value).isprintable()
