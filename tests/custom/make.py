"""Writes the weights of tests/custom/healthy: seeded, by numpy alone, the same bytes anywhere.

Biases are not zero and norms are not one, so that a defect in how any of them is loaded shows.
Run: python tests/custom/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

FOLDER = Path(__file__).parent / "healthy"
SEED = 20251120


def shapes(config: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Return every tensor of the checkpoint: the head is not there, it is tied."""
    size, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    wide, narrow = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    linear = {
        "self_attn.q_proj": (wide, size),
        "self_attn.k_proj": (narrow, size),
        "self_attn.v_proj": (narrow, size),
        "self_attn.o_proj": (size, wide),
        "mlp.gate_proj": (inner, size),
        "mlp.up_proj": (inner, size),
        "mlp.down_proj": (size, inner),
    }
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], size)}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        for name, shape in linear.items():
            found[f"{layer}.{name}.weight"] = shape
            found[f"{layer}.{name}.bias"] = shape[:1]
        found[f"{layer}.input_layernorm.weight"] = (size,)
        found[f"{layer}.post_attention_layernorm.weight"] = (size,)
    found["model.norm.weight"] = (size,)
    return found


def values(name: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Return a tensor: integers times powers of two, so that no machine rounds it otherwise."""
    drawn = generator.integers(-(1 << 23), 1 << 23, shape, dtype=np.int64) / float(1 << 23)
    if "norm" in name:
        return (1.0 + drawn / 4).astype(np.float32)
    scale = 0.25 if "embed" in name else 1.0
    return (drawn * (scale if len(shape) > 1 else 0.5)).astype(np.float32)


def safetensors(tensors: dict[str, Array]) -> bytes:
    """Return the bytes of a safetensors file: length of the header, header, tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.astype("<f4").tobytes() for array in tensors.values())
    return len(text).to_bytes(8, "little") + text + data


def weights() -> bytes:
    """Return the bytes of model.safetensors."""
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    generator = np.random.Generator(np.random.Philox(SEED))
    return safetensors({n: values(n, s, generator) for n, s in sorted(shapes(config).items())})


if __name__ == "__main__":
    (FOLDER / "model.safetensors").write_bytes(weights())
