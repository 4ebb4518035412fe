"""SAM 2 adds the padding point to input boxes, as the original implementation does."""

import torch
import transformers

CASE = {
    "made": "4.57.1",
    "symptom": "SAM 2 with input boxes gives other masks and scores than the original implementation",
    "packages": ("torchvision",),
    "signals": ("pred_masks", "iou_scores", "object_score_logits", "sparse_embeddings", "logits"),
    "says": (r"_embed_boxes", r"input_boxes"),
    "source": ("_embed_boxes", "Sam2PromptEncoder"),
}


def make(folder: str) -> None:
    """Write a tiny SAM 2 with the image processor."""
    backbone = {
        "model_type": "sam2_hiera_det_model",
        "hidden_size": 12,
        "num_attention_heads": 1,
        "image_size": [128, 128],
        "blocks_per_stage": [1, 2, 2, 1],
        "embed_dim_per_stage": [12, 24, 48, 96],
        "num_attention_heads_per_stage": [1, 2, 4, 8],
        "window_size_per_stage": [4, 4, 4, 4],
        "global_attention_blocks": [4],
        "window_positional_embedding_background_size": [4, 4],
    }
    vision = {
        "backbone_config": backbone,
        "backbone_channel_list": [96, 48, 24, 12],
        "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
        "fpn_hidden_size": 32,
    }
    decoder = {
        "hidden_size": 32,
        "mlp_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "attention_downsample_rate": 2,
        "iou_head_hidden_dim": 32,
    }
    config = transformers.Sam2Config(
        vision_config=vision,
        prompt_encoder_config={"hidden_size": 32, "image_size": 128},
        mask_decoder_config=decoder,
        initializer_range=0.2,
    )
    transformers.Sam2Model(config).save_pretrained(folder)
    transformers.Sam2ImageProcessorFast(
        size={"height": 128, "width": 128}, mask_size={"height": 32, "width": 32}
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of prompt points that one box becomes."""
    model = transformers.Sam2Model.from_pretrained(folder).eval()
    seen = []
    model.mask_decoder.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs["sparse_prompt_embeddings"].shape[-2]),
        with_kwargs=True,
    )
    torch.manual_seed(1)
    with torch.no_grad():
        model(
            pixel_values=torch.randn(1, 3, 128, 128),
            input_boxes=torch.tensor([[[10.0, 20.0, 60.0, 90.0]]]),
            multimask_output=False,
        )
    return {"points of one box": seen}
