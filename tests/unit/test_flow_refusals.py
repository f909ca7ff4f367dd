"""What our own flow does not support is inconclusive, also where a plugin's process runs it; a plugin cannot claim it."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantizer.core.errors import UnsupportedError
from quantizer.core.shield import is_from_shielded, shielded


def _refuses() -> None:
    raise UnsupportedError("no form for it")


@pytest.mark.parametrize(("function", "expected"), [(_refuses, False), (shielded(_refuses), True)])
def test_an_error_of_a_plugin_function_is_distinguished_from_ours(function, expected: bool) -> None:
    with pytest.raises(UnsupportedError) as caught:
        function()
    assert is_from_shielded(caught.value) is expected


PLUGIN = """
from quantizer.ops import REGISTRY, operator

@operator("layer_norm", version="99.0")
def quantized(*operands, parameters, **named):
    return REGISTRY.built_in("layer_norm", "quantized", parameters.platform.places).function(
        *operands, parameters=parameters, **named
    )
"""


@pytest.mark.nightly
def test_a_plugin_calling_the_builtin_layer_norm_passes_on_compass(pytester) -> None:
    spec = Path(__file__).parents[2] / "op_specs" / "layer_norm.yaml"
    file = pytester.makepyfile(plugin_norm=PLUGIN)
    run = pytester.runpytest_subprocess(str(spec), f"--op-plugins={file}", "-q", "-k", "layer_norm-w8a8s-compass")
    run.assert_outcomes(passed=1)
