"""The tokenizer.json of DeepSeek OCR is read as it is, though the hub names another tokenizer class."""

from pathlib import Path

import deepseek
import transformers
from saved import edit

CASE = {
    "made": "5.8.0",
    "symptom": "DeepSeek OCR's tokenizer is rebuilt as Llama's: other ids for every text with a space",
    "area": "tokenizer",
    "options": ("--trust-remote-code",),
    "findings": ("SB806", "SB811", "SB812", "SB815", "SB816"),
    "says": (r"pre_tokenizer", r"TokenizersBackend"),
    "source": ("LlamaTokenizer", "tokenization_auto.py", "tokenization_llama.py"),
}
CODE = """\
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM


class DeepseekOCRConfig(DeepseekV2Config):
    model_type = "deepseek_ocr"


class DeepseekOCRForCausalLM(DeepseekV2ForCausalLM):
    config_class = DeepseekOCRConfig
"""


def make(folder: str) -> None:
    """Write a tiny DeepSeek OCR of custom code, as the hub has it."""
    deepseek.make(folder, transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM)
    Path(folder, "modeling_deepseekocr.py").write_text(CODE, "utf-8")
    edit(
        folder,
        model_type="deepseek_ocr",
        architectures=["DeepseekOCRForCausalLM"],
        auto_map={
            "AutoConfig": "modeling_deepseekocr.DeepseekOCRConfig",
            "AutoModelForCausalLM": "modeling_deepseekocr.DeepseekOCRForCausalLM",
        },
    )


def observe(folder: str) -> object:
    """Return the class of the tokenizer, and the ids of a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    return [type(tokenizer).__name__, tokenizer("the lazy dog 12")["input_ids"]]
