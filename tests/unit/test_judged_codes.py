"""The verdict on codes: its ratio and its worst element are those of a number."""

from types import SimpleNamespace

import numpy as np
import torch

from quantizer.conformance.trials.elements import Allowed, judge_codes
from quantizer.core.dtypes import dtype
from quantizer.numerics.qparams import QParams


def test_an_element_without_limits_hides_no_wrong_code():
    output = QParams(dtype("int8"), torch.tensor(1.0).double(), torch.tensor(0), -128, 127)
    trial = SimpleNamespace(shared={}, output=output, got=np.array([3, 7]))
    low, high = np.array([-128, 5]), np.array([127, 5])
    value, allowance = np.array([np.inf, 5.0]), np.array([np.inf, 0.5])
    found = judge_codes("arithmetic", trial, Allowed(low, high, value=value, allowance=allowance))
    assert (found.status, found.ratio, found.worst.index) == ("fail", 4.0, (1,))
