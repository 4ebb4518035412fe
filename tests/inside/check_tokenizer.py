"""cell.tokenizer: what a release makes of a tokenizer, asked of an object of its own."""

import json
import tempfile
from pathlib import Path

import transformers
from samebits_probe.cell import tokenizer as cell_tokenizer
from samebits_probe.model.load import Source, has_tokenizer, load_tokenizer

IS_OLD = transformers.__version__ < "5"
WORDS = ("<unk>", "<s>", "Hello", "world", "12345")


def folder(**config):
    made = Path(tempfile.mkdtemp())
    special = [
        {
            "id": i,
            "content": WORDS[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in (0, 1)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(WORDS)},
            "unk_token": "<unk>",
        },
    }
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>"}
    (made / "tokenizer_config.json").write_text(json.dumps(told | config))
    (made / "config.json").write_text('{"model_type": "llama"}')
    return made


def source(made):
    return Source(str(made), None, False, "float32", "default", "cpu")


def facts(made, prompts=None):
    return cell_tokenizer.facts(load_tokenizer(source(made)), prompts or {})


PLAIN = facts(folder())
"""Made before the tests part, as what transformers imports for the first one takes seconds."""


def test_texts_are_the_fixed_one_and_the_prompts_that_are_texts():
    found = facts(folder(), {"short": {"text": "Hello world"}, "ids": {"ids": [1, 2]}})
    assert list(found["texts"]) == ["fixed", "short"]
    assert found["texts"]["short"] == {"text": "Hello world", "ids": [2, 3], "bare": [2, 3]}
    assert found["special"] == {"bos": 1, "unk": 0}


def test_a_padding_side_is_told_from_one_that_is_declared():
    assert PLAIN["declared_padding_side"] is None
    left = facts(folder(padding_side="left"))
    assert (left["padding_side"], left["declared_padding_side"]) == ("left", "left")


def test_answers_are_those_of_the_release():
    found = facts(folder(chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}"))
    assert found["chat"] == {"type": "list" if IS_OLD else "BatchEncoding"}
    assert ("raised" in found["batch"]) == IS_OLD
    assert ("token_type_ids" in found["gives"]) == IS_OLD
    assert set(found["methods"].values()) == {IS_OLD}
    assert found["knows_backend"] == (not IS_OLD)
    saved = "PreTrainedTokenizerFast" if IS_OLD else "TokenizersBackend"
    assert found["saved_class"] == saved


def test_without_a_template_there_is_no_answer():
    assert PLAIN["chat"] is None


def bare(model_type, **files):
    made = Path(tempfile.mkdtemp())
    (made / "config.json").write_text(json.dumps({"model_type": model_type}))
    for name, text in files.items():
        (made / name).write_text(text)
    return source(made)


def test_a_class_without_a_vocabulary_has_its_config_alone():
    byt5 = bare("t5", **{"tokenizer_config.json": '{"tokenizer_class": "ByT5Tokenizer"}'})
    assert has_tokenizer(byt5)
    assert load_tokenizer(byt5)("a b")["input_ids"] == [100, 35, 101, 1]


def test_a_vocabulary_of_another_name_is_not_passed_over():
    names = ("spm.model", "sentencepiece.bpe.model", "source.spm", "merges.txt", "x.tiktoken")
    for name in names:
        cut = bare("xlm-roberta", **{name: "cut"})
        assert has_tokenizer(cut), name
        try:
            tokenizer = load_tokenizer(cut)
        except Exception:  # noqa: S112  the release cannot read it, which is a failure of its phase
            continue
        assert tokenizer is not None, name


def test_a_folder_without_a_tokenizer_is_still_one():
    none = bare("llama", **{"generation_config.json": "{}", "preprocessor_config.json": "{}"})
    assert not has_tokenizer(none)
    assert load_tokenizer(none) is None
