"""Matrix products: on floats, on codes with exact sums, on codes with requantization."""

from __future__ import annotations

from typing import Any

from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Graph, Result
from quantizer.lang.tensor import Numbers, Tensor

SUMS = ("int32", "uint32")


def _matrix(left: bool, right: bool, output: bool, keep: bool) -> dict[str, Any]:
    flags = {"input_transpose": left, "right_transpose": right, "output_transpose": output, "keep_dims": keep}
    for argument, value in flags.items():
        a.boolean(argument, value)
    return {
        "right_transpose": right,
        "left_transpose": left,
        "output_transpose": output,
        "hdim_is_batch": False,
        "keep_dims": keep,
        "do_relu": False,
        "relu_limit": -1.0,
    }


@operator("NN/matrix")
def matmul(
    input: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    input_transpose: bool = False,
    right_transpose: bool = False,
    output_transpose: bool = False,
    keep_dims: bool = True,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Multiply matrices of floats, numpy.matmul after the transposes; keep_dims False makes the result a matrix."""
    a.tensor("input", input, a.FLOATS)
    a.tensor("right", right, (input.dtype,))
    a.optional("bias", bias, (input.dtype,))
    if out_dtype is not None:
        a.one_of("out_dtype", out_dtype, (input.dtype,))
    attrs = _matrix(input_transpose, right_transpose, output_transpose, keep_dims)
    return get_default_graph().add("top.MatMul", [input, right, bias], attrs, Result(input.dtype), out_name=out_name)[0]


@operator("NN/matrix")
def matmul_int(
    input: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    input_transpose: bool = False,
    right_transpose: bool = False,
    output_transpose: bool = False,
    keep_dims: bool = True,
    input_zp: Numbers = None,
    right_zp: Numbers = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Multiply matrices of codes minus their zero points, with exact int32 sums."""
    graph, kind = (
        _matmul_codes(input, right, bias, input_zp, right_zp),
        a.one_of("out_dtype", out_dtype or "int32", SUMS),
    )
    for argument, tensor, zero in (("input", input, input_zp), ("right", right, right_zp)):
        if zero is None and not tensor.is_quantized:
            raise LangError(f"{argument}_zp is None and {argument} is not quantized: must be given, 0 for none.")
        graph.quantize(tensor, None, zero)
    attrs = _matrix(input_transpose, right_transpose, output_transpose, keep_dims)
    return graph.add("top.MatMul", [input, right, bias], attrs, Result(kind), out_name=out_name)[0]


def _matmul_codes(x: Tensor, right: Tensor, bias: Tensor | None, *zeros: Numbers) -> Graph:
    a.tensor("input", x, a.CODES)
    a.tensor("right", right, a.CODES)
    a.optional("bias", bias, ("int32",))
    for argument, zero in zip(("input_zp", "right_zp"), zeros, strict=True):
        a.single(argument, zero)
    return get_default_graph()


@operator("NN/matrix")
def matmul_quant(
    input: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    right_transpose: bool = False,
    keep_dims: bool = True,
    input_scale: Numbers = None,
    right_scale: Numbers = None,
    output_scale: Numbers = None,
    input_zp: Numbers = None,
    right_zp: Numbers = None,
    output_zp: Numbers = None,
    out_dtype: str = "int8",
    out_name: str | None = None,
) -> Tensor:
    """Requantize the sums of `matmul_int` by the rule of `conv_quant`; every scale is one number."""
    graph, kind = _matmul_codes(input, right, bias, input_zp, right_zp), a.one_of("out_dtype", out_dtype, a.CODES)
    given = {
        "input_scale": input_scale,
        "right_scale": right_scale,
        "output_scale": output_scale,
        "output_zp": output_zp,
    }
    for argument, value in given.items():
        a.single(argument, value)
    if output_scale is None:
        raise LangError("output_scale is None: must be given.")
    for argument, tensor, scale, zero in (
        ("input", input, input_scale, input_zp),
        ("right", right, right_scale, right_zp),
    ):
        if scale is None and tensor.scale is None:
            raise LangError(f"{argument}_scale is None and {argument} has no scale: must be given.")
        graph.quantize(tensor, scale, zero)
    attrs = _matrix(left=False, right=right_transpose, output=False, keep=keep_dims)
    result = Result(kind, scale=output_scale, zero_point=0 if output_zp is None else output_zp)
    return graph.add("top.MatMul", [input, right, bias], attrs, result, out_name=out_name)[0]
