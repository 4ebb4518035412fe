"""Tokenizers of the kinds that recipes have, in folders without a model."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.model import tokenizers
from samebits_probe.model.tokenizers import KINDS, added, byte_level, template, unigram

__all__ = ["KINDS", "added", "byte_level", "template", "unigram", "write"]


def write(folder, kind, *arguments, model_type="llama", **options):
    """Write a tokenizer of a kind, and a config.json if there is none; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizers.write(folder, kind, *arguments, **options)
    if not (folder / "config.json").exists():
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder
