"""Makes bench/recall/models/memorized: a small model that has learned the rows of a training step.

A loss that rises after an upgrade shows only in a model whose loss was low. Its code is that of the healthy model, to
which its files are links. Run it in a stack of 4.57,
which loads the model as it is, by hand: ``PYTHONPATH=probes STACK/bin/python bench/recall/memorize.py``.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from samebits_probe.questions.training import batches

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "custom" / "healthy"
TARGET = ROOT / "bench" / "recall" / "models" / "memorized"
STEPS = 150
ROWS = ("padded", "plain", "packed")


def main() -> None:
    """Train the healthy model of tests/custom on seeded rows, and write its weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(SOURCE, trust_remote_code=True)
    model.train()
    rows = [b.kwargs for b in batches.batches(model, "causal-lm", {}) if b.name in ROWS]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = [model(**kwargs).loss for kwargs in rows]
        sum(losses).backward()
        optimizer.step()
    print(f"loss {sum(float(loss.detach()) for loss in losses) / len(losses):.3f}")
    weights = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    save_file(weights, TARGET / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
