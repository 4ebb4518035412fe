"""questions.crossings.parts: what lies beside a model is saved, and asked as a copy and as the original."""

import functools
import json
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import transformers
from samebits_probe.model import processors, tokenizers
from samebits_probe.model.load import Source
from samebits_probe.questions.crossings import parts
from samebits_probe.questions.texts import chat, texts

texts.SECONDS = chat.SECONDS = parts.SECONDS = 600.0  # on a busy machine calls are left out
CHAT = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
SOUNDS = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor",
    "do_normalize": True,
    "processor_config": {"processor_class": "Wav2Vec2Processor"},
}
CLEAN = {
    "byte-level": ("llama", ("byte-level",), {"chat_template": CHAT}, None),
    "wordpiece": ("bert", ("wordpiece", "BertTokenizerFast"), {}, None),
    "word-ends": ("clip_text_model", ("word-ends", "CLIPTokenizerFast"), {}, None),
    "characters": ("wav2vec2", ("characters", "Wav2Vec2CTCTokenizer"), {}, SOUNDS),
    "bytes": ("t5", ("bytes", "ByT5Tokenizer"), {}, None),
}
SETTINGS = {"do_sample": True, "temperature": 0.6, "eos_token_id": [2, 3]}


def source(folder):
    return Source(str(folder), None, False, "float32", "default", "cpu")


def made(root, name):
    """Write the original, save it, and return both folders and what was saved."""
    model_type, kind, config, processor = CLEAN[name]
    original, copy = Path(root) / "original", Path(root) / "copy"
    original.mkdir()
    copy.mkdir()
    tokenizers.write(original, *kind, **config)
    (original / "config.json").write_text(json.dumps({"model_type": model_type}))
    (original / "generation_config.json").write_text(json.dumps(SETTINGS))
    if processor is not None:
        processors.write(original, model_type, processor)
    entries = parts.save(source(original), copy)
    (copy / "saved.json").write_text(json.dumps({"parts": entries}))
    return original, copy, entries


def crossed(original, copy):
    found = parts.crossed(source(original), {"here": str(copy)})
    return {(entry["saver"], entry["part"]): entry for entry in found}


def is_the_same(name):
    with tempfile.TemporaryDirectory() as root:
        original, copy, entries = made(root, name)
        assert {entry["outcome"] for entry in entries.values()} == {"saved"}, entries
        expected = {"tokenizer", "generation config"}
        if name == "characters":
            expected |= {"processor", "feature extractor"}
        assert set(entries) == expected
        found = crossed(original, copy)
        assert {entry["outcome"] for entry in found.values()} == {"same"}, found
        assert all(saver == "here" for saver, _ in found)


def test_what_a_release_saves_and_loads_is_the_same():
    for name in CLEAN:
        is_the_same(name)


def test_tokens_that_a_processor_adds_are_part_of_what_it_saves():
    """PaliGemma's adds 1,152 tokens for places to its tokenizer."""
    of_class = transformers.Wav2Vec2Processor
    init = of_class.__init__

    @functools.wraps(init)
    def adding(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.tokenizer.add_tokens(["<place>"])

    with mock.patch.object(of_class, "__init__", adding):
        is_the_same("characters")


def test_a_changed_copy_is_told_with_what_the_original_gives():
    with tempfile.TemporaryDirectory() as root:
        original, copy, entries = made(root, "byte-level")
        file = json.loads((copy / "tokenizer.json").read_text())
        file["model"]["merges"] = file["model"]["merges"][:10]
        (copy / "tokenizer.json").write_text(json.dumps(file))
        settings = json.loads((copy / "generation_config.json").read_text())
        (copy / "generation_config.json").write_text(json.dumps(settings | {"temperature": 0.9}))
        found = crossed(original, copy)
        for part in ("tokenizer", "generation config"):
            assert found["here", part]["outcome"] == "other"
            assert found["", part]["facts"] == entries[part]["facts"], (
                "the original is as in the saver"
            )


def test_a_tokenizer_that_is_another_one_without_config_json_is_told():
    load = parts.load_tokenizer

    def by_its_config(of, **options):
        tokenizer = load(of, **options)
        if not (Path(of.where) / "config.json").exists():
            tokenizer.add_tokens(["hello"])
        return tokenizer

    with tempfile.TemporaryDirectory() as root:
        original, copy, entries = made(root, "byte-level")
        with mock.patch.object(parts, "load_tokenizer", by_its_config):
            found = crossed(original, copy)
        assert found["here", "tokenizer"]["outcome"] == "same"
        assert found["here", parts.ALONE]["facts"] != entries["tokenizer"]["facts"]
        assert found["", "tokenizer"]["facts"] == entries["tokenizer"]["facts"]
        (copy / "config.json").unlink()  # nothing to be without
        assert ("here", parts.ALONE) not in crossed(original, copy)


def test_copies_that_are_loaded_alike_are_asked_once_and_others_again():
    with tempfile.TemporaryDirectory() as root:
        original, copy, _ = made(root, "wordpiece")
        alike, cased, other = (Path(root) / name for name in ("alike", "cased", "other"))
        for folder in (alike, cased, other):
            shutil.copytree(copy, folder)
        settings = json.loads((cased / "tokenizer_config.json").read_text())
        settings["do_lower_case"] = not settings.get("do_lower_case", True)
        (cased / "tokenizer_config.json").write_text(json.dumps(settings))
        rules = json.loads((other / "tokenizer.json").read_text())
        vocabulary = rules["model"]["vocab"]
        first, second = list(vocabulary)[-2:]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        (other / "tokenizer.json").write_text(json.dumps(rules))

        def asked(*folders):
            copies = {folder.name: str(folder) for folder in folders}
            with mock.patch.object(texts, "facts", wraps=texts.facts) as facts:
                entries = list(parts.crossed(source(original), copies))
            outcomes = {e["saver"]: e["outcome"] for e in entries if e["part"] == "tokenizer"}
            return facts.call_count, outcomes

        n_of_one, outcomes = asked(copy)
        assert outcomes == {"copy": "same"}
        assert asked(copy, alike) == (n_of_one, {"copy": "same", "alike": "same"})
        assert asked(copy, cased)[0] > n_of_one
        n_of_two, outcomes = asked(copy, other)
        assert n_of_two > n_of_one
        assert outcomes["other"] == "other"


def test_a_copy_that_does_not_load_is_told_with_its_exception():
    with tempfile.TemporaryDirectory() as root:
        original, copy, _ = made(root, "wordpiece")
        (copy / "tokenizer.json").write_text("{")
        found = crossed(original, copy)
        assert found["here", "tokenizer"]["outcome"] == "load failed"
        assert found["here", "tokenizer"]["failure"]["type"]
        assert found["", "tokenizer"]["outcome"] == "other"
        assert found["here", "generation config"]["outcome"] == "same"


def test_what_is_asked_does_not_change_what_is_saved():
    """Calls set padding and truncation of an object, which a save would write down."""
    with tempfile.TemporaryDirectory() as root:
        _, copy, _ = made(root, "byte-level")
        file = json.loads((copy / "tokenizer.json").read_text())
        assert (file["padding"], file["truncation"]) == (None, None)
