"""GPT-NeoX classifies a text with the token of pads inside, as its end of a text is one."""

import torch
import transformers
from sizes import SMALL

CASE = {
    "symptom": "GPTNeoXForSequenceClassification takes the class from before the first pad token, though the text goes on",
    "signals": ("logits",),
    "says": (r"pad token", r"pads? (inside|in the middle)"),
    "source": ("GPTNeoXForSequenceClassification.forward", "modeling_gpt_neox.py"),
}


def make(folder: str) -> None:
    """Write a tiny GPT-NeoX with a head of classes."""
    config = transformers.GPTNeoXConfig(
        **SMALL,
        vocab_size=64,
        initializer_range=0.3,
        max_position_embeddings=64,
        num_labels=3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.GPTNeoXForSequenceClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the scores of two texts that are joined by the token of pads."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    ids = torch.tensor([[5, 9, 0, 13, 7], [4, 6, 8, 10, 12]])
    with torch.no_grad():
        logits = model(ids, attention_mask=torch.ones_like(ids)).logits
    return [round(number, 3) for number in logits[0].tolist()]
