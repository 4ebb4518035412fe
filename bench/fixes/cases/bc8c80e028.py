"""Tokenizers of models whose class on the hub is wrong are read from tokenizer.json."""

from saved import edit
from sizes import TOWER
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, NemotronConfig, NemotronForCausalLM, PreTrainedTokenizerFast

CASE = {
    "symptom": "AutoTokenizer rebuilds a byte-level tokenizer of nemotron as LlamaTokenizer: other ids",
    "area": "tokenizer",
    "signals": ("tokenizer", "ids"),
    "says": ("LlamaTokenizer", "TokenizersBackend", "ids"),
    "source": (
        "MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS",
        "tokenization_auto.py",
        "LlamaTokenizer",
        "tokenization_llama.py",
    ),
}


TEXTS = ["the quick brown fox jumps over the lazy dog", "hello world, how are you in 2023?"]


def make(folder: str) -> None:
    """Write the artefact."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet
    )
    backend.train_from_iterator(TEXTS, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    edit(folder, "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    config = NemotronConfig(
        vocab_size=300,
        **TOWER,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
    )
    NemotronForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {"class": type(tokenizer).__name__, "tokens": tokenizer.tokenize("hello world in 2023")}
