"""A MaskFormer with a head is loaded without its head."""

import torch
import transformers

CASE = {
    "made": "5.10.1",
    "packages": ("scipy",),
    "symptom": "AutoModel of a MaskFormer's checkpoint has new norms in its backbone, though the file has them",
    "signals": ("weights",),
    "says": (r"MaskFormerModel", r"pixel_level_module\.encoder"),
    "source": ("conversion_mapping.py", "core_model_loading.py", "MaskFormerModel"),
}


def make(folder: str) -> None:
    """Write a tiny MaskFormer with a Swin."""
    swin = transformers.SwinConfig(
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[2, 2, 2, 2],
        image_size=32,
        patch_size=4,
        window_size=2,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    decoder = transformers.DetrConfig(
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=4,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1]),
    )
    config = transformers.MaskFormerConfig(
        backbone_config=swin, decoder_config=decoder, fpn_feature_size=32, mask_feature_size=32
    )
    model = transformers.MaskFormerForInstanceSegmentation(config)
    for parameter in model.parameters():  # a norm that was trained
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sum of the backbone's norms, and how many names the file lacks."""
    model, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    norms = [p for p in model.pixel_level_module.encoder.parameters() if p.ndim == 1]
    total = sum(p.double().abs().sum().item() for p in norms)
    return [round(total, 3), len(info["missing_keys"])]
