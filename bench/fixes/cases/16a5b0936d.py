"""The tokenizer.json of DeepSeek V3 is read as it is, though the hub names another tokenizer class.

https://github.com/huggingface/transformers/pull/44801
"""

import json
from pathlib import Path

import tokenizers
import transformers

CASE = {
    "before": "5.3.0",
    "after": "5.4.0",
    "made": "5.4.0",
    "symptom": "DeepSeek V3's tokenizer is rebuilt as Llama's: other ids for every text with a space",
    "area": "tokenizer",
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


def make(folder: str) -> None:
    """Write a tiny DeepSeek V3 with a byte-level tokenizer.json and the class that the hub names."""
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
    config = transformers.DeepseekV3Config(
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
    transformers.DeepseekV3ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of texts, and whether they are those of tokenizer.json itself."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        backend = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        texts = ["the quick fox", "add(12, 34)"]
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return {
        "as tokenizer.json": [a == backend.encode(b).ids for a, b in zip(ids, texts, strict=True)],
        "ids": ids,
    }
