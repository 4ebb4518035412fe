"""The pipeline of video classification takes a checkpoint that has a video processor only."""

import transformers

CASE = {
    "packages": ("torchvision", "av"),
    "symptom": "pipeline('video-classification') of a V-JEPA 2 raises, as it has no image processor",
    "area": "pipeline",
    "findings": ("SB861",),
    "failure": "image processor",
    "says": (r"video-classification", r"VideoClassificationPipeline"),
    "source": ("VideoClassificationPipeline", "video_classification.py"),
}


def make(folder: str) -> None:
    """Write a tiny V-JEPA 2 with its video processor."""
    config = transformers.VJEPA2Config(
        crop_size=32,
        patch_size=8,
        frames_per_clip=4,
        tubelet_size=2,
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=2,
        mlp_ratio=2.0,
        pred_hidden_size=32,
        pred_num_attention_heads=4,
        pred_num_hidden_layers=1,
        pred_num_mask_tokens=2,
        num_pooler_layers=1,
        num_labels=5,
        initializer_range=0.3,
    )
    transformers.VJEPA2ForVideoClassification(config).save_pretrained(folder)
    transformers.VJEPA2VideoProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what processes the videos of a pipeline."""
    pipeline = transformers.pipeline("video-classification", model=folder)
    return type(pipeline.video_processor).__name__
