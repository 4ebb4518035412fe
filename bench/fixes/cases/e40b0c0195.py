"""A conversation with a call of a tool is read by a processor."""

import json
from pathlib import Path

import smolvlm
import transformers

CASE = {
    "packages": ("torchvision", "num2words"),
    "symptom": "a processor's apply_chat_template raises KeyError: 'content' for a message that only calls a tool",
    "failure": "KeyError: 'content'",
    "says": (r"KeyError.*content", r"tool_calls?"),
    "source": ("apply_chat_template", "processing_utils.py", "ProcessorMixin"),
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}:"
    "{% if message.content %}{% for part in message.content %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}{{ call['function']['name'] }}{% endfor %}{% endif %}"
    "<end_of_utterance>\n{% endfor %}"
)
CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}


def make(folder: str) -> None:
    """Write a tiny SmolVLM whose template has calls of tools."""
    smolvlm.make(folder)
    Path(folder, "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    Path(folder, "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}), "utf-8")


def observe(folder: str) -> object:
    """Return how many tokens a conversation has, or the exception."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "what is this"}]},
        {"role": "assistant", "tool_calls": [CALL]},
    ]
    try:
        tokens = processor.apply_chat_template(conversation, tokenize=True, return_dict=True)
    except (KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return len(tokens["input_ids"][0])
