"""cell.tokenizer: what a release makes of a tokenizer, asked of an object of its own."""

import json
import tempfile
from pathlib import Path

import transformers
from planting import plant
from samebits_probe.cell import attributes
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
    return cell_tokenizer.facts(load_tokenizer(source(made)), prompts or {}, source(made))


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


STATED = {
    "padding_side": "left",
    "truncation_side": "left",
    "model_max_length": 77,
    "clean_up_tokenization_spaces": True,
    "extra": {"a": [1, 2]},
    "sep_token": {"__type": "AddedToken", "content": "world", "lstrip": True},
    "added_tokens_decoder": {"1": {"content": "<s>", "lstrip": True, "special": True}},
    "additional_special_tokens": ["12345"],
}
OTHERS = {
    "padding_side": ("right", '"left"'),
    "model_max_length": (78, "77"),
    "extra": ({"a": [1, 3]}, '{"a": [1, 2]}'),
    "more": (True, "absent"),
    "sep_token": ("Hello", '"world"'),
    "additional_special_tokens": (["12345", "gone"], '["12345"]'),
}


def test_every_key_is_an_attribute():
    found = facts(folder(**STATED))
    assert found["unlike"] == {}
    assert found["attributes"]["padding_side"] == '"left"'
    assert found["attributes"]["extra"] == '{"a": [1, 2]}'
    assert found["attributes"]["is_fast"] == "true"
    assert PLAIN["unlike"] == {}


def test_another_value_than_stated_is_named_with_both():
    tokenizer = load_tokenizer(source(folder(**STATED)))
    for key, (value, there) in OTHERS.items():
        other = source(folder(**STATED | {key: value}))
        unlike = attributes.facts(tokenizer, other)["unlike"]
        assert unlike == {key: (json.dumps(value), there)}, key
    flags = {"content": "<s>", "lstrip": False, "special": True}
    other = source(folder(**STATED | {"added_tokens_decoder": {"1": flags, "9": flags}}))
    unlike = attributes.facts(tokenizer, other)["unlike"]
    assert list(unlike) == ["added_tokens_decoder.1", "added_tokens_decoder.9"]
    assert '"lstrip": true' in unlike["added_tokens_decoder.1"][1]
    assert unlike["added_tokens_decoder.9"][1] == "absent"


def test_named_special_tokens_are_attributes_of_their_names():
    """5.x keeps them, and its extra_special_tokens is a list of those without a name."""
    named = {"image_token": "12345", "begin_token": {"__type": "AddedToken", "content": "world"}}
    made = folder(extra_special_tokens=named)
    assert facts(made)["unlike"] == {}
    declared = source(
        folder(extra_special_tokens=named | {"image_token": "Hello", "end_token": "<s>"})
    )
    unlike = attributes.facts(load_tokenizer(source(made)), declared)["unlike"]
    stated = {"begin_token": "world", "end_token": "<s>", "image_token": "Hello"}
    loaded = {"begin_token": "world", "end_token": "absent", "image_token": "12345"}
    assert unlike == {"extra_special_tokens": (json.dumps(stated), json.dumps(loaded))}


def test_an_added_token_of_another_id_is_named():
    made = folder()
    (made / "added_tokens.json").write_text(json.dumps({"<s>": 1, "world": 4}))
    unlike = attributes.facts(load_tokenizer(source(folder())), source(made))["unlike"]
    assert unlike == {"added_tokens.world": ("4", "3")}


def test_a_save_gives_back_what_the_files_state():
    for made in (folder(), folder(**STATED)):
        written = facts(made)["written"]
        assert written["lost"] == {}
        assert "raised" not in written
        assert {"tokenizer.json", "tokenizer_config.json"} <= written["files"].keys()


def test_a_save_that_loses_a_key_is_named():
    made = folder(**STATED)
    tokenizer = load_tokenizer(source(made))

    def save(whole, into, **more):
        whole(into, **more)
        path = Path(into) / "tokenizer_config.json"
        left = {k: v for k, v in json.loads(path.read_text()).items() if k not in STATED}
        path.write_text(json.dumps(left | {"model_max_length": 78, "padding_side": "left"}))

    with plant(tokenizer, "save_pretrained", save):
        written = cell_tokenizer.facts(tokenizer, {}, source(made))["written"]
    lost = written["lost"]["tokenizer_config.json"]
    assert lost["extra"] == ('{"a": [1, 2]}', "absent")
    assert lost["model_max_length"] == ("77", "78")
    assert "padding_side" not in lost


def test_a_tokenizer_that_cannot_be_saved_is_a_result():
    tokenizer = load_tokenizer(source(folder()))

    def refuse(*_, **__):
        raise OSError("no")

    tokenizer.save_pretrained = refuse
    found = cell_tokenizer.facts(tokenizer, {}, source(folder()))
    assert found["written"] == {"files": {}, "raised": "OSError: no"}
    assert found["saved_class"] is None
