"""Grounding DINO has a head for each layer of its decoder, if its config says so."""

import torch
import transformers

CASE = {
    "made": "4.53.0",
    "symptom": "with decoder_bbox_embed_share false all layers of Grounding DINO have the last layer's head",
    "signals": ("logits", "outputs", "pred_boxes", "hidden_states", "state", "parameters"),
    "findings": ("SB308", "SB309", "SB311"),
    "says": (r"bbox_embed",),
    "source": ("GroundingDinoForObjectDetection", "modeling_grounding_dino.py"),
}


def make(folder: str) -> None:
    """Write a tiny Grounding DINO of which each layer has a head of its own."""
    swin = transformers.SwinConfig(
        window_size=7,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        image_size=64,
        out_features=["stage2", "stage3", "stage4"],
        out_indices=[2, 3, 4],
    )
    text = {
        "model_type": "bert",
        "vocab_size": 128,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "max_position_embeddings": 16,
    }
    config = transformers.GroundingDinoConfig(
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=4,
        num_feature_levels=4,
        encoder_n_points=2,
        decoder_n_points=2,
        use_timm_backbone=False,
        backbone_config=swin,
        max_text_len=8,
        text_config=text,
        decoder_bbox_embed_share=False,
    )
    model = transformers.GroundingDinoForObjectDetection(config)
    for head in model.bbox_embed:
        for layer in head.layers:
            torch.nn.init.normal_(layer.weight, std=0.3)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the heads of both layers are the same tensors."""
    model = transformers.GroundingDinoForObjectDetection.from_pretrained(folder)
    first, second = (head.layers[0].weight for head in model.bbox_embed)
    return {"heads are equal": bool(torch.equal(first, second))}
