"""xLSTM reads a text of more than one chunk by torch alone."""

import torch
import transformers

CASE = {
    "symptom": "xLSTM raises RuntimeError for every text of two chunks or more, and TypeError for one of a chunk",
    "failure": "is invalid for input of size",
    "signals": ("logits",),
    "says": (r"not callable", r"invalid for input of size"),
    "source": ("mlstm_chunkwise_parallel_fw_H", "modeling_xlstm.py"),
}


def make(folder: str) -> None:
    """Write a tiny xLSTM whose chunks have eight tokens."""
    config = transformers.xLSTMConfig(
        vocab_size=64,
        hidden_size=128,
        num_blocks=2,
        num_heads=2,
        chunk_size=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.xLSTMForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a text of 20 tokens, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    try:
        with torch.no_grad():
            return [*model(torch.arange(3, 23)[None]).logits.shape]
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"[:120]
