"""PE Audio Video stretches the frames of a video over time, not over their features."""

import torch
import transformers

CASE = {
    "packages": ("timm", "torchvision"),
    "symptom": "PE Audio Video raises for a padded sound of as many steps as its video has frames",
    "signals": ("hidden_states", "outputs"),
    "failure": "normalized_shape",
    "says": (r"normalized_shape", r"interpolate"),
    "source": ("PeAudioVideoEncoderEmbedder", "modeling_pe_audio_video.py", "interpolate"),
}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,
}


def make(folder: str) -> None:
    """Write a tiny encoder of sound and video."""
    dac = {
        "encoder_hidden_size": 8,
        "downsampling_ratios": [2, 4],
        "decoder_hidden_size": 32,
        "hidden_size": 32,
        "codebook_dim": 32,
    }
    vision = {
        "model_type": "timm_wrapper",
        "architecture": "test_vit",
        "num_labels": 32,
        "do_pooling": True,
        "model_args": {"img_size": 32, "patch_size": 16},
    }
    config = transformers.PeAudioVideoEncoderConfig(
        audio_config=SMALL | {"dac_config": dac},
        video_config=SMALL | {"vision_config": vision},
        **SMALL,
    )
    transformers.PeAudioVideoEncoder(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the output for a padded sound of as many steps as a video has frames, or the exception."""
    model = transformers.PeAudioVideoEncoder.from_pretrained(folder).eval()
    mask = (torch.arange(128) < 32).long()[None]
    with torch.no_grad():
        output = model(
            input_values=torch.rand(1, 1, 128),
            pixel_values_videos=torch.rand(1, 4, 3, 32, 32),
            padding_mask=mask,
        )
    return [*output.last_hidden_state.shape]
