"""BioGPT's classification pools the last token of a row that is padded on the left."""

import torch
import transformers
from sizes import PLAIN_TEXT

CASE = {
    "symptom": "BioGPT's classification takes an earlier token of a row that is padded on the left: other logits",
    "findings": ("SB705",),
    "says": (r"(pad|left).*logits",),
    "source": ("BioGptForSequenceClassification", "modeling_biogpt.py"),
}


def make(folder: str) -> None:
    """Write a tiny BioGPT with a classification."""
    config = transformers.BioGptConfig(
        **PLAIN_TEXT, max_position_embeddings=64, pad_token_id=1, num_labels=3
    )
    transformers.BioGptForSequenceClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the logits of a row that is padded on the left are those of its last token."""
    model = transformers.BioGptForSequenceClassification.from_pretrained(folder).eval()
    ids = torch.tensor([[1, 1, 1, 5, 20, 21, 22, 9]])
    mask = (ids != 1).long()
    with torch.no_grad():
        logits = model(ids, attention_mask=mask).logits
        last = model.score(model.biogpt(ids, attention_mask=mask).last_hidden_state[:, -1])
    return {"logits are those of the last token": bool((logits - last).abs().max() < 1e-5)}
