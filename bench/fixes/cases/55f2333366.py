"""A bias of one label is no four-bit weight.

https://github.com/huggingface/transformers/pull/38397
"""

import json
import sys

import tokenizers
import torch
import transformers

CASE = {
    "before": "4.52.4",
    "after": "4.53.0",
    "made": "4.52.4",
    "symptom": "a bias of one value for a head of two labels is not seen as a mismatch when it is loaded",
    "area": "loading and saving",
    "findings": ("SB207", "SB208"),
    "failure": "size mismatch",
    "says": (r"classifier\\.bias", r"mismatch"),
    "source": ("_find_mismatched_keys", "_load_state_dict_into_meta_model", "modeling_utils.py"),
}
WORDS = "the cat sat on a mat and saw dog ran to big red house with old man"


def make(folder: str) -> None:
    """Write a tiny BERT with a head of one label, whose config says two, and its tokenizer."""
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
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        num_labels=1,
    )
    model = transformers.BertForSequenceClassification(config)
    model.config.num_labels = 2
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what is loaded with ignore_mismatched_sizes, or the exception."""
    try:
        model, info = transformers.BertForSequenceClassification.from_pretrained(
            folder, ignore_mismatched_sizes=True, output_loading_info=True
        )
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:90]
    return [sorted(key for key, *_ in info["mismatched_keys"]), [*model.classifier.bias.shape]]


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
