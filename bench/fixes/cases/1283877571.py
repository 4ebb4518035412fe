"""SuperGlue keeps the matches of several pairs of images apart."""

import torch
import transformers

CASE = {
    "symptom": "SuperGlue gives a batch of pairs the matches of other pairs",
    "signals": ("outputs",),
    "says": (r"\bmatches\b", r"matching_scores", r"(?i)batch.*(rows|alone)"),
    "source": ("SuperGlueForKeypointMatching", "_match_image_pair", "modeling_superglue.py"),
}
SIZE = 64


def make(folder: str) -> None:
    """Write a tiny SuperGlue with its image processor."""
    config = transformers.SuperGlueConfig(
        keypoint_detector_config={
            "encoder_hidden_sizes": [8, 8, 16, 16],
            "decoder_hidden_size": 32,
            "keypoint_decoder_dim": 65,
            "descriptor_decoder_dim": 32,
            "keypoint_threshold": 0.0,
            "max_keypoints": 12,
            "initializer_range": 0.2,
        },
        hidden_size=32,
        keypoint_encoder_sizes=[8, 16],
        gnn_layers_types=["self", "cross"],
        num_attention_heads=4,
        sinkhorn_iterations=10,
        matching_threshold=0.0,
        initializer_range=0.2,
    )
    transformers.SuperGlueForKeypointMatching(config).save_pretrained(folder)
    size = {"height": SIZE, "width": SIZE}
    transformers.SuperGlueImageProcessor(size=size).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether each pair of a batch has the matches that it has alone."""
    model = transformers.SuperGlueForKeypointMatching.from_pretrained(folder).eval()
    generator = torch.Generator().manual_seed(1)
    pairs = torch.rand(2, 2, 3, SIZE, SIZE, generator=generator)
    with torch.no_grad():
        together = model(pixel_values=pairs).matches
        alone = [model(pixel_values=pair[None]).matches[0] for pair in pairs]
    n = min(together.shape[-1], *(matches.shape[-1] for matches in alone))
    return [
        bool((row[..., :n] == matches[..., :n]).all())
        for row, matches in zip(together, alone, strict=True)
    ]
