"""The tokens of an image of Gemma 3 do not see a later image."""

import numpy as np
import torch
import transformers
from PIL import Image
from sizes import IDS, TEXT, TOWER
from tokens import MARKS, SPACES, tokenizer_of

CASE = {
    "symptom": "tokens of an image attend to a later image of Gemma 3: other hidden states and logits",
    "signals": ("logits", "hidden_states", "greedy"),
    "findings": ("SB706",),
    "says": (r"image_group_ids", r"token_type_ids_mask_function"),
    "source": ("token_type_ids_mask_function", "modeling_gemma3.py"),
}
TOKENS = {"image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>"}


def make(folder: str) -> None:
    """Write a tiny Gemma 3 with its processor."""
    words = ["<pad>", "<bos>", "<eos>", "<unk>", *TOKENS.values(), "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, SPACES, **MARKS, extra_special_tokens=TOKENS)
    transformers.Gemma3Processor(
        image_processor=transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32}),
        tokenizer=tokenizer,
        image_seq_length=16,
    ).save_pretrained(folder)
    config = transformers.Gemma3Config(
        text_config={
            **TEXT,
            "layer_types": ["sliding_attention", "full_attention"],
            "head_dim": 8,
            "sliding_window": 64,
            "max_position_embeddings": 128,
            **IDS,
        },
        vision_config={**TOWER, "image_size": 32, "patch_size": 4},
        mm_tokens_per_image=16,
        image_token_index=vocab["<image>"],
        boi_token_index=vocab["<boi>"],
        eoi_token_index=vocab["<eoi>"],
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    # made anew it is zero, which no trained model has
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight, std=0.3)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the logits up to the end of an image depend on the next image."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.Gemma3ForConditionalGeneration.from_pretrained(folder).eval()
    first, second, other = (
        Image.fromarray(np.random.default_rng(n).integers(0, 256, (32, 32, 3), dtype=np.uint8))
        for n in range(3)
    )
    logits = []
    for images in ([first, second], [first, other]):
        inputs = processor(text="<boi> <boi> what is this", images=[images], return_tensors="pt")
        with torch.no_grad():
            logits.append(model(**inputs).logits[0])
    end = int((inputs["input_ids"][0] == processor.tokenizer.eoi_token_id).nonzero()[0])
    changed = (logits[0][:end] - logits[1][:end]).abs().max()
    return {"the next image changes the logits of an image": bool(changed > 1e-4)}
