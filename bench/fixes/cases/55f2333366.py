"""A bias of one label is no four-bit weight."""

import transformers
from sizes import PLAIN_TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "a bias of one value for a head of two labels is not seen as a mismatch when it is loaded",
    "findings": ("SB207", "SB208"),
    "failure": "size mismatch",
    "says": (r"classifier\\.bias", r"mismatch"),
    "source": ("_find_mismatched_keys", "_load_state_dict_into_meta_model", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny BERT with a head of one label, whose config says two, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.BertConfig(
        **PLAIN_TEXT, max_position_embeddings=64, pad_token_id=0, num_labels=1
    )
    model = transformers.BertForSequenceClassification(config)
    model.config.num_labels = 2
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what is loaded with ignore_mismatched_sizes, or the exception."""
    model, info = transformers.BertForSequenceClassification.from_pretrained(
        folder, ignore_mismatched_sizes=True, output_loading_info=True
    )
    return [sorted(key for key, *_ in info["mismatched_keys"]), [*model.classifier.bias.shape]]
