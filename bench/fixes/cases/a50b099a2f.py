"""In training, the groups of queries of LW-DETR do not attend to each other."""

import torch
import transformers

CASE = {
    "made": "5.4.0",
    "symptom": "LW-DETR does not learn: its groups of queries are mixed, and a box head gets no gradient",
    "area": "loss",
    "packages": ("torchvision", "scipy"),
    "signals": ("loss", "grads", "logits"),
    "findings": ("SB840", "SB841", "SB842"),
    "source": ("LwDetrAttention", "LwDetrModel", "modeling_lw_detr.py"),
}


def make(folder: str) -> None:
    """Write a tiny LW-DETR with three groups of queries."""
    backbone = {
        "model_type": "lw_detr_vit",
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "pretrain_image_size": 64,
        "patch_size": 16,
        "num_windows": 4,
        "window_block_indices": [0],
        "out_indices": [2],
    }
    config = transformers.LwDetrConfig(
        backbone_config=backbone,
        projector_scale_factors=[1.0],
        d_model=32,
        dropout=0.0,
        decoder_ffn_dim=48,
        decoder_layers=2,
        decoder_self_attention_heads=4,
        decoder_cross_attention_heads=4,
        decoder_n_points=2,
        num_queries=4,
        group_detr=3,
        num_labels=4,
        init_std=0.3,
    )
    transformers.LwDetrForObjectDetection(config).save_pretrained(folder)
    transformers.DeformableDetrImageProcessor(
        size={"height": 64, "width": 64}, do_pad=False
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how much the scores of the first group change with the queries of the second one."""
    model = transformers.LwDetrForObjectDetection.from_pretrained(folder).train()
    torch.manual_seed(1)
    pixels = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        first = model(pixel_values=pixels).logits[:, :4]
        model.model.query_feat.weight[4:8] += 1.0
        second = model(pixel_values=pixels).logits[:, :4]
    return {"change of the first group": round(float((first - second).abs().max()), 5)}
