#!/bin/sh
# The gate of this project on any machine: a fresh environment, the project as it is installed, every item, the baseline.
# QUANTIZER is what pip installs: a requirement, or the path of a wheel. Further arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-gate}"
if [ ! -x "$venv/bin/pytest" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "${QUANTIZER:-quantizer}" pytest-xdist
fi
"$venv/bin/pip" install --quiet .
CI=true OMP_NUM_THREADS=1 "$venv/bin/pytest" -n "${JOBS:-2}" --op-baseline=baseline.jsonl --junit-xml=reports/junit.xml "$@"
