"""Strings that stop a text work for a model that has more rows than its tokenizer has words."""

import deepseek
import torch
import transformers
from saved import edit
from sizes import IDS, TEXT

CASE = {
    "symptom": "stop_strings raise IndexError where a model generates an id behind the words of its tokenizer",
    "failure": "index out of range",
    "says": (r"stop_strings", r"StopStringCriteria"),
    "source": ("StopStringCriteria", "stopping_criteria.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama that has more rows than its tokenizer of bytes has words."""
    deepseek.tokenizer(folder)
    edit(folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    config = transformers.LlamaConfig(
        **TEXT | {"vocab_size": 1024}, max_position_embeddings=64, **IDS
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens it generates, or the exception."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    prompts = torch.arange(4, 36)[:, None]
    output = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=False,
        max_new_tokens=8,
        stop_strings=["cat"],
        tokenizer=tokenizer,
    )
    return output.ndim
