"""Prompt lookup decodes where no token ends a text."""

import torch
import transformers
from sizes import GROUPED

CASE = {
    "symptom": "generate(prompt_lookup_num_tokens=2) raises TypeError for a model without an eos token",
    "failure": "isin()",
    "says": (r"prompt[_ ]lookup", r"isin\(\)"),
    "source": ("PromptLookupCandidateGenerator", "candidate_generator.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama without an eos token."""
    config = transformers.LlamaConfig(
        vocab_size=64, **GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=None
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens prompt lookup adds to a text that repeats itself."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        prompt_lookup_num_tokens=2,
        max_new_tokens=4,
        do_sample=False,
    )
    return {"tokens": made.shape[1] - ids.shape[1]}
