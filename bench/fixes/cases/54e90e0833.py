"""The tokenizer.json of DeepSeek OCR is read as it is, though the hub names another tokenizer class.

https://github.com/huggingface/transformers/pull/45739
"""

import json
from pathlib import Path

import tokenizers
import transformers

CASE = {
    "before": "5.7.0",
    "after": "5.8.0",
    "made": "5.8.0",
    "symptom": "DeepSeek OCR's tokenizer is rebuilt as Llama's: other ids for every text with a space",
    "area": "tokenizer",
    "options": ("--trust-remote-code",),
    "findings": ("SB806", "SB811", "SB812", "SB815", "SB816"),
    "says": (r"pre_tokenizer", r"TokenizersBackend"),
    "source": ("LlamaTokenizer", "tokenization_auto.py", "tokenization_llama.py"),
}
LINES = [
    "the quick brown fox jumps over the lazy dog",
    "numbers 0 1 2 3 4 5 6 7 8 9 are here",
    "def add(a, b):\n    return a + b\n",
    "studies have shown that owning a dog is good",
]
CODE = """\
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM


class DeepseekOCRConfig(DeepseekV2Config):
    model_type = "deepseek_ocr"


class DeepseekOCRForCausalLM(DeepseekV2ForCausalLM):
    config_class = DeepseekOCRConfig
"""


def make(folder: str) -> None:
    """Write a tiny DeepSeek OCR of custom code, as the hub has it, with a byte-level tokenizer.json."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<begin>", "<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    backend.save(f"{folder}/tokenizer.json")
    words = {
        "tokenizer_class": "LlamaTokenizerFast",
        "bos_token": "<begin>",
        "eos_token": "<end>",
        "pad_token": "<end>",
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    Path(folder, "tokenizer_config.json").write_text(json.dumps(words), "utf-8")
    config = transformers.DeepseekV2Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=4,
        n_shared_experts=1,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,
    )
    transformers.DeepseekV2ForCausalLM(config).save_pretrained(folder)
    Path(folder, "modeling_deepseekocr.py").write_text(CODE, "utf-8")
    path = Path(folder, "config.json")
    settings = json.loads(path.read_text("utf-8")) | {
        "model_type": "deepseek_ocr",
        "architectures": ["DeepseekOCRForCausalLM"],
        "auto_map": {
            "AutoConfig": "modeling_deepseekocr.DeepseekOCRConfig",
            "AutoModelForCausalLM": "modeling_deepseekocr.DeepseekOCRForCausalLM",
        },
    }
    path.write_text(json.dumps(settings), "utf-8")


def observe(folder: str) -> object:
    """Return the class of the tokenizer, and the ids of a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    return [type(tokenizer).__name__, tokenizer("the lazy dog 12")["input_ids"]]
