"""Token healing takes tokenizers that have no token of one space."""

import tokenizers
import torch
import transformers
from sizes import GROUPED

CASE = {
    "symptom": "generate(token_healing=True) raises TypeError with a tokenizer of bytes, which has no token of a space",
    "says": (r"token_healing", r"heal_tokens"),
    "source": ("heal_tokens", "generation/utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with a tokenizer whose tokens are bytes."""
    words = ["<pad>", "</s>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he"]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocab, merges=[("Ġ", "t"), ("h", "e")])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", bos_token="</s>"
    ).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(words), **GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids that token healing makes of a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer("say t", return_tensors="pt")["input_ids"]
    torch.manual_seed(0)
    try:
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            token_healing=True,
            tokenizer=tokenizer,
            max_new_tokens=2,
            do_sample=False,
        )
    except TypeError as error:
        return f"TypeError: {error}"
    return made[0, : ids.shape[1] - 1].tolist()
