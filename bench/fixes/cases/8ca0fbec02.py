"""An assistant with another tokenizer proposes tokens in greedy search."""

import string

import tokenizers
import torch
import transformers
from sizes import GROUPED, IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "greedy generate() with an assistant of another tokenizer raises for position_ids of another length",
    "failure": "must match the size of tensor",
    "says": (
        r"assistant.*tokenizer",
        r"tokenizer.*assistant",
        r"AssistedCandidateGeneratorDifferentTokenizers",
    ),
    "source": ("AssistedCandidateGeneratorDifferentTokenizers", "candidate_generator.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with a tokenizer of words."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), **GROUPED, initializer_range=0.3, **IDS
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens are made with an assistant whose tokenizer has letters."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    config = transformers.LlamaConfig(
        vocab_size=24, **GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=2
    )
    torch.manual_seed(0)
    assistant = transformers.LlamaForCausalLM(config).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    letters = tokenizers.pre_tokenizers.Split("", "isolated")
    other = tokenizer_of([*NAMED.values(), *string.ascii_lowercase[:16], " "], letters, **NAMED)
    inputs = tokenizer("the cat sat on a mat", return_tensors="pt")
    inputs.pop("token_type_ids", None)
    made = model.generate(
        **inputs,
        assistant_model=assistant,
        tokenizer=tokenizer,
        assistant_tokenizer=other,
        do_sample=False,
        max_new_tokens=8,
        min_new_tokens=8,
    )
    return {"tokens": made.shape[1] - inputs["input_ids"].shape[1]}
