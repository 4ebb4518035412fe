"""A box of PP-DocLayoutV3 that covers no point of its mask is a rectangle."""

from types import SimpleNamespace

import torch
import transformers

CASE = {
    "packages": ("torchvision", "opencv-python-headless"),
    "symptom": "post_process_object_detection raises cv2.error for a box that covers no point of its mask",
    "area": "processor",
    "failure": "OpenCV",
    "says": (r"post_process_object_detection", r"cv2"),
    "source": ("PPDocLayoutV3ImageProcessor", "_extract_polygon_points_by_masks"),
}


def make(folder: str) -> None:
    """Write a tiny PP-DocLayoutV3 and its image processor."""
    backbone = {
        "model_type": "hgnet_v2",
        "arch": "L",
        "return_idx": [0, 1, 2, 3],
        "hidden_sizes": [16, 16, 16, 16],
        "stem_channels": [3, 16, 16],
        "stage_in_channels": [16, 16, 16, 16],
        "stage_mid_channels": [16, 16, 16, 16],
        "stage_out_channels": [16, 16, 16, 16],
        "freeze_stem_only": True,
        "freeze_at": 0,
        "freeze_norm": True,
        "lr_mult_list": [0, 0.05, 0.05, 0.05, 0.05],
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    config = transformers.PPDocLayoutV3Config(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 16, 16],
        encoder_ffn_dim=32,
        encoder_attention_heads=2,
        mask_feature_channels=[32, 32],
        x4_feat_dim=16,
        d_model=32,
        num_queries=30,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=8,
        decoder_layers=2,
        decoder_attention_heads=2,
        num_denoising=0,
        num_labels=25,
    )
    transformers.PPDocLayoutV3ForObjectDetection(config).save_pretrained(folder)
    transformers.PPDocLayoutV3ImageProcessor(size={"height": 64, "width": 64}).save_pretrained(
        folder
    )


def observe(folder: str) -> object:
    """Return the number of boxes found in outputs as the test of the fix has them, or the exception."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    torch.manual_seed(0)
    outputs = SimpleNamespace(
        pred_boxes=torch.rand(1, 300, 4),
        logits=torch.rand(1, 300, 25),
        order_logits=torch.rand(1, 300, 300),
        out_masks=torch.rand(1, 300, 200, 200),
    )
    found = processor.post_process_object_detection(outputs, threshold=0.1, target_sizes=[(24, 24)])
    return len(found[0]["boxes"])
