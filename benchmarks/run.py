"""Prints the speed table: every figure beside its target; ratios are measured within one run."""

from __future__ import annotations

import argparse
import gc
import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from tabulate import tabulate
from torch import nn

from quantizer.conformance.campaign.plan import UNIT, Plan
from quantizer.conformance.campaign.work import run_unit
from quantizer.conformance.generation.batches import RANGES, member
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import bits, key
from quantizer.conformance.generation.stacks import PARTS
from quantizer.conformance.judging.judge import judge, judged_once
from quantizer.conformance.judging.schedule import OF_BATCHES, Schedule
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import dtype
from quantizer.core.errors import EngineError, RefusedError
from quantizer.core.library import load_library
from quantizer.core.verdict import EVERY
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.graph import Graph
from quantizer.nn import Activation_fix, BatchNorm2d_fix, Conv2d_fix, default_fix_cfg
from quantizer.numerics.kernels import conv, linear
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.requantize import requantize
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.torch_executor import TorchExecutor

ROOT = Path(__file__).parent.parent
CASES = 200
ROUNDS = 15
BLOCK = {
    "conv": ["weight", "bias"],
    "bn": ["weight", "bias", "running_mean", "running_var"],
    "fix": ["activation"],
}
VALUE_CHECKS = ("parameters", "float", "arithmetic", "accuracy")
BATCHED = ("conv2d", "depthwise_conv2d", "matmul", "add", "sigmoid", "softmax", "layer_norm")
PLATFORMS = ("ideal", "compass", "ort")
STRUCTURES = 16
"""The number of structures that are timed for each operator and platform."""
WARM = 10
"""The number of first cases that are not counted, since a process computes some things only once."""
ENGINE_TARGETS = {"onnxruntime": "<= 1.5 ms", "litert": "<= 1 ms", "tosa": "<= 0.6 ms", "torch": "-"}


def main(arguments: Sequence[str] | None = None) -> None:
    # `kernels` measures oneDNN, which a session turns off, so it comes first.
    parts = (kernels, executor, training, cases, batches, campaign, engines, flow, suite)
    known = {part.__name__: part for part in parts}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"what is measured, all by default: {', '.join(known)}"
    )
    asked = parser.parse_args(arguments).parts
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"no part is called {unknown[0]!r}. Parts: {', '.join(known)}.")
    torch.set_num_threads(1)
    rows = [row for name, part in known.items() if name in asked or not asked for row in part()]
    sys.stdout.write(tabulate(rows, headers=["what", "measured", "target"]) + "\n")


def cases() -> list[tuple[str, str, str]]:
    """Measure one conv2d case through all value checks, on one core, and where its time goes."""
    session = open_session(Options(root=ROOT))
    spec, rows = session.library.spec("conv2d"), []
    for platform in ("ideal", "compass"):
        targets = [target for target in session.all_targets(spec) if target.platform.platform == platform]
        seconds, parts = [], dict.fromkeys(("build", "rule", "forward", *VALUE_CHECKS), 0.0)
        # processor time, because other processes on the machine stretch the elapsed time
        for seed, target in itertools.islice(enumerate(itertools.cycle(targets)), CASES):
            spent = {}
            clock = time.process_time()
            trial = Trial(target, build_case(target, HashChoices(key(seed, target.id), {})), session.engine)
            for name, step in (
                ("build", partial(getattr, trial, "tensors")),
                ("rule", partial(getattr, trial, "parameters")),
                ("forward", partial(getattr, trial, "refusal")),
                *((check, partial(judge, trial, (check,))) for check in VALUE_CHECKS),
            ):
                step()
                before, clock = clock, time.process_time()
                spent[name] = clock - before
            if seed >= WARM:
                seconds.append(sum(spent.values()))
                parts = {name: known + spent[name] for name, known in parts.items()}
        ordered, work = sorted(seconds), _fixed()
        median, late = statistics.median(ordered), ordered[int(0.95 * len(ordered))]
        text = f"{median * 1e3:.2f} ms median, {late * 1e3:.2f} ms p95 ({median / work:.1f} fixed workloads)"
        rows.append((f"one conv2d case on {platform}, all value checks, processor time", text, "<= 5 ms median"))
        shares = ", ".join(f"{name} {100 * part / sum(parts.values()):.0f} %" for name, part in parts.items())
        rows.append(("its time", shares, "-"))
    return rows


def batches() -> list[tuple[str, str, str]]:
    """Measure data sets per second on one core, as in a campaign, against the number that share a structure.

    Our functions take one case, so only data sets under one range share a call: they lie along one of its axes.
    """
    session, rows = open_session(Options(root=ROOT)), []
    gc.collect()
    gc.freeze()  # as a campaign's worker does: the garbage collector need not visit what lives as long as the process
    for op, platform in itertools.product(BATCHED, PLATFORMS):
        spec = session.library.spec(op)
        targets = [target for target in session.all_targets(spec) if target.platform.platform == platform]
        if not targets:
            continue
        rates = {}
        for ranges, sets in ((1, 1), (RANGES, 1), (1, PARTS), (RANGES, PARTS)):
            _batched(session, targets[:1], ranges, sets)
            work = _fixed()
            start = time.process_time()
            count = _batched(session, targets, ranges, sets)
            rates[ranges * sets] = count / (time.process_time() - start), work
        text = ", ".join(f"{size}: {rate:.0f}" for size, (rate, _) in rates.items())
        last, work = rates[RANGES * PARTS]
        target = {"ideal": ">= 4000", "compass": ">= 3000"}.get(platform, "-") if op == "conv2d" else "-"
        text += f" data sets/s ({1 / last / work:.2f} fixed workloads each)"
        rows.append((f"{op} on {platform}, of one structure", text, target))
    return rows


def _batched(session: Session, targets: Sequence[Target], ranges: int, sets: int) -> int:
    """Judge STRUCTURES structures over *targets*, each under so many *ranges*; return the data sets that were judged."""
    count = 0
    for index, target in itertools.islice(enumerate(itertools.cycle(targets)), STRUCTURES):
        checks = Schedule(target, EVERY, OF_BATCHES)
        for place in range(ranges):
            case = member(target, 1, index * RANGES + place, sets)
            judged_once(Trial(target, case, session.engine), checks.checks(case))
            count += len(case.data.sets)
    return count


def campaign() -> list[tuple[str, str, str]]:
    """Measure a batch of every operator on one of its targets in turn, as a campaign's worker runs it."""
    session = open_session(Options(root=ROOT))
    everything = [session.all_targets(spec) for spec in session.library.specs.values()]
    chosen = [targets[place % len(targets)].id for place, targets in enumerate(everything)]
    plan = Plan(tuple(chosen), None).to_json()
    run_unit(plan, 0, chosen[0], 1)
    work, start = _fixed(), time.process_time()
    for place, target in enumerate(chosen):
        run_unit(plan, place, target, UNIT)
    spent = time.process_time() - start
    rate, memory = UNIT * len(chosen) / spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    text = f"{rate:.0f} data sets/s ({spent / UNIT / len(chosen) / work:.2f} fixed workloads each), {memory:.0f} MB"
    return [("campaign, all operators, one core, processor time", text, ">= 2000/s")]


def _fixed() -> float:
    """Return the seconds of one fixed workload, now."""
    return min(_once(_fixed_work, 5, time.process_time) / 5 for _ in range(3))


def _fixed_work() -> None:
    """Run the workload by which machines are compared: numpy calls on small arrays, as checks make them."""
    values = np.arange(256.0)
    for _ in range(200):
        values = np.where(values > values.mean(), np.sqrt(np.abs(values)), values + 1.0)


def engines() -> list[tuple[str, str, str]]:
    """Measure what a real engine adds to a case: lowering, messages to its process and back, create, run."""
    rows = []
    for name, target in ENGINE_TARGETS.items():
        session = open_session(Options(root=ROOT, engine=name))
        seconds = []
        for where in session.targets(session.library.spec("conv2d")):
            if session.engine.supports(where.spec, where.scheme, where.platform) is not None:
                continue
            for seed in range(CASES):
                trial = Trial(
                    where, build_case(where, HashChoices(key(seed, where.id), {"tiles": "untiled"})), session.engine
                )
                operands, parameters = trial.codes, trial.parameters
                start = time.perf_counter()
                try:
                    session.engine.run(trial.call, operands, parameters)
                except (RefusedError, EngineError):  # a crash is a declared defect, and no latency
                    continue
                seconds.append(time.perf_counter() - start)
        median = f"{statistics.median(seconds[2:]) * 1e3:.2f} ms median" if seconds else "not installed"
        rows.append((f"{name}: one conv2d case, built, created and run", median, target))
    return rows


def flow() -> list[tuple[str, str, str]]:
    """Measure the Compass flow up to the quantized graph, in this process, on the recorded runs."""
    load_built_ins()
    library, rows = load_library(), []
    reference = ROOT / "cases" / "reference"
    for what, pattern, target in (
        ("Compass flow, one operator (median of recorded runs)", "compass/*/*/opt.cfg", "<= 50 ms"),
        ("Compass flow, network of seven layers", "compass_net/*/opt.cfg", "<= 1 s"),
    ):
        options = [read_cfg(path) for path in sorted(reference.glob(pattern))]
        times = [_once(lambda given=given: steps.quantized(given, library)) for given in (*options[:3], *options)]
        rows.append((what, f"{statistics.median(times[3:]) * 1e3:.0f} ms", target))
    return rows


def suite() -> list[tuple[str, str, str]]:
    """Measure the gate on conv, and collection alone, as a user starts them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    gate = _seconds([*command, "-k", "conv"])
    collect = min(_seconds([*command, "--collect-only"]) for _ in range(3))
    listed = subprocess.run([*command, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    items = sum("::" in line for line in listed.splitlines())
    return [
        ("pytest -k conv, gate profile", f"{gate:.1f} s", "<= 10 s"),
        (f"collection of {items} items", f"{collect:.2f} s", f"<= {1 + 0.0005 * items:.2f} s"),
    ]


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return time.perf_counter() - start


def kernels() -> list[tuple[str, str, str]]:
    """Measure exact integer kernels against torch float32 on the same shapes."""
    x, w = _codes("x", (1, 64, 56, 56)), _codes("w", (64, 64, 3, 3))
    point, dense = _codes("p", (64, 64, 1, 1)), _codes("d", (512, 512))
    rows = _codes("r", (512, 512))
    y = QParams(dtype("int8"), torch.tensor(0.5, dtype=torch.float64), torch.tensor(3), -128, 127)
    scale = torch.full((64,), 2.0**-14, dtype=torch.float64)
    numbers = Rescale("f32_even", scale, torch.zeros(64, dtype=torch.int64))
    pads, unit = [(1, 1), (1, 1)], {"stride": (1, 1), "dilation": (1, 1), "groups": 1}

    def whole() -> torch.Tensor:
        return requantize(conv(x, w, padding=pads, **unit), numbers, y, channel_axis=1)

    float_conv = [t.float() for t in (x, w, point, rows, dense)]
    fx, fw, fp, fr, fd = float_conv
    wide_x, wide_w = x.short() * 3, w.short() * 3
    return [
        (
            "int8 conv 64x56x56 -> 64 3x3 / float32",
            _ratio(lambda: conv(x, w, padding=pads, **unit), lambda: F.conv2d(fx, fw, padding=1)),
            "<= 0.45 (integer product)",
        ),
        (
            "the same on int16 codes, float32 kernel",
            _ratio(lambda: conv(wide_x // 3, wide_w // 3, padding=pads, **unit), lambda: F.conv2d(fx, fw, padding=1)),
            "<= 1.1",
        ),
        ("int8 conv with requantization / float32", _ratio(whole, lambda: F.conv2d(fx, fw, padding=1)), "<= 0.6"),
        (
            "int8 conv 1x1 / float32",
            _ratio(lambda: conv(x, point, padding=[(0, 0), (0, 0)], **unit), lambda: F.conv2d(fx, fp)),
            "<= 0.6",
        ),
        ("int8 linear 512 / float32", _ratio(lambda: linear(rows, dense), lambda: F.linear(fr, fd)), "<= 0.6"),
    ]


def executor() -> list[tuple[str, str, str]]:
    """Measure one convolution on 8-bit grids in the executor, with its preparation, against torch's own in float."""
    rows = []
    for x, w, target in (((1, 32, 28, 28), (32, 32, 3, 3), "<= 1.3x"), ((1, 3, 8, 8), (8, 3, 3, 3), "<= 5x")):
        values, weight = _codes("e", x).float() / 64, _codes("f", w).float() / 64
        bias = torch.zeros(w[0])
        file = _one_convolution(x, weight, bias)
        run = TorchExecutor(_quantized(file, values))
        ours, theirs = partial(run.forward, values), partial(F.conv2d, values, weight, bias, padding=1)
        rows.append((f"quantized executor, conv {list(x)} -> {w[0]} 3x3 / float32", _ratio(ours, theirs, 20), target))

    def whole() -> None:
        TorchExecutor(_quantized(file, values)).forward(values)

    seconds = statistics.median(_once(whole) for _ in range(ROUNDS))
    return [*rows, ("one node read, dispatched, quantized and run", f"{seconds * 1e3:.1f} ms", "<= 10 ms")]


def _one_convolution(shape: tuple[int, ...], weight: torch.Tensor, bias: torch.Tensor) -> onnx.ModelProto:
    made = (shape[0], weight.shape[0], *shape[2:])
    x, y = (
        helper.make_tensor_value_info(*v) for v in (("x", TensorProto.FLOAT, shape), ("y", TensorProto.FLOAT, made))
    )
    constants = [numpy_helper.from_array(value.numpy(), name) for name, value in (("w", weight), ("b", bias))]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "convolution", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _quantized(model: onnx.ModelProto, values: torch.Tensor) -> Graph:
    return quantize_graph(dispatch_graph(from_model(model)), [values])


def training() -> list[tuple[str, str, str]]:
    """Measure a training step, gradients included, of a 64-channel 3x3 block on 8-bit grids against float."""
    data = {name: default_fix_cfg(names) for name, names in BLOCK.items()}
    gradients = {
        name: default_fix_cfg([key for key in names if not key.startswith("running")]) for name, names in BLOCK.items()
    }
    fixed = nn.Sequential(
        Conv2d_fix(64, 64, 3, padding=1, nf_fix_params=data["conv"], nf_fix_params_grad=gradients["conv"]),
        BatchNorm2d_fix(64, nf_fix_params=data["bn"], nf_fix_params_grad=gradients["bn"]),
        nn.ReLU(),
        Activation_fix(nf_fix_params=data["fix"], nf_fix_params_grad=gradients["fix"]),
    )
    plain = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    x = _codes("t", (4, 64, 56, 56)).float() / 64
    target = "<= 1.6x"
    return [
        ("training step, 64-channel 3x3 block on 8-bit grids / float", _ratio(_step(fixed, x), _step(plain, x)), target)
    ]


def _step(block: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        block(x).square().mean().backward()
        optimizer.step()

    return step


def _codes(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    values = (bits(1, name, shape) % 255).astype("int16") - 127
    return torch.from_numpy(values).to(torch.int8)


def _ratio(ours: Callable[[], object], theirs: Callable[[], object], repeats: int = 1) -> str:
    """Return the median of per-round ratios: both run in turn, so that drift of the machine cancels.

    Processor time: one thread runs both, and time of other processes does not count.
    """
    ratios = []
    for _ in range(ROUNDS + 2):
        first = _once(ours, repeats, time.process_time)
        ratios.append(first / _once(theirs, repeats, time.process_time))
    return f"{statistics.median(ratios[2:]):.2f}x"


def _once(function: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that *repeats* calls take, one after another."""
    start = clock()
    for _ in range(repeats):
        function()
    return clock() - start


if __name__ == "__main__":
    main()
