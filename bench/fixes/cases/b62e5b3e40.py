"""A config of TVP needs no number of token types.

https://github.com/huggingface/transformers/issues/42925
"""

import transformers
from saved import edit
from sizes import SMALL

CASE = {
    "made": "5.0.0",
    "symptom": "a TVP whose config has no type_vocab_size cannot be built: AttributeError",
    "failure": "type_vocab_size",
    "says": (r"type_vocab_size",),
    "source": ("TvpConfig", "configuration_tvp.py"),
}


def make(folder: str) -> None:
    """Write a tiny TVP, whose config does not say how many token types it has."""
    backbone = transformers.ResNetConfig(
        embeddings_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]
    )
    config = transformers.TvpConfig(
        backbone_config=backbone,
        vocab_size=64,
        **SMALL,
        max_position_embeddings=32,
        max_grid_col_position_embeddings=16,
        max_grid_row_position_embeddings=16,
        max_img_size=64,
        visual_prompt_size=8,
        num_frames=2,
        pad_token_id=0,
    )
    transformers.TvpForVideoGrounding(config).save_pretrained(folder)
    edit(folder, drop=["type_vocab_size"])


def observe(folder: str) -> object:
    """Return the number of token types, or the exception."""
    model = transformers.TvpForVideoGrounding.from_pretrained(folder)
    return model.model.embeddings.token_type_embeddings.num_embeddings
