"""The loss of XGLM counts no target behind the end of a row."""

import torch
import transformers

CASE = {
    "symptom": "the loss of XGLM trains the last token of each row to be followed by padding",
    "area": "loss",
    "signals": ("loss", "gradients"),
    "findings": ("SB841",),
    "source": ("xglm_cross_entropy_loss", "XGLMForCausalLM", "modeling_xglm.py"),
}


def make(folder: str) -> None:
    """Write a tiny XGLM."""
    config = transformers.XGLMConfig(
        vocab_size=128,
        d_model=32,
        ffn_dim=48,
        num_layers=2,
        attention_heads=4,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        layerdrop=0.0,
        init_std=0.3,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    transformers.XGLMForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the loss of a row is that of its tokens, each with the next one as target."""
    model = transformers.XGLMForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        output = model(input_ids=ids, labels=ids)
    expected = torch.nn.functional.cross_entropy(output.logits[0, :-1].float(), ids[0, 1:])
    return {"loss of the next tokens": bool((output.loss - expected).abs() < 1e-4)}
