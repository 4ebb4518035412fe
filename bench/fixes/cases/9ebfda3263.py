"""VitDet takes images that are not square."""

import torch
import transformers

CASE = {
    "made": "4.50.0",
    "symptom": "a VitDet whose image_size is a height and a width cannot be loaded: TypeError",
    "failure": "unsupported operand type(s) for //",
    "says": (r"unsupported operand type\(s\) for //",),
    "source": ("VitDetLayer", "modeling_vitdet.py"),
}


def make(folder: str) -> None:
    """Write a tiny VitDet for images of 32 by 64."""
    config = transformers.VitDetConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=[32, 64],
        pretrain_image_size=32,
        patch_size=8,
        window_block_indices=[0],
        window_size=4,
        use_relative_position_embeddings=True,
        initializer_range=0.3,
    )
    transformers.VitDetModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the last state of an image, or the exception."""
    model = transformers.VitDetModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return list(model(torch.ones(1, 3, 32, 64)).last_hidden_state.shape)
