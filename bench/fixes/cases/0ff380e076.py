"""Gemma 4 generates with a static cache where no layers share their keys and values."""

import gemma
import transformers

CASE = {
    "symptom": "Gemma 4 with num_kv_shared_layers 0 raises IndexError with a static cache",
    "area": "generation",
    "findings": ("SB824",),
    "failure": "list index out of range",
    "says": (r"(?i)static.*(IndexError|list index out of range)",),
    "source": ("StaticCache", "cache_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 4 for text and a tokenizer."""
    gemma.make(folder, "Gemma4", num_kv_shared_layers=0, global_head_dim=8)


def observe(folder: str) -> object:
    """Return the number of tokens that a static cache generates."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    inputs = tokenizer("a b c d", return_tensors="pt", return_token_type_ids=False)
    output = model.generate(
        **inputs,
        cache_implementation="static",
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        disable_compile=True,
    )
    return output.shape[1] - inputs["input_ids"].shape[1]
