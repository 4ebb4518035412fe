"""An image in Gemma 3 does not see beyond the window of a sliding layer."""

import torch
import transformers
from sizes import TEXT_128, TOWER

CASE = {
    "symptom": "in Gemma 3, tokens of an image that is longer than the sliding window see all of it",
    "signals": ("logits", "hidden_states", "greedy"),
    "says": (r"create_masks_for_vision_model",),
    "source": ("create_masks_for_vision_model", "Gemma3Model", "modeling_gemma3.py"),
}
IMAGE = 120


def make(folder: str) -> None:
    """Write a tiny Gemma 3 with sliding layers, of which an image has 16 tokens."""
    text = {
        **TEXT_128,
        "head_dim": 8,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    vision = {**TOWER, "image_size": 32, "patch_size": 8, "vision_use_head": False}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=16,
        image_token_index=IMAGE,
        boi_token_index=121,
        eoi_token_index=122,
        initializer_range=0.3,
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the last token of an image sees its first one in the sliding layer."""
    model = transformers.Gemma3ForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[2, 5, 121, *[IMAGE] * 16, 122, 6]])
    types = (ids == IMAGE).long()
    embeds = model.get_input_embeddings()(ids).detach()
    torch.manual_seed(1)
    embeds[0, 3:19] = torch.randn(16, 32)
    changed = embeds.clone()
    changed[0, 3] += 1
    with torch.no_grad():
        states = [
            model(inputs_embeds=x, token_type_ids=types, output_hidden_states=True).hidden_states[1]
            for x in (embeds, changed)
        ]
    return {"last sees first": bool((states[0][0, 18] - states[1][0, 18]).abs().max() > 1e-4)}
