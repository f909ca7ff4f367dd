"""The check `pipeline` runs in the plugin process: an error fails only its own item, with a one-line reason."""

import json

import pytest
from test_isolation import records

from quantizer.cli import main

HEAD = """\
import os
import sys
import time
import traceback
from pathlib import Path

from quantizer.ops import REGISTRY, load_built_ins, operator

load_built_ins()


def flows():
    return any(f.f_code.co_filename.endswith("compass/flow.py") for f, _ in traceback.walk_stack(None))

"""
FUNCTION = """
ours = REGISTRY.built_in("relu", "quantized", "compass").function


@operator("relu", version="9.0")
def quantized(*operands, parameters, **attrs):
    right = ours(*operands, parameters=parameters, **attrs)
    if not flows():
        return right
    Path("flow_of_relu").touch()
    {body}
    return {result}
"""
PATCH_JUDGE = (
    "import quantizer.conformance.checks.pipeline as p, quantizer.conformance.judging.judge as j; p.np.argwhere = lambda _: [];"
    " p.failure = p.passed; j.FUNCTIONS['pipeline'] = lambda _: None"
)
PATCH_FLOW = "import quantizer.runtime.isolation.worker as w; w.loaded = lambda _: lambda *_, **__: {}"
UNSUPPORTED = "from quantizer.core.errors import UnsupportedError; raise UnsupportedError('not built here')"
REFUSED = "from quantizer.core.errors import RefusedError; raise RefusedError('no such case')"
WRONG = {
    "off by one": ("", "right + 1", "codes differ, first at"),
    "crashes": ("__import__('ctypes').string_at(0)", "right", "its process was killed by SIGSEGV"),
    "exits": ("os._exit(0)", "right", "its process ended with exit code 0"),
    "leaves": ("sys.exit(0)", "right", "SystemExit"),
    "hangs": ("time.sleep(600)", "right", "its process did not answer within 5 s"),
    "patches the judge": (PATCH_JUDGE, "right + 1", "codes differ"),
    "does not support it": (UNSUPPORTED, "right", "not built here"),
    "refuses": (REFUSED, "right", "no such case"),
    "skips": ("__import__('pytest').skip('today')", "right", "Skipped: today"),
    "answers with text": (PATCH_FLOW.format("'pass'"), "right", "the flow gives str: codes are integers"),
    "answers with floats": (PATCH_FLOW.format("right.float()"), "right", "the flow gives torch.float32"),
    "answers with nothing": (PATCH_FLOW.format("None"), "right", "the flow gives NoneType"),
    "answers with a handle": (PATCH_FLOW.format("type('Verdict', (), {})()"), "right", "the flow gives Verdict"),
    "raises in its place": ("import quantizer.platforms.compass.flow as f; f.parse_cfg = None", "right", "TypeError"),
}


def attacked(vendor, name, *words):
    """Judge a plugin's relu, which is right but for the pipeline."""
    body, result, _ = WRONG.get(name, ("pass", "right", ""))
    source = HEAD + FUNCTION.format(body=body or "pass", result=result)
    (vendor.root / "my_plugins").mkdir(exist_ok=True)
    (vendor.root / "my_plugins/relu.py").write_text(source)
    (vendor.root / "flow_of_relu").unlink(missing_ok=True)
    return vendor.pytest(
        "--op-shipped=relu", "--op-plugins=my_plugins", "-k", "relu-a8-compass", "-p", "no:cacheprovider", *words
    )


def judged(vendor, name):
    done = attacked(vendor, name, "--op-plugin-timeout=5", "-p", "no:xdist")
    assert (vendor.root / "flow_of_relu").exists(), "the flow calls the plugin's function in the process of plugins"
    (record,) = records(vendor.root).values()
    check = record["checks"]["pipeline"]
    if name not in WRONG:
        assert done.ret == 0, done.outlines
        assert check["passed"] > 0 and check["elements"] > 0 and not check.get("failed")
        return
    assert done.ret == 1, done.outlines
    assert record["outcome"] == "failed" and check["failed"] > 0, check
    assert WRONG[name][2] in record["failure"] and len(record["failure"].splitlines()) == 1, record["failure"]
    facts = json.loads((vendor.root / "reports/out/run.json").read_text())
    assert facts["lacks"] == []
    assert main(["report", "show", str(vendor.root / "reports/out"), "--check"]) == 1


@pytest.mark.parametrize("name", ["right", "off by one", "crashes", "does not support it", "answers with text"])
def test_the_pipeline_of_a_plugin_runs_in_its_process(vendor, name):
    judged(vendor, name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plugin_fails_only_its_own_pipeline_check(vendor, name):
    judged(vendor, name)
