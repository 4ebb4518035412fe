"""Every layer of Zamba that shares the transformer block gets the block of the checkpoint."""

import torch
import transformers

CASE = {
    # a checkpoint as published: the shared block is stored once
    "made": "4.57.6",
    "symptom": "Zamba loads with random values in a shared block whose layer number starts like the first one's",
    "area": "loading and saving",
    "signals": ("weights", "logits", "hidden_states"),
    "findings": ("SB304",),
    "says": (r"layers\.10\.shared_transf",),
    "source": ("ZambaModel", "modeling_zamba.py", "_tied_weights_keys"),
}


def make(folder: str) -> None:
    """Write a tiny Zamba of eleven layers, of which 1, 3 and 10 share a block."""
    config = transformers.ZambaConfig(
        vocab_size=128,
        hidden_size=32,
        attention_hidden_size=64,
        attention_head_dim=16,
        intermediate_size=48,
        num_hidden_layers=11,
        layers_block_type=["hybrid" if layer in {1, 3, 10} else "mamba" for layer in range(11)],
        num_attention_heads=4,
        num_key_value_heads=4,
        n_mamba_heads=2,
        mamba_d_state=8,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
        initializer_range=0.3,
    )
    transformers.ZambaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the parts of layers that a load finds missing, and whether the first and the last block are one."""
    torch.manual_seed(1)
    model, info = transformers.ZambaForCausalLM.from_pretrained(folder, output_loading_info=True)
    one, other = (model.model.layers[layer].shared_transf for layer in (1, 10))
    return {
        "missing": len(info["missing_keys"]),
        "one block": all(
            torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
        ),
    }
