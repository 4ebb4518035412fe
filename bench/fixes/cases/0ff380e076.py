"""Gemma 4 generates with a static cache where no layers share their keys and values."""

import transformers
from sizes import GEMMA_IDS
from tokens import tokenizer_of

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
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *"abcdefghijklmnop"]
    tokenizer_of(
        words, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = transformers.Gemma4TextConfig(
        vocab_size=64,
        vocab_size_per_layer_input=64,
        hidden_size=32,
        hidden_size_per_layer_input=16,
        intermediate_size=48,
        num_hidden_layers=4,
        num_kv_shared_layers=0,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=8,
        sliding_window=16,
        initializer_range=0.3,
        **GEMMA_IDS,
    )
    transformers.Gemma4ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens that a static cache generates."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    inputs = tokenizer("a b c d", return_tensors="pt", return_token_type_ids=False)
    try:
        output = model.generate(
            **inputs,
            cache_implementation="static",
            max_new_tokens=3,
            min_new_tokens=3,
            do_sample=False,
            disable_compile=True,
        )
    except IndexError as error:
        return f"IndexError: {error}"
    return output.shape[1] - inputs["input_ids"].shape[1]
