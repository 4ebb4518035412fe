"""Makes a Llama checkpoint of a given size without torch, for what memory and hashing cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

VOCABULARY = 1000


def make(folder: Path, size: int) -> int:
    """Write config.json and float32 weights of about ``size`` bytes; return their exact number."""
    hidden = 512 if size < 1 << 29 else 1536 if size < 3 << 30 else 3072
    inner = hidden * 11 // 4 // 16 * 16
    layer = 4 * (4 * hidden * hidden + 3 * hidden * inner)
    layers = max(1, round((size - 8 * VOCABULARY * hidden) / layer))
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 64,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return _write(folder / "model.safetensors", dict(_shapes(hidden, inner, layers)))


def _shapes(hidden: int, inner: int, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for i in range(layers):
        for name in ("q", "k", "v", "o"):
            yield f"model.layers.{i}.self_attn.{name}_proj.weight", (hidden, hidden)
        for name in ("gate", "up"):
            yield f"model.layers.{i}.mlp.{name}_proj.weight", (inner, hidden)
        yield f"model.layers.{i}.mlp.down_proj.weight", (hidden, inner)
        for name in ("input", "post_attention"):
            yield f"model.layers.{i}.{name}_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (VOCABULARY, hidden)


def _write(path: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    """Write seeded float32 tensors in the safetensors layout, one at a time."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            values = rng.standard_normal(shape, dtype=np.float32)
            values *= 0.02 if len(shape) > 1 else 1.0
            file.write(values.tobytes())
    return end
