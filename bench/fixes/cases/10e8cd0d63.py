"""A model's own code may ask for the version of torch by transformers' former names."""

import torch
import transformers
from saved import add_code
from sizes import GROUPED

CASE = {
    "before": "4.48.1",
    "after": "4.48.2",
    "made": "4.48.2",
    "options": ("--trust-remote-code",),
    "symptom": "own code that imports is_torch_greater_or_equal_than_1_13 is not loaded: ImportError",
    "area": "loading and saving",
    "failure": "is_torch_greater_or_equal_than_1_13",
    "says": (r"is_torch_greater_or_equal_than_1_13",),
    "source": ("pytorch_utils.py", "is_torch_greater_or_equal_than_1_13"),
}
CODE = '''"""A Llama with code of its own."""

from transformers import LlamaForCausalLM
from transformers.pytorch_utils import is_torch_greater_or_equal_than_1_13

if not is_torch_greater_or_equal_than_1_13:
    import torch.fx


class OwnForCausalLM(LlamaForCausalLM):
    """Computes what Llama computes."""
'''


def make(folder: str) -> None:
    """Write a tiny Llama with code of its own."""
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    add_code(folder, CODE)


def observe(folder: str) -> object:
    """Return the shape of the logits of a text, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    with torch.no_grad():
        return [*model(torch.arange(3, 9)[None]).logits.shape]
