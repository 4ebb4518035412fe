"""Gemma 4's processor counts the tokens of sounds of given lengths."""

import transformers
from sizes import GEMMA4_TEXT, GEMMA4_VISION
from tokens import MARKS, SPACES, tokenizer_of

CASE = {
    "symptom": "a server that asks Gemma 4's processor for the tokens of a sound gets AttributeError",
    "packages": ("torchvision",),
    "failure": "_compute_audio_num_tokens",
    "says": (r"_compute_audio_num_tokens", r"audio_lengths"),
    "source": ("Gemma4Processor", "processing_gemma4.py"),
}
TOKENS = {
    "image_token": "<|image|>",
    "video_token": "<|video|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
}


def make(folder: str) -> None:
    """Write a tiny Gemma 4 with its processor."""
    words = ["<pad>", "<bos>", "<eos>", "<unk>", *TOKENS.values(), "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, SPACES, **MARKS, extra_special_tokens=TOKENS)
    sizes = {"patch_size": 8, "max_soft_tokens": 70, "pooling_kernel_size": 2}
    processor = transformers.Gemma4Processor(
        feature_extractor=transformers.Gemma4AudioFeatureExtractor(),
        image_processor=transformers.Gemma4ImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=transformers.Gemma4VideoProcessor(num_frames=2, **sizes),
    )
    processor.save_pretrained(folder)
    ids = {name: vocab[TOKENS[name]] for name in TOKENS}
    config = transformers.Gemma4Config(
        text_config=GEMMA4_TEXT,
        vision_config=GEMMA4_VISION,
        audio_config={
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "subsampling_conv_channels": [16, 8],
            "conv_kernel_size": 3,
            "attention_chunk_size": 4,
            "attention_context_left": 5,
            "attention_context_right": 0,
            "output_proj_dims": 32,
        },
        image_token_id=ids["image_token"],
        video_token_id=ids["video_token"],
        audio_token_id=ids["audio_token"],
        boi_token_id=ids["boi_token"],
        eoi_token_id=ids["eoi_token"],
        boa_token_id=ids["boa_token"],
    )
    transformers.Gemma4ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens of sounds of one and of two seconds."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    return processor._get_num_multimodal_tokens(audio_lengths=[16000, 32000])["num_audio_tokens"]
