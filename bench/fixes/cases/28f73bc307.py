"""GPT-2 takes the number of tokens by which its loss is divided, as the Trainer gives it."""

import torch
import transformers
from sizes import GPT2, IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "before": "4.48.2",
    "after": "4.48.3",
    "symptom": "GPT-2's forward refuses num_items_in_batch: TypeError; the Trainer does not give it",
    "area": "loss",
    "says": (r"num_items_in_batch", r"(?i)accumulat"),
    "source": ("GPT2LMHeadModel.forward", "loss_function"),
}


def make(folder: str) -> None:
    """Write a tiny GPT-2 with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.GPT2Config(**GPT2, **IDS)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of a row that is one of several of a step, or the exception."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = torch.tensor([[1, 5, 6, 7, 8, 9]])
    try:
        with torch.no_grad():
            loss = model(input_ids=ids, labels=ids, num_items_in_batch=10).loss
    except TypeError as error:
        return f"TypeError: {error}"
    return round(loss.item(), 3)
