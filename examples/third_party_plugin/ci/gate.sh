#!/bin/sh
# The gate of this project on any machine: a fresh environment, the project as it is installed, every item, the baseline.
# QUANTIZER is the path of quantizer's wheel; without it the one in wheels/. Further arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-gate}"
if [ ! -x "$venv/bin/pytest" ]; then
  wheel="${QUANTIZER:-$(ls wheels/quantizer_conformance-*.whl)}" || {
    echo "gate.sh: wheels/ holds no wheel of quantizer: build it there, or name its path in QUANTIZER." >&2
    exit 2
  }
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "$wheel" pytest-xdist
fi
"$venv/bin/pip" install --quiet .
CI=true OMP_NUM_THREADS=1 "$venv/bin/pytest" -n "${JOBS:-2}" --op-baseline=baseline.jsonl --junit-xml=reports/junit.xml "$@"
