"""A model's own code may import flash attention behind two conditions."""

import torch
import transformers
from saved import add_code
from sizes import TEXT

CASE = {
    "packages": ("accelerate",),
    "options": ("--trust-remote-code",),
    "symptom": "own code with `if is_flash_attn_2_available() and …:` raises ImportError for flash_attn",
    "failure": "flash_attn",
    "says": (r"requires the following packages.*flash_attn",),
    "source": ("get_imports", "check_imports", "dynamic_module_utils.py"),
}
CODE = '''"""A Llama with code of its own."""

from transformers import LlamaForCausalLM
from transformers.utils import is_flash_attn_2_available, is_flash_attn_greater_or_equal_2_10

if is_flash_attn_2_available() and is_flash_attn_greater_or_equal_2_10():
    from flash_attn import flash_attn_func


class OwnForCausalLM(LlamaForCausalLM):
    """Computes what Llama computes."""
'''


def make(folder: str) -> None:
    """Write a tiny Llama with code of its own."""
    config = transformers.LlamaConfig(**TEXT)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    add_code(folder, CODE)


def observe(folder: str) -> object:
    """Return the shape of the logits of a text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    with torch.no_grad():
        return list(model(torch.arange(3, 9)[None]).logits.shape)
