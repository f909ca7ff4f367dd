"""Gathers the facts for machine.json: the processor, and the kernels that libraries selected."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from quantizer.core.machine import Machine
from quantizer.core.processor import processor
from quantizer.numerics import mkl


def machine(figures: Mapping[str, dict[str, float]]) -> Machine:
    """Return the machine of this process; *figures*: item -> check -> ratio of float kernels."""
    kernels = {
        "aten": torch.backends.cpu.get_cpu_capability(),
        "mkl": mkl.SAID[mkl.pin()],
        "onednn": "on" if bool(torch.backends.mkldnn.is_available()) and torch._C._get_mkldnn_enabled() else "off",
        "threads": str(torch.get_num_threads()),
    }
    return Machine(processor=processor(), kernels=kernels, figures=dict(sorted(figures.items())))
