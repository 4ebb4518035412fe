"""An adapter by itself is checked in its base, and a tensor of it that no release loads is named."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.real.conftest import NEW, share_stacks, write_safetensors

pytestmark = pytest.mark.long  # for changes of adapters: it builds two environments with peft

SIZES = {
    "vocab_size": 60, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": (60, 16),
    "model.norm.weight": (16,),
    "lm_head.weight": (60, 16),
    **{f"model.layers.0.self_attn.{name}_proj.weight": (16, 16) for name in "qkvo"},
    **{f"model.layers.0.mlp.{name}_proj.weight": (32, 16) for name in ("gate", "up")},
    "model.layers.0.mlp.down_proj.weight": (16, 32),
    **{f"model.layers.0.{name}_layernorm.weight": (16,) for name in ("input", "post_attention")},
}
LORA = "base_model.model.model.layers.0.self_attn.{}.lora_{}.weight"


def drawn(shapes):
    generator = np.random.default_rng(0)
    return {n: generator.normal(0, 0.4, s).astype(np.float32) for n, s in shapes.items()}


def adapted(folder, name, module):
    """Write an adapter whose tensors belong to a module; its config names q_proj."""
    (folder / name).mkdir()
    shapes = {LORA.format(module, "A"): (4, 16), LORA.format(module, "B"): (16, 4)}
    write_safetensors(folder / name / "adapter_model.safetensors", drawn(shapes))
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8}
    settings |= {"target_modules": ["q_proj"], "base_model_name_or_path": "../base"}
    (folder / name / "adapter_config.json").write_text(json.dumps(settings))


def test_an_adapter_is_loaded_into_its_base_and_a_lost_one_is_named(tmp_path):
    (tmp_path / "base").mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES}
    (tmp_path / "base" / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "base" / "model.safetensors", drawn(SHAPES))
    adapted(tmp_path, "whole", "q_proj")
    adapted(tmp_path, "lost", "x_proj")
    share_stacks(tmp_path / "cache" / "checks")
    codes = {}
    for name in ("whole", "lost"):
        words = ("check", name, "--quick", "--from", "4.57", "--to", NEW)
        subprocess.run(
            [sys.executable, "-m", "samebits", *words],
            cwd=tmp_path,
            env=os.environ | {"SAMEBITS_CACHE": str(tmp_path / "cache")},
            check=False,
        )
        report = json.loads((tmp_path / "reports" / "check" / name / "report.json").read_text())
        (row,) = report["rows"]
        codes[name] = {f["code"] for cell in row["cells"] for f in cell.get("findings", [])}
        assert [cell.get("failure") for cell in row["cells"]] == [None, None]
    assert "SB319" not in codes["whole"]
    assert "SB319" in codes["lost"]
