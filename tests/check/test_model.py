"""A model of the command line: its folder or id, and a message for each way to miss it."""

import json
import shlex
import struct
from pathlib import Path

import pytest

from samebits.check import hub
from samebits.check.model import fitting_name, read_model
from samebits.matrix.checkpoint import CheckpointError, faults
from samebits.matrix.sources import bad_folder
from samebits.matrix.values import is_name
from tests.support.builders import model_spec

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "transformers_version": "4.57.1",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "settings_folder", lambda *_: None)
    return tmp_path


def checkpoint(folder, config=CONFIG):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    header = b'{"w": {"dtype": "U8", "shape": [900], "data_offsets": [0, 900]}}'.ljust(92)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 92) + header + bytes(900))
    return folder


def test_a_folder_is_read(folder):
    checkpoint(folder / "my model")
    model = read_model("my model")
    assert (model.name, model.path, model.hub) == ("my-model", "my model", None)
    assert (model.kind, model.saved_with) == ("LlamaForCausalLM (llama)", "4.57.1")
    assert (model.size, model.has_code, model.typed) == (1000, False, "my model")


def test_a_folder_with_a_tokenizer_alone_is_read(folder):
    (folder / "words").mkdir()
    (folder / "words" / "tokenizer.json").write_text("{}")
    model = read_model("words")
    assert (model.config, model.kind) == ({}, "a tokenizer or processors, and no model")
    entry = model_spec(path="words")
    assert not [*faults(folder / "words", entry)]
    assert bad_folder(folder, "words") is None
    (folder / "words" / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="merge_and_unload"):
        read_model("words")


def test_a_snapshot_in_the_hubs_cache_has_the_name_of_its_model(folder):
    path = folder / "models--org--llama-3" / "snapshots" / "0a"
    checkpoint(path)
    checkpoint(folder / "snapshots" / "0a")
    assert read_model(str(path)).name == "llama-3"
    assert read_model("snapshots/0a").name == "0a"


def test_a_folder_comes_before_the_hub(folder, monkeypatch):
    checkpoint(folder / "org" / "name")
    monkeypatch.setattr(hub, "config_file", lambda *_: pytest.fail("the hub was asked"))
    assert read_model("org/name").path == "org/name"


def test_code_of_its_own_is_noticed(folder):
    checkpoint(folder / "m", CONFIG | {"auto_map": {"AutoModel": "modeling_x.X"}})
    assert read_model("m").has_code


@pytest.mark.parametrize("config", [{}, {"architectures": 3, "transformers_version": 4}])
def test_an_odd_config_is_no_crash(folder, config):
    checkpoint(folder / "m", config)
    model = read_model("m")
    assert (model.saved_with, model.has_code) == (None, False)
    assert model.kind


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("SEQ_CLS", "AutoPeftModelForSequenceClassification as M"),
        ("CAUSAL_LM", "AutoPeftModelForCausalLM as M"),
        (None, "AutoPeftModel as M"),
    ],
)
def test_an_adapter_alone_is_refused_with_the_commands_that_make_a_model_of_it(folder, task, name):
    own = folder / "my lora"
    own.mkdir()
    (own / "adapter_config.json").write_text(json.dumps({"task_type": task}))
    (own / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError) as raised:
        read_model("./my lora")
    refused, merge, copy = str(raised.value).splitlines()
    assert "only samebits check joins it" in refused
    assert name in merge
    assert shlex.split(merge)[-2:] == ["my lora", "my lora-merged"]
    assert copy.split(maxsplit=1) == ["cp", "'my lora/tokenizer.json' 'my lora-merged'"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./lama", 'does not exist: did you mean "llama"?'),
        ("nowhere/at/all", "does not exist"),
        ("llama/config.json", "is a file: name the folder that contains it, llama"),
        ("runs", "but folders in it are: name one of runs/checkpoint-10, runs/checkpoint-20"),
        ("empty", "name a folder that save_pretrained wrote"),
        ("adapter", "merge_and_unload"),
        ("typo.yaml", "is a matrix and no model: samebits matrix --matrix typo.yaml"),
        ("gone.yaml", "does not exist"),
        ("gguf", "contains only m.Q4.gguf. samebits does not read GGUF"),
        ("gguf/m.Q4.gguf", "samebits does not read GGUF"),
        ("gliner", "It is one of gliner, which is not compared"),
        ("cut", "cut/config.json:2:1: this is not valid JSON"),
        ("listed", "listed/config.json:1:1: a config is a mapping"),
        ("bytes", "bytes/config.json: this file cannot be read"),
        ("marked", "marked/config.json:1:1: this is not valid JSON: Unexpected UTF-8 BOM"),
        ("wide", "wide/config.json: this file cannot be read"),
        ("models--org--n", "name one of models--org--n/snapshots/0a"),
    ],
)
def test_what_is_no_model_is_named_with_what_to_do(folder, text, words):
    checkpoint(folder / "llama")
    for step in (10, 20):
        checkpoint(folder / "runs" / f"checkpoint-{step}")
    (folder / "empty").mkdir()
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    (folder / "typo.yaml").write_text("models: {}")
    for path in ("gguf/m.Q4.gguf", "gliner/gliner_config.json", "gliner/pytorch_model.bin"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("{}")
    checkpoint(folder / "models--org--n" / "snapshots" / "0a")
    for name, encoding in (("marked", "utf-8-sig"), ("wide", "utf-16")):
        checkpoint(folder / name)
        (folder / name / "config.json").write_text('{"model_type": "llama"}', encoding=encoding)
    checkpoint(folder / "cut", '{"model_type": "llama",\n')
    checkpoint(folder / "listed", "[]")
    checkpoint(folder / "bytes")
    (folder / "bytes" / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CheckpointError) as caught:
        read_model(text)
    assert words in str(caught.value)


def test_a_model_on_the_hub_is_pinned_to_its_commit(folder, monkeypatch):
    asked = []

    def config_file(id_, revision):
        asked.append((id_, revision))
        return hub.HubFile(checkpoint(folder / "cache") / "config.json", "c" * 40)

    monkeypatch.setattr(hub, "config_file", config_file)
    model = read_model("org/name@main")
    assert asked == [("org/name", "main")]
    assert (model.name, model.hub, model.revision) == ("name", "org/name", "c" * 40)
    assert (model.typed, model.size) == (f"org/name@{'c' * 40}", None)


def test_an_unknown_id_is_compared_with_the_folders_here(folder, monkeypatch):
    (folder / "llama-tiny").mkdir()
    unknown = hub.HubError("the hub has no such model", is_unknown=True)

    def config_file(*_):
        raise unknown

    monkeypatch.setattr(hub, "config_file", config_file)
    with pytest.raises(CheckpointError) as caught:
        read_model("lama-tiny")
    assert 'did you mean "llama-tiny"?' in str(caught.value)


def test_a_bare_name_is_answered_without_the_hub(monkeypatch):
    monkeypatch.setattr(hub, "config_file", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(CheckpointError, match=r"there is no folder gone here\. .* org/gone$"):
        read_model("gone")


def test_without_a_network_only_init_goes_on(monkeypatch):
    offline = hub.HubError("the hub cannot be reached", is_offline=True)

    def config_file(*_):
        raise offline

    monkeypatch.setattr(hub, "config_file", config_file)
    with pytest.raises(CheckpointError, match="cannot be reached"):
        read_model("org/name")
    checkpoint(Path("checkpoint"))
    with pytest.raises(CheckpointError) as caught:
        read_model("chekpoint")
    assert str(caught.value) == (
        'there is no folder chekpoint here: did you mean "checkpoint"? For a model of the hub write its '
        "owner, too: org/chekpoint"
    )
    assert read_model("org/name@abc", offline=True).typed == "org/name@abc"


def test_names_in_other_letters_stay_apart():
    names = [fitting_name(text) for text in ("ü模型", "模型", "型模", "ü", "u", "model")]
    assert len(set(names)) == len(names)
    assert names[0].startswith("u-")
    assert names[4:] == ["u", "model"]
    # both ways to write the letter are one name
    assert fitting_name("u\u0308") == fitting_name("ü")


@pytest.mark.parametrize("text", ["ü" * 200, "a b", "-x", "ä/ö", "", "..", "x" * 200, "_a"])
def test_every_name_fits_into_a_matrix(text):
    assert is_name(fitting_name(text))


def test_code_of_a_model_on_the_hub_is_noticed(folder, monkeypatch):
    made = checkpoint(folder / "snapshot")
    (made / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.X", null]}}')
    file = hub.HubFile(made / "config.json", "c" * 40)
    monkeypatch.setattr(hub, "config_file", lambda *_: file)
    monkeypatch.setattr(hub, "settings_folder", lambda *_: made)
    assert read_model("org/name").loads_code
    (made / "tokenizer_config.json").unlink()
    assert not read_model("org/name").has_code
    (made / "custom_generate").mkdir()
    (made / "custom_generate" / "generate.py").write_text("")
    model = read_model("org/name")
    assert (model.has_code, model.loads_code) == (True, False)
