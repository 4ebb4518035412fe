"""DeBERTa lets embeddings that require gradients alone."""

import torch
import transformers
from sizes import SMALL

CASE = {
    "symptom": "a frozen DeBERTa-v2 raises RuntimeError in training after enable_input_require_grads()",
    "failure": "leaf Variable that requires grad",
    "says": (r"leaf Variable", r"enable_input_require_grads"),
    "source": ("DebertaV2Embeddings", "modeling_deberta_v2.py"),
}


def make(folder: str) -> None:
    """Write a tiny DeBERTa-v2."""
    config = transformers.DebertaV2Config(
        vocab_size=128,
        **SMALL,
        max_position_embeddings=64,
        type_vocab_size=2,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=True,
        initializer_range=0.3,
    )
    transformers.DebertaV2ForMaskedLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a model that is trained by an adapter."""
    model = transformers.DebertaV2ForMaskedLM.from_pretrained(folder).train()
    model.requires_grad_(False)
    model.enable_input_require_grads()
    return list(model(torch.arange(3, 12)[None]).logits.shape)
