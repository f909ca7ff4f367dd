"""WithinMetric: the share of samples whose first output, the largest number in it, is near its label; `WithinMetric(0.5)`."""

from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *


@register_plugin(PluginType.Metric, "1.0")
class WithinMetric(OptBaseMetric):
    def __init__(self, distance="0.1"):
        self.distance = float(distance)
        self.reset()

    def reset(self):
        self.near = self.total = 0

    def __call__(self, pred, target):
        largest = pred[0].reshape(pred[0].shape[0], -1).amax(dim=1)
        self.near += int(((largest - target.reshape(-1)).abs() <= self.distance).sum())
        self.total += target.numel()

    def compute(self):
        try:
            return self.near / self.total
        except ZeroDivisionError:
            OPT_ERROR("WithinMetric: no labels.")
            return float("-inf")

    def report(self):
        return f"within {self.distance} of the label: {self.compute():.4f}"
