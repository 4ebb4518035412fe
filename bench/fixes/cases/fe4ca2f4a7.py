"""A config of Gemma 3 keeps the vision config that it is given as an object."""

import transformers
from sizes import TEXT, TOWER
from tokens import MARKS, SPACES, tokenizer_of

CASE = {
    "symptom": "Gemma3Config with a SiglipVisionConfig takes the default vision tower in its place",
    "area": "loading and saving",
    "says": (r"vision_config",),
    "source": ("Gemma3Config", "configuration_gemma3.py"),
}
TOKENS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}


def make(folder: str) -> None:
    """Write a tiny Gemma 3 of which an image has four tokens, with its processor."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *TOKENS.values(), "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, SPACES, **MARKS, extra_special_tokens=TOKENS)
    transformers.Gemma3Processor(
        image_processor=transformers.Gemma3ImageProcessor(size={"height": 16, "width": 16}),
        tokenizer=tokenizer,
        image_seq_length=4,
    ).save_pretrained(folder)
    text = {**TEXT, "head_dim": 8, "sliding_window": 16, "sliding_window_pattern": 2}
    vision = {**TOWER, "image_size": 16, "patch_size": 8, "vision_use_head": False}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=vocab["<image_soft_token>"],
        boi_token_index=vocab["<start_of_image>"],
        eoi_token_index=vocab["<end_of_image>"],
        initializer_range=0.3,
    )
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the size of the vision tower of a config made of the checkpoint's two configs."""
    config = transformers.AutoConfig.from_pretrained(folder)
    again = transformers.Gemma3Config(
        text_config=config.text_config, vision_config=config.vision_config
    )
    return {
        name: [part.vision_config.hidden_size, part.vision_config.num_hidden_layers]
        for name, part in (("checkpoint", config), ("made of its parts", again))
    }
