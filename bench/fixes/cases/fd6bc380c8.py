"""A T5 tokenizer read from spiece.model alone keeps the normalization of that file."""

import json
from pathlib import Path

import sentencepiece
import transformers
from sizes import T5

CASE = {
    "made": "5.3.0",
    "symptom": "a T5 tokenizer of spiece.model gives <unk> for wide letters and ligatures",
    "area": "tokenizer",
    "findings": ("SB806", "SB815", "SB816"),
    "says": (r"normaliz(er|ation)",),
    "source": (
        "T5Tokenizer",
        "tokenization_t5.py",
        "SentencePieceExtractor",
        "convert_slow_tokenizer.py",
    ),
}
LINES = [
    "the quick brown fox jumps over the lazy dog",
    "a fine office in the first flat of the house",
    "numbers 0 1 2 3 4 5 6 7 8 9 are here",
    "translate English to German: the house is wonderful",
    "summarize: studies have shown that owning a dog is good",
]


def make(folder: str) -> None:
    """Write a tiny T5 model with its sentencepiece file, as google/t5-v1_1 has it."""
    rows = Path(folder) / "rows.txt"
    rows.write_text("\n".join(LINES * 4), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(rows),
        model_prefix=str(Path(folder) / "spiece"),
        vocab_size=90,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        normalization_rule_name="nmt_nfkc",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    rows.unlink()
    (Path(folder) / "spiece.vocab").unlink()
    words = {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "model_max_length": 512}
    (Path(folder) / "tokenizer_config.json").write_text(json.dumps(words), "utf-8")
    config = transformers.T5Config(vocab_size=256, **T5, num_layers=1, decoder_start_token_id=0)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of texts, and whether they are those of sentencepiece itself."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        spiece = sentencepiece.SentencePieceProcessor(model_file=str(Path(folder) / "spiece.model"))
        texts = ["the quick fox", "the ﬁne ｈｏｕｓｅ", "№ ½"]  # noqa: RUF001  wide letters
        ids = [tokenizer(text)["input_ids"] for text in texts]
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    expected = [[*spiece.encode(text), 1] for text in texts]
    return {"as sentencepiece": [a == b for a, b in zip(ids, expected, strict=True)], "ids": ids}
