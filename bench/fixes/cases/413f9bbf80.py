"""RecurrentGemma takes a text that is longer than its attention window."""

import torch
import transformers

CASE = {
    "symptom": "generate() of RecurrentGemma raises RuntimeError once the text is longer than the window",
    "area": "generation",
    "findings": ("SB824", "SB931", "SB932"),
    "failure": "must match the size",
    "signals": ("greedy",),
    "says": (r"_update_causal_mask", r"must match the size"),
    "source": ("_update_causal_mask", "modeling_recurrent_gemma.py"),
}


def make(folder: str) -> None:
    """Write a tiny RecurrentGemma with a window of eight tokens."""
    config = transformers.RecurrentGemmaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        lru_width=32,
        attention_window_size=8,
        w_init_variance_scale=1.0,
    )
    transformers.RecurrentGemmaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens that generate() adds to a text of 3 and of 12 tokens."""
    model = transformers.RecurrentGemmaForCausalLM.from_pretrained(folder).eval()
    return {str(length): new_tokens(model, length) for length in (3, 12)}


def new_tokens(model: transformers.PreTrainedModel, length: int) -> object:
    """Return how many tokens are new, or the exception."""
    ids = torch.arange(3, 3 + length)[None]
    try:
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=4,
            min_new_tokens=4,
            do_sample=False,
        )
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return output.shape[1] - length
