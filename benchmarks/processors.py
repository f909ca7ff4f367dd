"""Runs everything that could depend on the processor under settings that choose other kernels, one variable at a time.

Five things run under each setting: the gate of our own functions, the recorded references, the float functions under
`pinned`, the tests of our exact kernels (they use oneDNN, which the gate turns off), and torch's gate on the operators
that the variable concerns. A setting is green if nothing fails, and if the records, the references and the bits of float
functions equal those of the run without it. Defects of torch that only the setting shows are named: each is declared,
or its item fails. The exit status is 1 if a setting is red.

`--under COMMAND` adds a run under a program that emulates another processor, without torch's gate: its engines need
AVX2. The command ends with an interpreter if that has another instruction set:
`--under "qemu-aarch64 -L root root/usr/bin/python3"`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from tabulate import tabulate
from tqdm import tqdm

from quantizer.core.levels import LEVELS
from quantizer.core.processor import instructions

ROOT = Path(__file__).resolve().parents[1]
OWN = (
    "conv2d-w8a8",
    "depthwise_conv2d-w8a8",
    "fully_connected-w8a8",
    "matmul-a8",
    "softmax-a8",
    "avg_pool2d-a8",
    "max_pool2d-a8",
    "sigmoid-a8",
    "gelu-a8",
    "log_softmax-a8",
    "softplus-a8",
    "layer_norm-w8a8",
)
"""Products and means, and functions whose float64 reference a library computes."""
OWN_PLATFORMS = ("compass", "ideal")
CONVOLUTIONS = ("conv2d-w8pta8-torch_x86", "depthwise_conv2d-w8a8-torch_x86", "conv2d-regressions")
PRODUCTS = ("fully_connected-w8a8-torch_fbgemm", "matmul-a8-torch_x86", "fully_connected-regressions")
KERNELS = ("add-a8-torch_x86", "softmax-a8-torch_x86", "avg_pool2d-a8-torch_x86", "max_pool2d-a8-torch_x86")
BEHIND = ("add-regressions", "softmax-regressions", "avg_pool2d-regressions")
EVERYTHING = (*CONVOLUTIONS, *PRODUCTS, *KERNELS, *BEHIND)
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "FBGEMM_ENABLE_INSTRUCTIONS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
)
"""Variables that are removed from the environment, so that a setting differs from the plain run only in its own."""


@dataclass(frozen=True)
class Setting:
    """One variable and its value, the instruction sets without which it has no effect, and torch's items to run."""

    variable: str = ""
    value: str = ""
    needs: tuple[str, ...] = ()
    maker: str = ""
    """The only vendor of processors on which the value counts, as Linux names it; empty: any."""
    engine: tuple[str, ...] = EVERYTHING
    under: tuple[str, ...] = ()
    """The program that runs Python, and its arguments; empty: Python itself."""

    def __str__(self) -> str:
        if self.under:
            return shlex.join(self.under)
        return f"{self.variable}={self.value}" if self.variable else "nothing set"

    def lacking(self, available: Sequence[str], maker: str) -> str:
        """Return why the setting is not run on a processor of *maker* with the instruction sets *available*, or ""."""
        missing = [name for name in self.needs if name not in available]
        if missing:
            return f"the processor has no {', no '.join(missing)}"
        return f"counts on processors of {self.maker} alone" if self.maker not in ("", maker) else ""


EVERYWHERE = ("SSSE3", "SSE41", "POPCNT", "SSE42")
"""The instruction sets, by numpy's names, that every processor has on which torch runs."""
NUMPYS = " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name] and name not in EVERYWHERE)
"""The other instruction sets by which numpy chooses kernels here: they change the last bits of its exp and log."""
DIGESTS = "tests/unit/workers/pinned_digests.py"
EXACT = "tests/unit/test_numerics_kernels.py"
INTEL = "GenuineIntel"
NOTHING = Setting()
SETTINGS = (
    Setting("ATEN_CPU_CAPABILITY", "default", engine=(*KERNELS, *BEHIND)),
    Setting("ATEN_CPU_CAPABILITY", "avx2", LEVELS["avx2"], engine=(*KERNELS, *BEHIND)),
    Setting("MKL_CBWR", "COMPATIBLE", engine=PRODUCTS),
    Setting("MKL_CBWR", "AVX2", LEVELS["avx2"], INTEL, PRODUCTS),
    Setting("MKL_CBWR", "AVX512", LEVELS["avx512"], INTEL, PRODUCTS),
    Setting("ONEDNN_MAX_CPU_ISA", "SSE41", engine=(*CONVOLUTIONS, "conv1d-regressions")),
    Setting("ONEDNN_MAX_CPU_ISA", "AVX2", LEVELS["avx2"], engine=(*CONVOLUTIONS, "conv1d-regressions")),
    Setting("ONEDNN_MAX_CPU_ISA", "AVX512_CORE", LEVELS["avx512"], engine=(*CONVOLUTIONS, "conv1d-regressions")),
    Setting("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI", LEVELS["avx512_vnni"], engine=CONVOLUTIONS),
    Setting("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX", LEVELS["amx"], engine=CONVOLUTIONS),
    Setting("NPY_DISABLE_CPU_FEATURES", NUMPYS, engine=()),
    Setting("OPENBLAS_CORETYPE", "Prescott", engine=()),
    Setting("OPENBLAS_CORETYPE", "SkylakeX", LEVELS["avx512"], engine=()),
    Setting("OMP_NUM_THREADS", "2", engine=("conv2d-w8pta8-torch_x86", "fully_connected-w8a8-torch_fbgemm")),
)


@dataclass
class Found:
    """What ran under one setting."""

    failed: list[str] = field(default_factory=list)
    """Last lines of what failed."""
    records: dict[str, str] = field(default_factory=dict)
    """Id -> the line of our own record."""
    references: str = ""
    """What the recorded references gave, as text."""
    digests: dict[str, str] = field(default_factory=dict)
    """Float function -> digest of what it gave under `pinned`."""
    defects: set[str] = field(default_factory=set)
    """Declared defects of torch that its items showed, `platform id`."""


def run(setting: Setting, folder: Path, *, engine: bool, references: bool) -> Found:
    """Run everything under *setting*; reports go below *folder*."""
    found = Found()
    own = [f"{name}-{platform}" for name in OWN for platform in OWN_PLATFORMS]
    lines = _gate(setting, folder / "own", own, [], found)
    found.records = {json.loads(line)["id"]: line for line in lines}
    done = _process([DIGESTS], setting)
    found.digests = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    if done.returncode:
        found.failed.append(f"float functions: {_last(done)}")
    if not setting.under:  # an emulated processor takes minutes for it
        done = _process(["-m", "pytest", EXACT, "-q", "-p", "no:cacheprovider"], setting)
        if done.returncode:
            found.failed.append(f"exact kernels: {_last(done)}")
    if references:
        command = ["-m", "quantizer", "optimize", "--compare", "cases/reference", "--quiet"]
        done = _process(command, setting)
        found.references = done.stdout
        # 1 says that references differ, which the comparison with the plain run judges
        if done.returncode not in (0, 1):
            found.failed.append(f"references: {_last(done)}")
    if engine and setting.engine:  # without items, pytest would run all of torch's
        lines = _gate(setting, folder / "torch", setting.engine, ["--op-engine=torch", "--op-isa=host"], found)
        found.defects = {defect for line in lines for defect in _defects(json.loads(line))}
    return found


def _gate(setting: Setting, folder: Path, items: Sequence[str], options: Sequence[str], found: Found) -> list[str]:
    """Run the gate on *items*; return the lines of its records, and add what failed to *found*."""
    nodes = [f"op_specs/{name.partition('-')[0]}.yaml::{name}" for name in items]
    command = ["-m", "pytest", *nodes, *options, f"--op-report={folder}", "-q", "-p", "no:cacheprovider"]
    done = _process(command, setting)
    path = folder / "records.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    records = [json.loads(line) for line in lines]
    found.failed += [
        f"{r['id']}: {r.get('failure', r['outcome'])}" for r in records if r["outcome"] not in ("passed", "skipped")
    ]
    # no record, or a bad exit status without a failed item: the run itself did not end well
    if not records or (done.returncode and not found.failed):
        facts = folder / "run.json"
        lacks = json.loads(facts.read_text(encoding="utf-8"))["lacks"] if facts.is_file() else []
        found.failed.append(f"exit status {done.returncode}: {' '.join(lacks) or _last(done)}")
    return lines


def _process(command: Sequence[str], setting: Setting) -> subprocess.CompletedProcess[str]:
    """Run Python with the arguments *command* under *setting*."""
    environment = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, "PYTEST_ADDOPTS")}
    if setting.under:  # kernels of this processor, which the emulated one may lack
        environment = {name: value for name, value in environment.items() if not name.startswith("OPENBLAS_")}
    # one thread by default: the number of threads is a setting of its own, and sums depend on it
    environment |= {"OMP_NUM_THREADS": "1"} | ({setting.variable: setting.value} if setting.variable else {})
    python = [] if setting.under and "python" in Path(setting.under[-1]).name else [sys.executable]
    return subprocess.run(
        [*setting.under, *python, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else "said nothing"


def _defects(record: Mapping[str, object]) -> list[str]:
    checks = record.get("checks", {})
    reasons = [r for check in checks.values() if check.get("defects") for r in check.get("reasons", [])]  # type: ignore[attr-defined]
    return [
        f"{record.get('platform')} {reason.partition(':')[0]}"
        for reason in reasons
        if reason.partition(":")[0].isidentifier()
    ]


def differing(base: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the ids whose records differ, each with the differing fields."""
    found = []
    for name in sorted({*base, *other}):
        if base.get(name) == other.get(name):
            continue
        one, two = (_flat(json.loads(lines.get(name, "{}"))) for lines in (base, other))
        found.append(f"{name}: {', '.join(sorted(key for key in {*one, *two} if one.get(key) != two.get(key)))}")
    return found


def _flat(value: object, path: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {path: value}
    return {
        key: leaf for name, part in value.items() for key, leaf in _flat(part, f"{path}.{name}".lstrip(".")).items()
    }


def judge(base: Found, found: Found) -> list[str]:
    """Return the reasons why *found* is red, compared with *base*, the run without a setting."""
    problems = list(found.failed)
    moved = [name for name, digest in base.digests.items() if found.digests.get(name) != digest]
    if moved:
        problems.append(f"other bits of float functions than with nothing set: {', '.join(moved)}")
    problems += [f"another record than with nothing set: {text}" for text in differing(base.records, found.records)]
    if found.references != base.references:
        pairs = zip(base.references.splitlines(), found.references.splitlines(), strict=False)
        changed = [new.split()[0] for old, new in pairs if old != new and new.split()]
        problems.append(f"other references than with nothing set: {', '.join(changed[:8]) or 'another number of runs'}")
    return problems


def maker() -> str:
    """Return the vendor of this processor as Linux names it; empty if Linux does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def main() -> int:
    """Run the settings that this processor supports; return 1 if one is red."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--setting", action="append", default=[], help="only settings with this in their name (repeatable)"
    )
    parser.add_argument("--no-engine", action="store_true", help="leave torch's gate out")
    parser.add_argument("--no-references", action="store_true", help="leave the recorded references out")
    parser.add_argument(
        "--under",
        action="append",
        default=[],
        metavar="COMMAND",
        help='run under a program that emulates a processor, such as "qemu-x86_64 -cpu Nehalem" (repeatable)',
    )
    args = parser.parse_args()
    emulated = [Setting(under=tuple(shlex.split(command)), engine=()) for command in args.under]
    chosen = [s for s in SETTINGS if not args.setting or any(part in str(s) for part in args.setting)]
    asked = [*emulated, *(chosen if args.setting or not emulated else [])]
    if not asked:
        parser.error(f"--setting: no setting has such a name. Known: {', '.join(map(str, SETTINGS))}.")
    rows, red, base = [], False, Found()
    with tempfile.TemporaryDirectory() as folder, tqdm([NOTHING, *asked], unit="setting", disable=None) as bar:
        for number, setting in enumerate(bar):
            bar.set_description(str(setting))
            if why := setting.lacking(instructions(), maker()):
                rows.append({"setting": str(setting), "result": f"not run: {why}"})
                continue
            found = run(
                setting,
                Path(folder) / str(number),
                engine=not args.no_engine and not setting.under,
                references=not args.no_references,
            )
            # the first setting sets nothing: the others are compared with it
            base = base if number else found
            problems = judge(base, found)
            red |= bool(problems)
            more = sorted(found.defects - base.defects) if number else []
            shown = f"; declared defects that it shows: {', '.join(more)}" if more else ""
            rows.append({"setting": str(setting), "result": ("RED" if problems else "green") + shown})
            for problem in problems:
                bar.write(f"{setting}: {problem}", file=sys.stderr)
    sys.stdout.write(f"{tabulate(rows, headers='keys', disable_numparse=True)}\n")
    return int(red)


if __name__ == "__main__":
    sys.exit(main())
