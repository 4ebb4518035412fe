"""A model with code of its own keeps its head tied to its embeddings."""

import transformers
from saved import add_code
from sizes import GROUPED

CASE = {
    "options": ("--trust-remote-code",),
    "symptom": "the head of a model with code of its own is not tied to its embeddings, and stays on the meta device",
    "signals": ("weights", "logits"),
    "findings": ("SB303", "SB404"),
    "says": (r"lm_head.*(tied|tie\b)", r"(tied|tie\b).*lm_head"),
    "source": ("mark_tied_weights_as_initialized", "tie_weights", "lm_head"),
}
CODE = '''"""A Llama with code of its own."""

from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    """Has a type of its own."""

    model_type = "own_llama"


class OwnForCausalLM(LlamaForCausalLM):
    """Computes what Llama computes."""

    config_class = OwnConfig
'''


def make(folder: str) -> None:
    """Write a tiny Llama with code of its own and a tied head."""
    config = transformers.LlamaConfig(
        vocab_size=64, **GROUPED, initializer_range=0.3, tie_word_embeddings=True
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    add_code(folder, CODE, model_type="own_llama")


def observe(folder: str) -> object:
    """Return whether the head is the embeddings, and where it lies."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    head = model.get_output_embeddings().weight
    return {"tied": head is model.get_input_embeddings().weight, "on": head.device.type}
