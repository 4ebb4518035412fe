"""A base model is its own decoder.

https://github.com/huggingface/transformers/pull/40824
"""

import json
import sys

import tokenizers
import torch
import transformers

CASE = {
    "before": "4.56.1",
    "after": "4.56.2",
    "made": "4.56.1",
    "symptom": "get_decoder() of a base model such as MistralModel gives None",
    "area": "loading and saving",
    "says": (r"get_decoder",),
    "source": ("get_decoder", "EmbeddingAccessMixin", "modeling_utils.py"),
}
WORDS = "the cat sat on a mat and saw dog ran to big red house with old man"


def make(folder: str) -> None:
    """Write a tiny Mistral with its tokenizer."""
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
    config = transformers.MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.MistralForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the decoder of the model and of its base."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return [type(part.get_decoder()).__name__ for part in (model, model.model)]


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
