"""A final message that a chat template trims is continued where its text ends."""

import transformers
from sizes import GROUPED
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "continue_final_message cuts the prompt inside an earlier turn with the same words, as the template trims",
    "findings": ("SB826",),
    "says": (r"continue_final_message",),
    "source": ("apply_chat_template", "tokenization_utils_base.py"),
}
TEMPLATE = "{% for message in messages %}<s>{{ message['role'] }} {{ message['content'] | trim }}</s>{% endfor %}"


def make(folder: str) -> None:
    """Write a tiny Llama with a chat template that trims messages, as Llama 3.1's does."""
    tokenizer = tokenizer_of([*WORDS, "user", "assistant"], **NAMED)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, pad_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the prompt of a conversation whose last message ends with a space."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [
        {"role": "user", "content": "the cat sat on a mat"},
        {"role": "assistant", "content": "the cat "},
    ]
    return tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
