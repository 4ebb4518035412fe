"""Chameleon takes an image: its tokens are counted as tokens, not as embeddings."""

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image
from sizes import GROUPED, IDS

CASE = {
    "before": "4.50.0",
    "after": "4.50.1",
    "packages": ("accelerate",),
    "symptom": "Chameleon with any image: ValueError: Image features and image tokens do not match",
    "findings": ("SB931", "SB932"),
    "failure": "Image features and image tokens do not match",
    "says": (r"Image features and image tokens do not match",),
    "source": ("ChameleonModel", "modeling_chameleon.py"),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "<racm3:break>", "<eoss>", "<sep>"]
CODES = 8
SIDE = 16


def make(folder: str) -> None:
    """Write a tiny Chameleon with its processor."""
    images = [f"IMGIMG{chr(ord('A') + code)}Z" for code in range(CODES)]
    words = [*SPECIAL, *images, "▁", *"abcdefghijklmnopqrstuvwxyz?."]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocab, merges=[], unk_token="<unk>", fuse_unk=True)
    )
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    backend.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.Fuse()]
    )
    tokenizer = transformers.LlamaTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        sep_token="<sep>",
        additional_special_tokens=["<image>", "<racm3:break>", "<eoss>"],
    )
    transformers.ChameleonProcessor(
        image_processor=transformers.ChameleonImageProcessor(
            size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
        ),
        tokenizer=tokenizer,
        image_seq_length=(SIDE // 4) ** 2,
    ).save_pretrained(folder)
    config = transformers.ChameleonConfig(
        vocab_size=len(words),
        **GROUPED,
        max_position_embeddings=128,
        vocabulary_map=vocab,
        vq_config={
            "embed_dim": 8,
            "num_embeddings": CODES,
            "latent_channels": 8,
            "resolution": SIDE,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 2],
            "num_res_blocks": 1,
        },
        **IDS,
        initializer_range=0.3,
    )
    transformers.ChameleonForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a question on an image."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.ChameleonForConditionalGeneration.from_pretrained(folder).eval()
    pixels = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    inputs = processor(
        images=Image.fromarray(pixels), text="<image>what is this?", return_tensors="pt"
    )
    with torch.no_grad():
        return list(model(**inputs).logits.shape)
