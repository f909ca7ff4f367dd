"""TextListDataset: one sample a line, its numbers joined by commas; the file of labels has as many lines, of one number each."""

from pathlib import Path

import torch
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
from torch.utils.data import Dataset


@register_plugin(PluginType.Dataset, "1.0")
class TextListDataset(Dataset):
    def __init__(self, data_file, label_file=None):
        self.data = self.rows(data_file)
        self.label = None if label_file is None else self.rows(label_file)
        if self.label is not None and len(self.label) != len(self.data):
            OPT_FATAL(f"{label_file}: {len(self.label)} labels for {len(self.data)} samples.")

    @staticmethod
    def rows(path):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return [torch.tensor([float(number) for number in line.split(",")]) for line in lines if line.strip()]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        label = float("-inf") if self.label is None else self.label[index][0]
        return [[self.data[index]], label]
