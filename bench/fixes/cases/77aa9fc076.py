"""generate() of an encoder-decoder model gives the decoder the encoder's mask."""

import torch
import transformers
from sizes import BART

CASE = {
    "symptom": "generate() of BART attends to the padding of its input: a padded row gets other scores",
    "findings": ("SB705",),
    "says": (r"generate.*(pad.*|attention_mask)",),
    "source": ("prepare_inputs_for_generation", "generation/utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny BART."""
    config = transformers.BartConfig(
        vocab_size=128,
        **BART,
        encoder_layers=1,
        decoder_layers=1,
        max_position_embeddings=64,
        init_std=0.5,
        forced_eos_token_id=None,
    )
    transformers.BartForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether generate() scores a padded row as the row alone."""
    model = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[0, 20, 21, 22, 2]])
    padded = torch.cat([ids, torch.ones(1, 4, dtype=torch.long)], dim=1)
    scores = [
        torch.cat(
            model.generate(
                row,
                attention_mask=(row != 1).long(),
                max_new_tokens=3,
                min_new_tokens=3,
                do_sample=False,
                num_beams=1,
                output_logits=True,
                return_dict_in_generate=True,
            ).logits
        )
        for row in (ids, padded)
    ]
    return {"scores are equal": bool((scores[0] - scores[1]).abs().max() < 1e-3)}
