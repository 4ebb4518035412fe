"""A Llama with a head for classes takes the last token that is no padding, whatever stands before it."""

import torch
import transformers
from sizes import TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "a sequence classifier whose padding token is eos classifies what stands before the first eos of a text",
    "signals": ("logits", "outputs"),
    "says": (r"last_non_pad_token", r"sequence_lengths", r"(?i)pad\w*.*(middle|inside|both sides)"),
    "source": ("LlamaForSequenceClassification", "modeling_llama.py"),
}
EOS = 2


def make(folder: str) -> None:
    """Write a tiny classifier that pads with eos, with its tokenizer."""
    tokenizer_of(WORDS, **(NAMED | {"pad_token": NAMED["eos_token"]})).save_pretrained(folder)
    config = transformers.LlamaConfig(
        **TEXT,
        num_labels=3,
        pad_token_id=EOS,
        bos_token_id=1,
        eos_token_id=EOS,
    )
    transformers.LlamaForSequenceClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the scores of a text with eos between two sentences."""
    model = transformers.LlamaForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[1, 5, 6, EOS, 7, 8]])).logits
    return [round(score, 3) for score in logits[0].tolist()]
