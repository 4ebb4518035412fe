"""GPT-2's cross-attention takes the mask of the encoder."""

import torch
import transformers
from sizes import GPT2, TOWER

CASE = {
    "symptom": "GPT-2 as a decoder attends to the padding of the encoder's text: encoder_attention_mask is dropped",
    "findings": ("SB705",),
    "says": (r"encoder_attention_mask",),
    "source": ("GPT2Model", "modeling_gpt2.py", "encoder_attention_mask"),
}


def make(folder: str) -> None:
    """Write a tiny pair of BERT and GPT-2."""
    encoder = transformers.BertConfig(
        vocab_size=64, **TOWER, max_position_embeddings=64, initializer_range=0.3
    )
    decoder = transformers.GPT2Config(**(GPT2 | {"n_layer": 1}), bos_token_id=1, eos_token_id=2)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    transformers.EncoderDecoderModel(config=config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a text has the same logits with padding behind it."""
    model = transformers.EncoderDecoderModel.from_pretrained(folder).eval()
    row = torch.tensor([[5, 20, 21, 22]])
    padded = torch.cat([row, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    with torch.no_grad():
        one, other = (
            model(
                input_ids=ids,
                attention_mask=(ids != 0).long(),
                decoder_input_ids=torch.tensor([[1, 7, 8]]),
            ).logits
            for ids in (row, padded)
        )
    return {"logits are equal": bool((one - other).abs().max() < 1e-4)}
