"""cell: a folder with a tokenizer or a processor alone is asked what needs no model."""

import json
import tempfile
from pathlib import Path
from unittest import mock

import cells
import transformers
from samebits_probe.cell import cell
from samebits_probe.cell.capture import write_capture
from samebits_probe.cell.session import Session
from samebits_probe.model import load

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "house", "is", "red", "##s"]
IMAGES = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}


def observed(folder):
    """Return the outcome of a cell, as it is written to its capture."""
    out = Path(tempfile.mkdtemp())
    model = {
        "source": str(folder),
        "trust_remote_code": False,
        "questions": {name: {} for name in ("texts", "processors", "classes", "pipelines")},
        "prompts": {},
        "inputs": {"record": "", "reason": "no model", "root": str(out)},
    }
    job = cells.job(out, model)
    outcome = cell.observe(Session(job))
    write_capture(out / "a.json", job, outcome)
    return outcome


def of_words(file="tokenizer.json"):
    folder = Path(tempfile.mkdtemp(prefix="words-"))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    for other in folder.iterdir():
        if other.name not in (file, "tokenizer_config.json"):
            other.unlink()
    return folder


def test_a_tokenizer_alone_is_asked_texts_and_nothing_of_a_model():
    outcome = observed(of_words())
    assert outcome["status"] == "complete", outcome
    assert outcome["signals"]["tokenizer"]["class_name"]
    assert outcome["signals"]["answers"].keys() == {"texts"}
    assert outcome["signals"]["answers"]["texts"]["corpus"]
    assert not outcome["failures"], outcome["failures"]
    assert {skip["what"] for skip in outcome["skips"]} >= {"weights", "forward", "greedy"}


def test_a_processor_alone_is_asked_images():
    folder = Path(tempfile.mkdtemp(prefix="images-"))
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGES))
    outcome = observed(folder)
    assert outcome["status"] == "complete", outcome
    assert outcome["signals"]["answers"].keys() == {"processors"}


def test_a_planted_tokenizer_that_does_not_load_has_failed():
    folder = of_words()
    (folder / "tokenizer.json").write_text("{}")
    outcome = observed(folder)
    assert outcome["status"] == "failed"
    assert outcome["failure"]["phase"] == "tokenizer"


def test_a_model_is_loaded_without_the_tokenizer_that_does_not_load():
    folder = of_words()
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.BertForMaskedLM(transformers.BertConfig(**sizes, **layers)).save_pretrained(folder)
    source = load.Source(str(folder), None, False, "float32", "default", "cpu")
    twin = load.load(source)
    assert twin.tokenizer_failure is None

    def refuses(_source):
        raise ValueError("Tokenizer class NeverHeardOfTokenizer does not exist")

    with mock.patch.object(load, "load_tokenizer", refuses):
        loaded = load.load(source)
    assert loaded.tokenizer_failure["phase"] == "tokenizer"
    ids = [each("the house")["input_ids"] for each in (loaded.tokenizer, twin.tokenizer)]
    assert ids[0] == ids[1]
    (folder / "tokenizer.json").unlink()
    with mock.patch.object(load, "load_tokenizer", refuses):
        assert load.load(source).tokenizer is None
