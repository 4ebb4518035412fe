"""A prompt that is read in chunks keeps the positions behind its pads."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "prefill_chunk_size gives rows with pads other tokens: their positions count the pads",
    "signals": ("greedy", "generate"),
    "says": (r"prefill_chunk_size", r"[Cc]hunked prefill"),
    "source": ("_prefill_chunking", "generation/utils.py", "_prefill"),
}
PADDED = [[0, 0, 0, 0, 5, 9, 13, 7], [4, 6, 8, 10, 12, 14, 16, 11]]


def make(folder: str) -> None:
    """Write a tiny Llama with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(**TEXT, max_position_embeddings=64, **IDS)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the scores of the first word behind a prompt with pads, read whole and in chunks."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor(PADDED)
    mask = (ids != 0).long()
    sums = []
    for chunk in (None, 3):
        output = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=1,
            prefill_chunk_size=chunk,
            past_key_values=transformers.DynamicCache(),
            output_logits=True,
            return_dict_in_generate=True,
        )
        sums.append(round(output.logits[0][0].double().abs().sum().item(), 3))
    return sums
