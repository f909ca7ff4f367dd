"""One small run gives the same bytes of IR, records and goldens whatever kernels the libraries choose.

Settings stand for processors: each hides instructions of this one. All settings of a kind are in one, so that few processes run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kernel_settings import MATRIX, NUMPYS

from quantizer.numerics import mkl
from quantizer.reporting.machine import machine_of

ROOT = Path(__file__).parents[2]
NET = ROOT / "cases" / "reference" / "compass_net"
SETTINGS = (
    {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OMP_NUM_THREADS": "2",
        "NPY_DISABLE_CPU_FEATURES": NUMPYS,
        "OPENBLAS_CORETYPE": "Prescott",
    },
    {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX512", "ONEDNN_MAX_CPU_ISA": "AVX2"},
)
OUTSIDE = ("machine.json", "timings.jsonl", "run.json", "opt.cfg")
"""What names the machine, the clock or, in options and in the cfg, the folder."""


def quantized(folder: Path, settings: dict[str, str]) -> dict[str, bytes]:
    """Return the IR of a network as it is written under environment variables: relative path -> bytes."""
    lines = (NET / "plain" / "opt.cfg").read_text().replace("../", f"{NET}/").splitlines()
    folder.mkdir()
    cfg = folder / "opt.cfg"
    kept = [line for line in lines if not line.startswith("output_dir")]
    cfg.write_text("\n".join([*kept, f"output_dir = {folder / 'ir'}"]) + "\n")
    program = "import sys; from quantizer.cli import main; sys.exit(main(sys.argv[1:]))"
    _run(settings, "-c", program, "optimize", "--quiet", "--cfg", str(cfg))
    return _written(folder)


def judged(folder: Path, settings: dict[str, str]) -> dict[str, bytes]:
    """Return records and goldens of two operators as they are written under environment variables."""
    specs = [str(ROOT / "op_specs" / f"{op}.yaml") for op in ("fully_connected", "softmax")]
    asked = ["--op-platform=compass", "--op-scheme=w8a8", "--op-scheme=a8", f"--op-report={folder / 'run'}"]
    goldens = [f"--op-cases={folder / 'cases'}", "--op-golden-update=on another processor"]
    _run(settings, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *specs, *asked, *goldens)
    return _written(folder)


def _written(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in OUTSIDE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _run(settings: dict[str, str], *words: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**environment, "OMP_NUM_THREADS": "1", **settings},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_processor_setting_gives_the_same_ir(tmp_path: Path) -> None:
    wanted = quantized(tmp_path / "here", {})
    assert {Path(name).name for name in wanted} == {"quant.txt", "quant.bin", "net_opt_template.json"}
    for number, settings in enumerate(SETTINGS):
        assert quantized(tmp_path / str(number), settings) == wanted, settings


def test_another_processor_setting_gives_the_same_records_and_goldens(tmp_path: Path) -> None:
    wanted, got = judged(tmp_path / "here", {}), judged(tmp_path / "there", SETTINGS[0])
    assert wanted.keys() >= {"run/records.jsonl", "run/summary.json", "cases/golden/softmax.jsonl"}
    assert got.keys() == wanted.keys()
    assert {name for name, content in got.items() if content != wanted[name]} == set()
    machine = machine_of(tmp_path / "there" / "run")
    assert machine is not None
    assert machine.kernels["aten"] in ("DEFAULT", "NO AVX"), "the setting was taken"
    assert machine.kernels["mkl"] == mkl.SAID[mkl.pin()]


def test_a_setting_that_changes_records_or_float_bits_is_red() -> None:
    found, judge = MATRIX["Found"], MATRIX["judge"]
    base = found(records={"a": '{"id": "a", "ratio": 1}'}, digests={"exp": "1", "sqrt": "2"})
    assert judge(base, base) == []
    other = found(records={"a": '{"id": "a", "ratio": 2}'}, digests={"exp": "1", "sqrt": "3"})
    assert judge(base, other) == [
        "other bits of float functions than with nothing set: sqrt",
        "another record than with nothing set: a: ratio",
    ]
    assert judge(base, found(records=base.records)) == [
        "other bits of float functions than with nothing set: exp, sqrt"
    ]
