"""The cache of Nemotron-H has a layer for each of its "mlp" layers.

https://github.com/huggingface/transformers/pull/47535
"""

import json
import sys

import tokenizers
import torch
import transformers

CASE = {
    "before": "5.14.1",
    "after": "5.15.0",
    "made": "5.14.1",
    "symptom": "every forward of a Nemotron-H with an mlp layer raises KeyError: 'mlp' when it makes its cache",
    "area": "computation",
    "failure": "'mlp'",
    "says": (r"KeyError.*'?mlp'?",),
    "source": ("LAYER_TYPE", "DynamicCache", "cache_utils.py", "NemotronH"),
}
WORDS = "the cat sat on a mat and saw dog ran to big red house with old man"


def make(folder: str) -> None:
    """Write a tiny Nemotron-H of four kinds of layers, with its tokenizer."""
    torch.manual_seed(0)
    words = ["<pad>", "<s>", "</s>", "<unk>", *WORDS.split()]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    config = transformers.NemotronHConfig(
        vocab_size=64,
        hidden_size=32,
        layer_types=["linear_attention", "mlp", "full_attention", "mlp"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=64,
        ssm_state_size=8,
        mamba_num_heads=4,
        mamba_head_dim=8,
        n_groups=2,
        chunk_size=8,
        use_mamba_kernels=False,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.NemotronHForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what greedy generation gives, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[1, 5, 6, 7, 8, 9]])
    try:
        return list(model.generate(ids, max_new_tokens=3, do_sample=False).shape)
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}"[:80]


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
