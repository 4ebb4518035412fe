"""DAC's from_latents computes in the order of its forward."""

import torch
import transformers

CASE = {
    "symptom": "from_latents() of DAC gives other bits than its forward for the same latents",
    "says": (r"from_latents",),
    "source": ("from_latents", "DacResidualVectorQuantizer"),
}


def make(folder: str) -> None:
    """Write a tiny DAC with its feature extractor."""
    config = transformers.DacConfig(
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=32,
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=4,
        sampling_rate=16000,
    )
    transformers.DacModel(config).save_pretrained(folder)
    transformers.DacFeatureExtractor(sampling_rate=16000, hop_length=8).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the latents of a sound give the bits that encode() gave."""
    model = transformers.DacModel.from_pretrained(folder).eval()
    sound = torch.sin(torch.arange(1600) / 7)[None, None]
    with torch.no_grad():
        encoded = model.encode(sound)
        again = model.quantizer.from_latents(encoded.projected_latents)[0]
    one, other = (value.numpy().tobytes() for value in (encoded.quantized_representation, again))
    return one == other
