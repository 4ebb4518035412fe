"""A chat without messages is refused with a reason."""

import transformers
from sizes import GROUPED
from tokens import SPACES, tokenizer_of

CASE = {
    "symptom": "apply_chat_template([]) raises IndexError, not ValueError",
    "failure": "empty conversation",
    "says": (r"empty conversation", r"apply_chat_template.*IndexError"),
    "source": ("apply_chat_template", "tokenization_utils_base.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with a tokenizer that has a chat template."""
    words = ["<unk>", "<s>", "</s>", "user", "assistant", "what", "is", "this"]
    tokenizer = tokenizer_of(words, SPACES, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    )
    tokenizer.save_pretrained(folder)
    config = transformers.LlamaConfig(vocab_size=16, **GROUPED, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a chat without messages gives."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer.apply_chat_template([], tokenize=False)
