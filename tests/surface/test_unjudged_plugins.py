"""A run judges or names everything that it loads, detects damage to the judge, and refuses missing names."""

import json

import pytest

from conftest import OFF_BY_ONE
from quantizer.cli import main

RELU = '''\
"""The vendor's relu."""
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("relu", version="{version}")
def quantized(x, *, parameters):
    """Cut at the zero point, round once."""
    return requantize_terms({{"x": centred(x, parameters.inputs["x"]).clamp(min=0)}}, parameters) + 1
'''
TAMPERS = {
    "judge": "from quantizer.conformance import items\nitems.judge = lambda trial, checks=(): []",
    "passing": (
        "from quantizer.conformance import items\nfrom quantizer.core.verdict import passed\n"
        "items.judge = lambda trial, checks=(): [passed(name, elements=9) for name in checks]"
    ),
    "failing": "from quantizer.core.verdict import Verdict\nVerdict.failing = property(lambda self: False)",
    "count": "import numpy as np\nnp.count_nonzero = lambda *a, **k: 0",
    "elements": (
        "from quantizer.core.verdict import passed\nfrom quantizer.conformance.checks import arithmetic, accuracy, float_forward, parameters\n"
        "from quantizer.conformance import judge\n"
        "judge.FUNCTIONS = {name: lambda trial, name=name: passed(name, elements=9) for name in judge.FUNCTIONS}"
    ),
    "report": (
        "from _pytest import runner\nfrom quantizer.conformance import items\n"
        "import pytest\npytest.fail = lambda *a, **k: None"
    ),
}


def facts(root):
    return json.loads((root / "reports/out/run.json").read_text())


@pytest.mark.parametrize("name", TAMPERS)
def test_a_plugin_that_damages_the_judge_ends_the_run_as_an_error(vendor, name):
    """The plugin patches the judge at import and again at the first call; the end of the run finds the damage."""
    vendor.write(result=OFF_BY_ONE)
    plugin = vendor.root / "my_plugins/double.py"
    tamper = "\n    ".join(TAMPERS[name].splitlines())
    body = f'"""Double, then round once."""\n    {tamper}'
    plugin.write_text(plugin.read_text().replace('"""Double, then round once."""', body))
    result = vendor.run("-k", "a8-ideal", "-p", "no:xdist")
    assert result.ret in (1, 3), result.stdout.str()
    out = vendor.root / "reports/out"
    assert main(["report", "show", str(out), "--check"]) in (1, 2)
    if result.ret == 3:
        result.stdout.fnmatch_lines(["not whole: the judge was damaged: it calls a fault that was planted in * right."])


@pytest.mark.parametrize("words", [("-p", "no:xdist"), ("-n", "1")])
def test_an_undamaged_judge_lacks_nothing(vendor, words):
    vendor.write()
    result = vendor.run("-k", "a8-ideal", *words)
    assert result.ret == 0, result.stdout.str()
    assert facts(vendor.root)["lacks"] == []
    assert {one["standing"] for one in facts(vendor.root)["functions"]} == {"judged"}


def test_a_function_that_claims_to_be_builtin_is_still_judged(vendor):
    vendor.write(result=OFF_BY_ONE)
    plugin = vendor.root / "my_plugins/double.py"
    text = plugin.read_text()
    plugin.write_text(
        text.replace('@operator("double")\ndef quantized', '@operator("double", origin="built-in")\ndef quantized')
    )
    result = vendor.run("-k", "a8-ideal")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*double.py*unexpected keyword argument 'origin'*"])
    lines = [
        "def quantized(x, *, parameters):",
        "    return x",
        'quantized.__module__ = "quantizer.ops.relu"',
        "from quantizer.ops.registry import BUILT_IN, REGISTRY, Registration",
        'REGISTRY.add(Registration("relu", "quantized", quantized, (9,), None, BUILT_IN))',
        'operator("relu", version="8.0")(quantized)',
    ]
    plugin.write_text(text.split("@operator")[0] + "\n".join(lines) + "\n")
    found = {one["name"]: one["origin"] for one in accounted(vendor, "relu-a8-ideal", "--op-shipped=relu")}
    assert found == {"relu.quantized 8": "my_plugins/double.py", "relu.quantized 9": "my_plugins/double.py"}


def accounted(vendor, keyword, *words):
    """Run items and return how the functions of plugins were accounted for."""
    vendor.run("-k", keyword, *words)
    return facts(vendor.root)["functions"]


def test_an_unused_version_is_named_and_fails_the_completeness_check(vendor, capsys):
    vendor.write()
    (vendor.root / "my_plugins/their_relu.py").write_text(RELU.format(version="0.5"))
    result = vendor.run("-k", "relu-a8-ideal or double-a8-ideal", "--op-shipped=relu")
    assert result.ret == 0
    line = "relu.quantized 0.5 (my_plugins/their_relu.py)"
    result.stdout.fnmatch_lines(
        [f"not judged: {line} never runs: relu.quantized 1 (built-in) runs in its place. Raise its version."]
    )
    assert main(["report", "show", str(vendor.root / "reports/out"), "--check"]) == 1
    assert f"check: not judged: {line}: relu.quantized 1 (built-in) runs in its place." in capsys.readouterr().err
    assert main(["report", "statement", str(vendor.root / "reports/out"), "-o", str(vendor.root / "s")]) == 0
    stated = json.loads((vendor.root / "s.json").read_text())
    assert [plugin["origin"] for plugin in stated["plugins"]] == ["my_plugins/double.py"]


def test_a_plugin_is_named_if_no_item_is_selected(vendor):
    vendor.write()
    (vendor.root / "my_plugins/their_relu.py").write_text(RELU.format(version="2.0"))
    (vendor.root / "empty").mkdir()
    result = vendor.pytest("empty", "-k", "conv", "--op-plugins=my_plugins", "--op-specs=my_specs")
    assert result.ret == 5
    result.stdout.fnmatch_lines(
        [
            "not judged: double.quantized 1 (my_plugins/double.py): no item of double ran.",
            "not judged: relu.quantized 2 (my_plugins/their_relu.py) replaces a built-in, * Add --op-shipped=relu.",
        ]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--op-plugins=nowhere"], "nowhere: no such file or folder"),
        (["--op-plugins=void"], "void: holds no plugin"),
        (["--op-plugins=idle"], "--op-plugins=idle: registers nothing"),
        (["--op-specs=nowhere"], "--op-specs=nowhere: no such file or folder"),
        (["--op-specs=void"], "--op-specs=void: holds no spec, platform or scheme"),
        (["--op-platform=idael"], "--op-platform=idael: no such name"),
        (["--op-platform=xnnpack"], "--op-platform=xnnpack: selects no item"),
        (["--op-scheme=w8a8"], "--op-scheme=w8a8: selects no item"),
    ],
)
def test_missing_paths_and_empty_selections_are_one_error(vendor, words, said):
    vendor.write()
    (vendor.root / "void").mkdir()
    (vendor.root / "idle").mkdir()
    (vendor.root / "idle/notes.py").write_text("X = 1\n")
    result = vendor.run(*words)
    assert result.ret == 4, result.stdout.str()
    assert len([line for line in result.errlines if line.startswith("ERROR:") and said in line]) == 1
