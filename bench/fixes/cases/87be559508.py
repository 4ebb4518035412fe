"""The short convolutions of LFM2 leave out padding."""

import torch
import transformers
from sizes import TEXT

CASE = {
    "symptom": "pads on the left change what LFM2 computes of a text, as its convolutions get a mask of four dimensions",
    "signals": ("logits", "hidden_states", "outputs", "padding", "batch"),
    "says": (r"Lfm2ShortConv", r"apply_mask_to_padding_states"),
    "source": ("Lfm2ShortConv", "apply_mask_to_padding_states", "modeling_lfm2.py"),
}


def make(folder: str) -> None:
    """Write a tiny LFM2 of both kinds of layers."""
    config = transformers.Lfm2Config(
        **TEXT,
        block_ff_dim=48,
        block_multiple_of=8,
        layer_types=["conv", "full_attention"],
        pad_token_id=0,
    )
    model = transformers.Lfm2ForCausalLM(config)
    torch.nn.init.normal_(
        model.model.embed_tokens.weight, std=0.3
    )  # that of the pad, too, as trained ones have
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how much pads on the left change the last logits of a text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    text = torch.tensor([[5, 6, 7, 8]])
    padded = torch.tensor([[0, 0, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14]])
    mask = (padded != 0).long()
    with torch.no_grad():
        alone = model(text).logits[0, -1]
        among = model(
            padded, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(0)
        ).logits
    return {"pads matter": bool((alone - among[0, -1]).abs().max() > 0.01)}
