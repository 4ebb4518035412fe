"""A OneFormer made anew has the offsets of deformable attention that its paper has."""

import transformers

CASE = {
    "packages": ("scipy",),
    "symptom": "a OneFormer made of a config has sampling offsets of zero, as a rule for all linear layers comes last",
    "says": (r"sampling_offsets", r"initiali[sz]"),
    "source": ("OneFormerPreTrainedModel._init_weights", "modeling_oneformer.py"),
}


def make(folder: str) -> None:
    """Write a tiny OneFormer."""
    backbone = transformers.SwinConfig(
        image_size=64,
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.OneFormerConfig(
        backbone_config=backbone,
        use_pretrained_backbone=False,
        text_encoder_vocab_size=99,
        hidden_dim=32,
        mask_dim=32,
        conv_dim=32,
        num_queries=10,
        num_labels=4,
        encoder_feedforward_dim=32,
        dim_feedforward=64,
        encoder_layers=2,
        decoder_layers=2,
        num_attention_heads=4,
        text_encoder_width=32,
        text_encoder_context_length=77,
        text_encoder_n_ctx=4,
        text_encoder_num_layers=1,
    )
    transformers.OneFormerForUniversalSegmentation(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the largest offset and the largest weight of the offsets of a model made of the config."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.OneFormerForUniversalSegmentation(config)
    weights = {
        name: value for name, value in model.named_parameters() if "sampling_offsets" in name
    }
    return {
        kind: max(
            value.abs().max().item() for name, value in weights.items() if name.endswith(kind)
        )
        for kind in ("weight", "bias")
    }
