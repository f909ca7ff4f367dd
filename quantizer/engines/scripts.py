"""Writes stand-alone scripts for engines without a room. Each script uses the engine's own API as its worker does."""

from __future__ import annotations

import json
from collections.abc import Mapping

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.engines.forms.onnx_source import IMPORTS, model_lines
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.scripts import Source, feeds_text, listed, packed

_VERSION = "from importlib.metadata import version"
_ONNX = "onnx {onnx.__version__}"
_IN_FILE = (
    'path = os.path.join(tempfile.mkdtemp(), "case.onnx")',
    "onnx.save(made, path)",
)


def openvino(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs the model on the CPU plugin, in float32 where it does not compute in integers."""
    return Source(
        (IMPORTS[0], "import openvino", IMPORTS[1]),
        ("openvino {openvino.__version__}", _ONNX),
        (
            *model_lines(job, known),
            "core = openvino.Core()",
            'config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}',
            'compiled = core.compile_model(core.read_model(model, b""), "CPU", config)',
            f"got = next(iter(compiled({feeds_text(job.feeds, known)}).values()))",
        ),
    )


def onnx_reference(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs the model in the standard's own evaluator, of opset 21 at least."""
    return Source(
        (*IMPORTS, "from onnx import version_converter", "from onnx.reference import ReferenceEvaluator"),
        (_ONNX,),
        (
            *model_lines(job, known),
            "if made.opset_import[0].version < 21:",
            "    made = version_converter.convert_version(made, 21)",
            f"got = ReferenceEvaluator(made).run(None, {feeds_text(job.feeds, known)})[0]",
        ),
    )


def tract(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs the model, which tract reads from a file."""
    return Source(
        ("import tempfile", IMPORTS[0], "import tract", IMPORTS[1]),
        ("tract {tract.version()}", _ONNX),
        (
            *model_lines(job, known),
            *_IN_FILE,
            "session = tract.onnx().load(path).into_model().into_runnable()",
            f"got = session.run({listed(job.feeds, known)})[0].to_numpy()",
        ),
    )


def tvm(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script compiles the model with LLVM and runs it."""
    return Source(
        (
            IMPORTS[0],
            "import tvm",
            IMPORTS[1],
            "from tvm import relax",
            "from tvm.relax.frontend.onnx import from_onnx",
        ),
        ("tvm {tvm.__version__}", _ONNX),
        (
            *model_lines(job, known),
            "imported = relax.transform.LegalizeOps()(from_onnx(made, keep_params_in_input=False))",
            'machine = relax.VirtualMachine(tvm.compile(imported, target="llvm"), tvm.cpu())',
            f'got = machine["main"](*(tvm.runtime.tensor(v) for v in {listed(job.feeds, known)})).numpy()',
        ),
    )


def iree(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script imports, compiles and runs the model in one thread."""
    return Source(
        (
            "import tempfile",
            _VERSION,
            IMPORTS[0],
            "from iree import compiler, runtime",
            "from iree.compiler.tools.import_onnx import __main__ as importer",
            IMPORTS[1],
        ),
        ("iree-base-runtime {version('iree-base-runtime')}", _ONNX),
        (
            *model_lines(job, known),
            *_IN_FILE,
            'importer.main(importer.parse_arguments([path, "-o", path + ".mlir"]))',
            'binary = compiler.compile_file(path + ".mlir", input_type="onnx", target_backends=["llvm-cpu"],',
            '                               extra_args=["--iree-llvmcpu-target-cpu=host"])',
            'run = runtime.load_vm_flatbuffer(binary, driver="local-sync")["one"]',
            f"got = np.array(run(*{listed(job.feeds, known)}))",
        ),
    )


def tflite_micro(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs the file on the kernels for microcontrollers."""
    return Source(
        (_VERSION, "from tflite_micro.python.tflite_micro import runtime"),
        ("tflite-micro {version('tflite-micro')}",),
        (
            *packed("model", job.model),
            "interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 24)",
            f"for place, values in enumerate({listed(job.feeds, known)}):",
            "    interpreter.set_input(np.asarray(values, order='C'), place)",
            "interpreter.invoke()",
            "got = interpreter.get_output(0)",
        ),
    )


_BINARY = {"add": 0, "sub": 1, "mul": 2, "div": 3}
_UNARY = {"abs": 0, "square": 4, "sqrt": 5, "rsqrt": 6, "exp": 7, "log": 8, "sine": 9, "cosine": 10, "atan": 14}
NCNN = {
    **{op: f"BinaryOp 0={number}" for op, number in _BINARY.items()},
    **{op: f"UnaryOp 0={number}" for op, number in _UNARY.items()},
    "reciprocal": "UnaryOp 0=15",
    "sigmoid": "Sigmoid",
    "tanh": "TanH",
    "silu": "Swish",
    "mish": "Mish",
    "erf": "Erf",
    "relu": "ReLU",
}
"""Operator -> its layer in a .param file: layers without weights."""


def ncnn(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs one layer on float32 values; UnsupportedError for a layer with weights or windows."""
    made = json.loads(job.model)
    if made["op"] not in NCNN:
        raise UnsupportedError(f"engine ncnn: no script runs {made['op']}")
    names, rank = list(known), len(made["output"]["shape"])
    kind, _, numbers = NCNN[made["op"]].partition(" ")
    rows = [f"Input {name} 0 1 {name}" for name in names]
    rows.append(f"{kind} one {len(names)} 1 {' '.join(names)} y {numbers}".rstrip())
    fed = []
    for name in names:
        shape = (1,) * (rank - known[name].ndim) + known[name].shape or (1,)  # a Mat needs at least one axis
        fed += [
            f"{name}_real = np.float32(s_{name}) * ({name}.astype(np.int64) - z_{name}).astype(np.float32)",
            f'extractor.input("{name}", ncnn.Mat({name}_real.reshape({list(shape)})).clone())',
        ]
    lowest, highest = made["output"]["lowest"], made["output"]["highest"]
    return Source(
        ("import ncnn",),
        ("ncnn {ncnn.__version__}",),
        (
            "net = ncnn.Net()",
            "net.opt.num_threads = 1",
            f"rows = {['7767517', f'{len(rows)} {len(names) + 1}', *rows]}",
            'net.load_param_mem("\\n".join(rows) + "\\n")',
            "net.load_model_mem(bytes(4))",
            "extractor = net.create_extractor()",
            *fed,
            f"y = np.array(extractor.extract('y')[1]).reshape({made['output']['shape']})",
            'print("float   ", y.ravel()[:8])',
            f"got = np.clip(np.rint(y / np.float32(s_y)) + z_y, {lowest}, {highest})",
        ),
    )


MNN = {
    **{name: f"F.{name}(x)" for name in ("exp", "erf", "log", "rsqrt", "sigmoid", "softplus", "sqrt", "tanh")},
    "elu": "F.elu(x, {alpha})",
    "softmax": "F.softmax(x, {axis})",
}
"""Operator of one operand -> MNN's expression."""


def mnn(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script reads one expression of float32 values; UnsupportedError for other operators."""
    made = json.loads(job.model)
    if made["op"] not in MNN:
        raise UnsupportedError(f"engine mnn: no script runs {made['op']}")
    lowest, highest = made["output"]["lowest"], made["output"]["highest"]
    return Source(
        ("import MNN", "import MNN.expr as F"),
        ("MNN {MNN.version()}",),
        (
            "x_real = np.float32(s_x) * (x.astype(np.int64) - z_x).astype(np.float32)",
            f"x = F.const(x_real, {list(known['x'].shape)}, F.NCHW, F.float)",
            f"y = np.array({MNN[made['op']].format(**made['attrs'])}.read()).reshape({made['output']['shape']})",
            'print("float   ", y.ravel()[:8])',
            f"got = np.clip(np.rint(y / np.float32(s_y)) + z_y, {lowest}, {highest})",
        ),
    )


EXECUTORCH = {"add": "a + b", "sub": "a - b", "mul": "a * b", "abs": "torch.abs(x)", "relu": "torch.relu(x)"}
"""Operator -> torch's expression."""


def executorch(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script lowers one expression of 8-bit codes to XNNPACK; UnsupportedError for other operators."""
    made = json.loads(job.model)
    names = list(known)
    ends = {name: f"{side['lowest']}, {side['highest']}" for name, side in made["inputs"].items()}
    if made["op"] not in EXECUTORCH or made["activation"] != "none":
        raise UnsupportedError(f"engine executorch: no script runs {made['op']}")
    lowest, highest = made["output"]["lowest"], made["output"]["highest"]
    return Source(
        (
            _VERSION,
            "import executorch.kernels.quantized",
            "import torch",
            "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner",
            "from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower",
            "from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer",
            "from torch.ao.quantization.fx import _decomposed",
        ),
        ("executorch {version('executorch')}",),
        (
            "Q = torch.ops.quantized_decomposed",
            "class One(torch.nn.Module):",
            f"    def forward(self, {', '.join(names)}):",
            *(
                f"        {name} = Q.dequantize_per_tensor({name}, s_{name}, z_{name}, {ends[name]}, torch.int8)"
                for name in names
            ),
            f"        real = {EXECUTORCH[made['op']]}",
            f"        return Q.quantize_per_tensor(real, s_y, z_y, {lowest}, {highest}, torch.int8)",
            f"given = ({', '.join(f'torch.from_numpy({name})' for name in names)},)",
            "config = EdgeCompileConfig(_check_ir_validity=False)",
            "exported = torch.export.export(One(), given)",
            "parts = [XnnpackPartitioner()]",
            "lowered = to_edge_transform_and_lower(exported, partitioner=parts, compile_config=config)",
            "file = lowered.to_executorch().buffer",
            'got = _load_for_executorch_from_buffer(file).run_method("forward", given)[0].numpy()',
        ),
    )
