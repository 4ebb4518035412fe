"""mLUKE's tokenizer marks the entity that is to be classified."""

import transformers
from sizes import PLAIN_TEXT

CASE = {
    "symptom": "mLUKE's tokenizer raises AttributeError for an entity to classify: it has no additional_special_tokens_ids",
    "failure": "additional_special_tokens_ids",
    "says": (r"additional_special_tokens_ids",),
    "source": ("MLukeTokenizer", "tokenization_mluke.py"),
}
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *"▁,.abcdefghijklmnopqrstuvwxyz"]
ENTITIES = {"[MASK]": 0, "[UNK]": 1, "[PAD]": 2, "[MASK2]": 3}


def make(folder: str) -> None:
    """Write a tiny LUKE that classifies entities, with mLUKE's tokenizer."""
    tokenizer = transformers.MLukeTokenizer(
        vocab=[(word, -float(number)) for number, word in enumerate(WORDS)],
        entity_vocab=ENTITIES,
        task="entity_classification",
    )
    tokenizer.save_pretrained(folder)
    config = transformers.LukeConfig(
        **PLAIN_TEXT,
        entity_vocab_size=len(ENTITIES),
        entity_emb_size=16,
        max_position_embeddings=64,
        num_labels=3,
        tokenizer_class="MLukeTokenizer",
    )
    transformers.LukeForEntityClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many ids a text with an entity has, or the exception."""
    tokenizer = transformers.MLukeTokenizer.from_pretrained(folder, task="entity_classification")
    encoded = tokenizer("the cat sat", entity_spans=[(4, 7)])
    return len(encoded["input_ids"])
