"""usage: a model in bfloat16 that reads other rows of its positions than in float32 is seen."""

from pathlib import Path

import torch
from samebits_probe.questions.usage import positions
from samebits_probe.questions.usage.subject import Subject

torch.set_num_threads(1)
SIDE = 12


class Tower(torch.nn.Module):
    """Places the patches of an image by their share of its width, computed in a dtype."""

    def __init__(self, dtype=None):
        super().__init__()
        self.position_embedding = torch.nn.Embedding(SIDE, 4)
        self.codes = torch.nn.Embedding(SIDE, 4)
        self.counts_in = dtype

    def forward(self, pixel_values, input_ids=None):
        dtype = self.counts_in or pixel_values.dtype
        bounds = torch.arange(1 / SIDE, 1.0, 1 / SIDE)
        shares = torch.arange(SIDE, dtype=dtype) / SIDE * (1 - 1e-6)
        rows = torch.bucketize(shares.float(), bounds, right=True)
        nearest = (pixel_values[0, 0, 0] * 1000).long() % SIDE
        return self.position_embedding(rows).sum() + self.codes(nearest).sum()


def gave(made):
    fed = {"input_ids": torch.ones(1, 3), "pixel_values": torch.rand(1, 3, 4, 4)}
    calls = positions.calls(Subject(made, "base", Path(), {"image": fed}))
    return [call() for _, call in calls]


def test_positions_that_follow_from_rounded_numbers_are_seen():
    assert gave(Tower()) == ["other rows of position_embedding of Tower"]
    assert gave(Tower(torch.float32)) == ["those of float32"]
    assert gave(torch.nn.Linear(1, 1)) == []
