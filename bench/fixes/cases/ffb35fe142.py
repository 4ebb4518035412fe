"""SAM2 leaves the boxes of the caller as they are."""

import torch
import transformers

CASE = {
    "symptom": "SAM2 adds half a pixel to the caller's own boxes, so that a second call gets other ones",
    "signals": ("state",),
    "says": (r"input_boxes", r"in place"),
    "source": ("_embed_boxes", "modeling_sam2.py"),
}


def make(folder: str) -> None:
    """Write a tiny SAM2."""
    backbone = transformers.Sam2HieraDetConfig(
        hidden_size=8,
        num_attention_heads=1,
        image_size=[64, 64],
        blocks_per_stage=[1, 1, 2, 1],
        embed_dim_per_stage=[8, 16, 32, 64],
        num_attention_heads_per_stage=[1, 1, 2, 2],
        window_size_per_stage=[4, 4, 4, 4],
        global_attention_blocks=[3],
        window_positional_embedding_background_size=[4, 4],
    )
    vision = transformers.Sam2VisionConfig(
        backbone_config=backbone,
        backbone_channel_list=[64, 32, 16, 8],
        backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
        fpn_hidden_size=32,
    )
    prompts = transformers.Sam2PromptEncoderConfig(
        hidden_size=32, image_size=64, patch_size=16, mask_input_channels=4
    )
    masks = transformers.Sam2MaskDecoderConfig(
        hidden_size=32, mlp_dim=32, num_attention_heads=2, iou_head_hidden_dim=32
    )
    config = transformers.Sam2Config(vision, prompts, masks)
    transformers.Sam2Model(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the caller's boxes behind a call."""
    model = transformers.Sam2Model.from_pretrained(folder).eval()
    boxes = torch.tensor([[[8.0, 8.0, 40.0, 40.0]]])
    with torch.no_grad():
        model(torch.zeros(1, 3, 64, 64), input_boxes=boxes, multimask_output=False)
    return boxes.flatten().tolist()
