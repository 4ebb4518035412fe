"""CamemBERT as a decoder ties its head to its embeddings."""

import torch
import transformers
from sizes import PLAIN_TEXT

CASE = {
    "made": "5.4.0",
    "symptom": "CamembertForCausalLM cannot be made: its tied keys name camembert and not roberta",
    "area": "loading and saving",
    "signals": ("weights", "logits"),
    "failure": "tie_weights_keys",
    "says": (r"lm_head\.decoder", r"tied_weights_keys"),
    "source": ("CamembertForCausalLM", "modeling_camembert.py", "tie_weights", "lm_head"),
}


def make(folder: str) -> None:
    """Write a tiny CamemBERT as a decoder."""
    config = transformers.CamembertConfig(
        **PLAIN_TEXT,
        max_position_embeddings=64,
        is_decoder=True,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )
    transformers.CamembertForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the head has the bytes of the embeddings, or the exception."""
    model = transformers.CamembertForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        model(torch.arange(3, 9)[None])
    weights = (model.get_output_embeddings().weight, model.get_input_embeddings().weight)
    head, embeddings = (weight.detach().numpy().tobytes() for weight in weights)
    return {"tied": head == embeddings}
