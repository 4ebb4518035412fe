"""Jamba's cache has a length and layers, as the caches of other models."""

import transformers
from sizes import IDS
from tokens import tokenizer_of

CASE = {
    "before": "4.57.6",
    "after": "5.0.0",
    "symptom": "the cache of Jamba that generate() returns has no len() and no layers by number",
    "area": "generation",
    "failure": "HybridMambaAttentionDynamicCache' object is not subscriptable",
    "says": (
        r"HybridMambaAttentionDynamicCache.*(subscriptable|has no len|__getitem__|__len__)",
        r"get_seq_length.*(empty|HybridMamba)",
    ),
    "source": ("HybridMambaAttentionDynamicCache", "modeling_jamba.py"),
}


def make(folder: str) -> None:
    """Write a tiny Jamba with layers of all kinds and a tokenizer."""
    words = ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|unk|>", *"abcdefghijklmnop"]
    tokenizer_of(
        words,
        pad_token="<|pad|>",
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|unk|>",
    ).save_pretrained(folder)
    config = transformers.JambaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        expert_layer_period=2,
        expert_layer_offset=1,
        attn_layer_period=4,
        attn_layer_offset=2,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
        initializer_range=0.3,
        **IDS,
    )
    transformers.JambaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of layers of the cache after three tokens, and the shape of the keys."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    output = model.generate(
        **tokenizer("a b c d", return_tensors="pt", return_token_type_ids=False),
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        return_dict_in_generate=True,
    )
    cache = output.past_key_values
    return {"layers": len(cache), "keys": list(cache[2][0].shape)}
